package pt2

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2/export"
)

// A model is in half precision if all of its floating-point parameters are; its buffers may be in another.
func TestWeightsAreWhatAllParametersAre(t *testing.T) {
	of := func(types ...export.ScalarType) *export.Program {
		p := &export.Program{Inputs: []export.Input{{Role: export.Buffer, Type: export.Float}}}
		for _, d := range types {
			p.Inputs = append(p.Inputs, export.Input{Role: export.Parameter, Type: d})
		}
		return p
	}
	for _, c := range []struct {
		want models.WeightType
		of   []export.ScalarType
	}{
		{"", nil},
		{"", []export.ScalarType{export.Float}},
		{"", []export.ScalarType{export.BFloat16, export.Float}},
		{"", []export.ScalarType{export.BFloat16, export.Half}},
		{"bf16", []export.ScalarType{export.BFloat16, export.BFloat16, export.Char}},
		{"fp16", []export.ScalarType{export.Half}},
	} {
		require.Equal(t, c.want, halfWeights(of(c.of...)), c.of)
	}
}
