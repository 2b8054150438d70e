package planner

import "github.com/vprof/vprof/profiler/device"

// contextStdErr is the standard error of a context that nobody measured, in
// bytes. Beside the context itself, CUDA's libraries load 50 to 400 MiB of
// kernels in the first steps, by published figures; half that spread is what
// two standard errors must hold.
const contextStdErr = 90 << 20

// ContextOf is the coefficient of a board's context from the catalog.
func ContextOf(gpu device.GPU) Coefficient {
	return Coefficient{
		Name: "context_bytes:" + gpu.Name, Value: float64(gpu.Context), StdErr: contextStdErr,
		Source: gpu.ContextSource,
	}
}
