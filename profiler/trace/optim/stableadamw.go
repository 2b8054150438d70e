package optim

import "github.com/vprof/vprof/profiler/trace"

// initStableAdamW makes the state of StableAdamW of torch-optimi 0.3, whose kernels are
// Triton's: two moments, numbers, and compensation of weights in half precision.
func initStableAdamW(o *Optimizer, s *slot) {
	o.zeros(s, expAvg, expAvgSq)
	o.keep(func() *trace.Tensor { return o.tape.Filled("scalar_tensor", s.param.DType()) })
	if s.param.DType().IsHalf() {
		o.zeros(s, maxExpAvgSq)
	} else {
		o.keep(func() *trace.Tensor { return o.tape.Zeros(trace.U8, 1) })
	}
	o.keep(func() *trace.Tensor { return o.tape.Zeros(trace.F32, 1) })
}
