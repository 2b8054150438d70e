package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

func mask(t *trace.Tape, trues int64, shape ...int64) *tensor {
	m := t.Frame().Let(t.New("mask", program.Batch, trace.Bool, shape...))
	m.SetTrue(trues)
	return m
}

// What a mask picks has the size that was told, and goes when nobody refers to it.
func TestMasksPickAsManyAsAreTrue(t *testing.T) {
	for name, pick := range map[string]func(x, m *tensor) *tensor{
		"index":         func(x, m *tensor) *tensor { return x.Index(m) },
		"masked_select": func(x, m *tensor) *tensor { return x.MaskedSelect(m) },
		"index_put": func(x, m *tensor) *tensor {
			return x.IndexPut([]*tensor{m}, x.Index(m), false).Index(m)
		},
	} {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		x, m := leaf(tape, true, 5, 7), mask(tape, 11, 5, 7)
		before := tape.Program().Left()
		f := tape.Frame()
		y := f.Let(pick(x, m))
		require.Equal(t, []int64{11}, y.Shape(), name)
		y.Sum(false).Backward()
		f.End()
		x.ZeroGrad()
		require.Equal(t, before, tape.Program().Left(), name)
	}
}

// The bytes are those of PyTorch 2.15 for masks that are all true, on a board of 82 multiprocessors with 1,536 threads.
func TestNonzeroTakesTheMemoryOfItsAlgorithms(t *testing.T) {
	board := trace.Board{Name: "rtx-3090", Capability: 86, SMs: 82, ThreadsPerSM: 1536, Memory: 24 << 30}
	for n, want := range map[int64][]int64{
		1000: {4, 1, 8000, 1023}, 5000: {4, 10239, 40000, 1023}, 200000: {4, 10239, 1600000, 3327},
		4000000: {4, 10239, 32000000, 50943},
	} {
		tape := trace.New(board, rules, trace.Options{Warm: true})
		m := mask(tape, n, n)
		before := len(tape.Program().Buffers)
		m.Nonzero()
		var got []int64
		for _, b := range tape.Program().Buffers[before:] {
			got = append(got, b.Bytes)
		}
		require.Equal(t, want, got, n)
	}
}
