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

// The parts of a node: the inputs of its operator, of which some may be nil, the tensors that it
// saves for backward, with nil where one is missing or not needed, and its results.
type (
	inputs  = []*tensor
	saves   = []*tensor
	outputs = []*tensor
)
