package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

func mask(t *trace.Tape, trues int64, shape ...int64) *tensor {
	m := t.Frame().Bind(t.New("mask", program.Batch, trace.Bool, shape...))
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
		before := tape.Program().LeftBytes()
		f := tape.Frame()
		y := f.Bind(pick(x, m))
		require.Equal(t, []int64{11}, y.Shape(), name)
		y.Sum(false).Backward()
		f.End()
		x.ZeroGrad()
		require.Equal(t, before, tape.Program().LeftBytes(), name)
	}
}

// The bytes are PyTorch 2.15's for masks that are all true, on a GPU of 82 multiprocessors with 1,536 threads.
func TestNonzeroTakesTheMemoryOfItsAlgorithms(t *testing.T) {
	gpu := trace.GPU{Name: "rtx-3090", Capability: 86, SMs: 82, ThreadsPerSM: 1536, Memory: 24 << 30}
	for n, want := range map[int64][]int64{
		1000: {4, 1, 8000, 1023}, 5000: {4, 10239, 40000, 1023}, 200000: {4, 10239, 1600000, 3327},
		4000000: {4, 10239, 32000000, 50943},
	} {
		tape := trace.New(gpu, rules, trace.Options{Warm: true})
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

// The bytes are PyTorch 2.15's on the same GPU.
func TestUniqueTakesTheMemoryOfItsAlgorithms(t *testing.T) {
	gpu := trace.GPU{Name: "rtx-3090", Capability: 86, SMs: 82, ThreadsPerSM: 1536, Memory: 24 << 30}
	for _, c := range []struct {
		n               int64
		d               trace.DType
		inverse, counts bool
		want            []int64
	}{
		{1000, trace.I64, false, false, []int64{8000, 1, 8000, 8, 1023}},
		{1000, trace.I64, true, false, []int64{8000, 8000, 8000, 1, 8000, 8000, 1023, 8000, 8, 1023}},
		{100000, trace.I64, false, false, []int64{800000, 844543, 800000, 8, 2047}},
		{100000, trace.I32, false, false, []int64{400000, 422143, 400000, 8, 1535}},
		{100000, trace.I32, false, true, []int64{400000, 422143, 400000, 8, 800000, 3071}},
		{100000, trace.I64, true, true, []int64{
			800000, 800000, 800000, 1644543, 800000, 800000, 1279, 800000, 8, 800000, 3071,
		}},
		{3000, trace.Bool, false, false, []int64{4, 1, 2, 16}},
		{100000, trace.Bool, true, true, []int64{4, 10239, 2, 16, 800000}},
	} {
		differ := int64(50)
		if c.d == trace.Bool {
			differ = 2
		}
		tape := trace.New(gpu, rules, trace.Options{Warm: true})
		f := tape.Frame()
		x := f.Bind(tape.New("x", program.Batch, c.d, c.n))
		before := len(tape.Program().Buffers)
		found := x.Unique(differ, c.inverse, c.counts)
		for _, y := range found {
			f.Bind(y)
		}
		var got []int64
		for _, b := range tape.Program().Buffers[before:] {
			if b.Bytes > 0 {
				got = append(got, b.Bytes)
			}
		}
		require.Equal(t, c.want, got)
		require.Equal(t, []int64{differ}, found[0].Shape())
		f.End()
		require.NoError(t, tape.Program().Validate())
	}
}
