package pt2

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2/export"
)

// What is dense in the order of its dimensions has no strides of its own, nor has what is not dense.
func TestParametersKeepTheOrderOfTheirDimensions(t *testing.T) {
	for _, c := range []struct{ dims, strides, want []int64 }{
		{[]int64{4, 3}, []int64{3, 1}, nil},
		{[]int64{4, 3}, []int64{1, 4}, []int64{1, 4}},
		{[]int64{1, 3}, []int64{1, 1}, nil},
		{[]int64{2, 3, 4, 5}, []int64{60, 1, 15, 3}, []int64{60, 1, 15, 3}},
		{[]int64{4, 3}, []int64{6, 1}, nil},
		{[]int64{4, 3}, []int64{0, 1}, nil},
		{[]int64{4}, nil, nil},
		{nil, nil, nil},
	} {
		in := &export.Input{}
		for _, s := range c.strides {
			in.Strides = append(in.Strides, export.Size{Int: s})
		}
		require.Equal(t, c.want, denseStrides(in, c.dims), c)
	}
}

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
