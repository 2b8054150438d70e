package hf

import "github.com/vprof/vprof/profiler/trace"

// RMSNormalize binds x to what LlamaRMSNorm makes of it in fp32 before its weight, in the frame of the
// norm.
func RMSNormalize(f *frame, x **tensor) {
	f.Set(x, (*x).To(trace.F32))
	variance := f.Let((*x).Pow(2).Mean(true, -1))
	f.Set(x, (*x).Mul(variance.AddScalar().Rsqrt()))
}

// GemmaNormalized is GemmaRMSNorm._norm over x in fp32.
func GemmaNormalized(f *frame, x *tensor) *tensor {
	g := f.FuncFrame(x)
	return g.Return(x.Mul(x.Pow(2).Mean(true, -1).AddScalar().Rsqrt()))
}
