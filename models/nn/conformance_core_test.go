package nn_test

import (
	"github.com/vprof/vprof/profiler/aten/opvectors"
)

// families are the groups of operators the vectors are called through.
var families = []func() map[string]opvectors.Call{convOperators, dropoutOperators, blockOperators, graphOperators, normOperators, poolOperators, signalOperators, matmulOperators, pointwiseOperators, activationOperators, reductionOperators, lossOperators, shapeOperators, indexOperators, attentionOperators, recurrentOperators}

func intsOf(xs []int64) []int {
	out := make([]int, len(xs))
	for i, x := range xs {
		out[i] = int(x)
	}
	return out
}
