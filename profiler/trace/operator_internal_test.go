package trace

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every formula compiles: its names are arguments of the schema, and what it calls exists.
func TestEveryFormulaCompiles(t *testing.T) {
	for _, o := range PointwiseOperators() {
		require.NotPanics(t, func() { o.once.Do(o.prepare) }, o.Schema)
		require.Len(t, o.derivatives, len(o.gradients), o.Schema)
	}
}

// What autograd saves follows from the formulas: the arguments in them by name, then the
// result; an argument that one gradient alone needs is saved only if that one is wanted.
func TestSavedArgumentsFollowFromFormulas(t *testing.T) {
	for name, want := range map[string][]savedTensorArgument{
		"add.Tensor":        nil,
		"exp":               {{savedResult, -1}},
		"log":               {{0, 0}},
		"mul.Tensor":        {{1, 0}, {0, 1}},
		"div.Tensor":        {{1, -1}, {0, 1}},
		"hypot":             {{1, 1}, {0, 0}, {savedResult, -1}},
		"addcmul":           {{1, 2}, {2, 1}},
		"pow.Tensor_Tensor": {{1, -1}, {0, -1}, {savedResult, -1}},
	} {
		o := operatorIndex[name]
		o.once.Do(o.prepare)
		require.Equal(t, want, o.saves, name)
	}
}

// Node classes have the names that PyTorch's code generator gives them.
func TestNodeNames(t *testing.T) {
	for op, want := range map[string]string{
		"exp": "ExpBackward0", "log1p": "Log1PBackward0", "nan_to_num": "NanToNumBackward0",
		"deg2rad": "Deg2RadBackward0", "special_xlog1py": "SpecialXlog1PyBackward0",
	} {
		require.Equal(t, want, nodeName(op))
	}
}

// An operator has the forms of its aliases, each also in place.
func TestFormsOfOperator(t *testing.T) {
	require.Equal(t, []Form{
		{"mul.Tensor(Tensor self, Tensor other) -> Tensor", false},
		{"mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", true},
		{"multiply.Tensor(Tensor self, Tensor other) -> Tensor", false},
		{"multiply_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", true},
	}, opMul.Forms())
}
