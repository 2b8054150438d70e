// Package ops records the operators that few models call: linear algebra, Fourier transforms,
// einsum, distances, CTC loss, recurrent cells, regions of interest, resampling and sampling.
//
// They are functions of tensors over [trace.Call], the activation of an operator. The operators
// of most models are methods of [trace.Tensor].
package ops

import "github.com/vprof/vprof/profiler/trace"

type (
	tensor   = trace.Tensor
	tape     = trace.Tape
	call     = trace.Call
	backward = trace.Gradients
)

// The arguments of SetGradFn: an operator's inputs, some of which may be nil, the tensors that its node saves, with nil
// for missing or unneeded ones, and the operator's results.
type (
	inputs  = []*tensor
	saves   = []*tensor
	outputs = []*tensor
)
