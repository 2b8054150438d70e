package aten

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSchemasAreReadAsPyTorchWritesThem(t *testing.T) {
	s, err := ParseSchema("conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, str " +
		"padding='valid', *, Scalar alpha=1) -> (Tensor(a!) values, Tensor(a)[] rest)")
	require.NoError(t, err)
	require.Equal(t, &Schema{
		Name: "aten::conv2d", Overload: "padding",
		Arguments: []Argument{
			{Name: "input", Type: "Tensor"},
			{Name: "weight", Type: "Tensor"},
			{Name: "bias", Type: "Tensor?", Default: "None", HasDefault: true},
			{Name: "stride", Type: "SymInt[2]", Default: "1", HasDefault: true},
			{Name: "padding", Type: "str", Default: "valid", HasDefault: true},
			{Name: "alpha", Type: "Scalar", Default: "1", HasDefault: true},
		},
		Returns: []string{"Tensor", "Tensor[]"},
	}, s)
}

func TestBadSchemasAreErrors(t *testing.T) {
	for _, text := range []string{
		"", "relu", "relu(", "relu()", "relu(Tensor) -> Tensor",
		"relu(Tensor x, Tensor x) -> Tensor", "relu(Tensor(a x) -> Tensor", "relu(Tensor x) -> ",
		"relu(Tensor x,) -> Tensor",
	} {
		_, err := ParseSchema(text)
		require.Error(t, err, text)
	}
}

func FuzzParseSchema(f *testing.F) {
	f.Add("relu(Tensor self) -> Tensor")
	f.Add("split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]")
	f.Add("norm(Tensor self, Scalar? p, int[1] dim=[-2,-1], *, ScalarType dtype) -> (Tensor a, Tensor b)")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSchema(text)
		if err != nil {
			return
		}
		require.NotEmpty(t, s.Name)
		for _, a := range s.Arguments {
			require.NotEmpty(t, a.Name)
			require.NotEmpty(t, a.Type)
			defaultValue(a)
		}
	})
}
