package compiled

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// step returns a step of a model of one weight w of 4 x 8 floats at a batch size: scores and a hidden tensor in
// forward, a gradient in backward; scores live to the end of the step. The first step leaves a workspace, and has no
// hidden tensor.
func step(batch int) Recording {
	n := int64(batch)
	first := Step{
		Allocations: [][3]int64{{n * 64, 0}, {8 << 10, 1}, {128, 1}},
		Order:       []int{0, 1, 2, ^0},
		Forward:     2, Backward: 3,
		Gradients: []Gradient{{2, "w", 0}},
	}
	return Recording{AMP: "bf16", Batch: batch, Steps: [2]Step{first, {
		Allocations: [][3]int64{{n * 64, 0}, {n * 32, 1}, {4, 0}, {128, 1}, {n * 16, 0}},
		Order:       []int{0, 1, 2, 3, 4, ^4, ^1, ^2, ^0},
		Forward:     3, Backward: 7,
		Gradients: []Gradient{{3, "w", 0}},
	}}}
}

func file(recordings ...Recording) *File {
	return &File{
		Schema: Schema, Torch: "2.15.0+cu132", GPU: "a100-40", Model: "toy", Form: "whole",
		Parameters: []Tensor{{"w", []int64{4, 8}, "float32", true}}, Buffers: []Tensor{{
			"b",
			[]int64{3},
			"int64",
			false,
		}},
		Inputs: []Tensor{{"x", []int64{-1, 8}, "float32", false}}, Sites: []string{"toy.py:3:forward", ""},
		Recordings: recordings,
	}
}

func toyCase(batch int) models.Case {
	return models.Case{
		Model: "pt2:toy", Stage: "full", Batch: batch, AMP: "bf16", Accumulate: 1, Torch: "2.15",
		Levers: models.Levers{Compile: true},
	}
}

// written returns the content of a file.
func written(t *testing.T, f *File) []byte {
	var content bytes.Buffer
	require.NoError(t, f.Write(&content))
	return content.Bytes()
}

func packed(t *testing.T, f *File) []byte {
	var content bytes.Buffer
	w := gzip.NewWriter(&content)
	require.NoError(t, json.NewEncoder(w).Encode(f))
	require.NoError(t, w.Close())
	return content.Bytes()
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
