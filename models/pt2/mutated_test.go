package pt2_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2"
	"github.com/vprof/vprof/profiler/trace"
)

// mutants returns how many damaged copies of each file are tried; VPROF_MUTANTS has more.
func mutants() int {
	if n, err := strconv.Atoi(os.Getenv("VPROF_MUTANTS")); err == nil {
		return n
	}
	return 4
}

// Files come from strangers: whatever is wrong with one, the answer is an error.
func TestDamagedGraphsAreErrors(t *testing.T) {
	for _, name := range []string{
		"hf-bert-tiny", "hf-t5-small", "timm-resnet18", "timm-swin_tiny_patch4_window7_224", "monai-UNet3d",
		"diffusers-unet-sd15-small",
	} {
		entries := unzip(t, "testdata/"+name+".pt2")
		for seed := range mutants() {
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			path := filepath.Join(t.TempDir(), name+".pt2")
			damaged := mutate(t, r, entries)
			require.NoError(t, os.WriteFile(path, damaged, 0o600))
			require.NotPanics(t, func() { plan(path, r) }, "%s, seed %d", name, seed)
			require.NoError(t, os.Remove(path))
		}
	}
}

// plan opens a file and records a step of it, if it can.
func plan(path string, r *rand.Rand) {
	m, err := pt2.Open(path)
	if err != nil {
		return
	}
	c := models.Case{
		Batch: 1 + r.IntN(4), AMP: []models.Autocast{"", "bf16", "fp16"}[r.IntN(3)], Checkpointing: r.IntN(4) == 0,
		Loss: []string{"", pt2.MSE, pt2.Sum}[r.IntN(3)],
	}
	_, _ = m.Record(c, trace.GPU{Name: "a100", Capability: 80, Memory: 80 << 30}, models.Options{})
}

func unzip(t *testing.T, path string) map[string][]byte {
	t.Helper()
	z, err := zip.OpenReader(path)
	require.NoError(t, err)
	defer z.Close()
	out := map[string][]byte{}
	for _, f := range z.File {
		in, err := f.Open()
		require.NoError(t, err)
		out[f.Name], err = io.ReadAll(in)
		require.NoError(t, err)
	}
	return out
}

// mutate damages a few values of the graph, or of what a capture adds to it.
func mutate(t *testing.T, r *rand.Rand, entries map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range entries {
			if !yield(name) {
				return
			}
		}
	}) {
		text := entries[name]
		if strings.HasSuffix(name, "model.json") || strings.HasSuffix(name, "vprof.json") && r.IntN(3) == 0 {
			var v any
			d := json.NewDecoder(bytes.NewReader(text))
			d.UseNumber()
			require.NoError(t, d.Decode(&v))
			var places []func()
			collect(v, r, &places)
			for range 1 + r.IntN(3) {
				places[r.IntN(len(places))]()
			}
			var err error
			text, err = json.Marshal(v)
			require.NoError(t, err)
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: name})
		require.NoError(t, err)
		_, err = w.Write(text)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return out.Bytes()
}

// collect finds what can be done to a value: something else in its place, or nothing.
func collect(v any, r *rand.Rand, places *[]func()) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(func(yield func(string) bool) {
			for k := range v {
				if !yield(k) {
					return
				}
			}
		}) {
			*places = append(*places, func() {
				if r.IntN(6) == 0 {
					delete(v, key)
				} else {
					v[key] = other(v[key], r)
				}
			})
			collect(v[key], r, places)
		}
	case []any:
		for i := range v {
			*places = append(*places, func() { v[i] = other(v[i], r) })
			collect(v[i], r, places)
		}
	}
}

// other returns a value of the same kind, or of another.
func other(v any, r *rand.Rand) any {
	numbers := []any{true, nil, "x"}
	for _, n := range strings.Fields("0 -1 1 3 2147483648 9223372036854775807 1e300") {
		numbers = append(numbers, json.Number(n))
	}
	switch v := v.(type) {
	case json.Number:
		return numbers[r.IntN(len(numbers))]
	case string:
		switch r.IntN(4) {
		case 0:
			return ""
		case 1:
			return v + "_1"
		case 2:
			targets := strings.Fields(
				"view.default cat.default mm.default permute.default relu_.default conv2d.default einsum.default " +
					"sum.dim_IntList index.Tensor to.dtype")
			return "torch.ops.aten." + targets[r.IntN(len(targets))]
		}
		return strings.TrimSuffix(v, v[max(len(v)-1, 0):])
	case []any:
		if len(v) > 0 && r.IntN(2) == 0 {
			return v[:len(v)-1]
		}
		return append(slices.Clone(v), json.Number("2"))
	case map[string]any:
		return map[string]any{"as_int": json.Number("2")}
	case bool:
		return !v
	}
	return numbers[r.IntN(len(numbers))]
}
