package nn_test

import (
	"github.com/vprof/vprof/tools/opvectors"
)

// families are the groups of operators the vectors are called through.
var families = []func() map[string]opvectors.Call{
	convOperators, dropoutOperators, blockOperators, graphOperators,
	normOperators, poolOperators, signalOperators, matmulOperators, pointwiseOperators, activationOperators,
	reductionOperators, lossOperators, shapeOperators, indexOperators, attentionOperators, recurrentOperators,
}
