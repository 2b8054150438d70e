package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/trace"
)

type radixSort struct {
	n, key, value int64
	bits          int
}

func storage(b trace.GPU, s radixSort) int64 {
	return trace.RadixStorage(b, rules.CUB, s.n, s.key, s.value, s.bits)
}

// Temporary storage of CUB, as PyTorch 2.11 asked for it on an RTX 5060 Ti.
func TestSortStorage(t *testing.T) {
	gpu := trace.GPU{Capability: 120, SMs: 36, ThreadsPerSM: 1536}
	for _, c := range []struct {
		name string
		sort radixSort
		want int64
	}{
		{"333 indices fit a block", radixSort{n: 333, key: 8, value: 8, bits: 10}, 1},
		{"5000 indices of 12 bits", radixSort{n: 5000, key: 8, value: 8, bits: 12}, 87039},
		{"4096 indices of all bits", radixSort{n: 4096, key: 8, value: 8, bits: 64}, 83455},
		{"8192 indices of all bits", radixSort{n: 8192, key: 8, value: 8, bits: 64}, 150015},
		{"40000 floats", radixSort{n: 40000, key: 4, value: 8, bits: 32}, 496895},
		{"40000 halves", radixSort{n: 40000, key: 2, value: 8, bits: 16}, 412927},
		{"100000 floats", radixSort{n: 100000, key: 4, value: 8, bits: 32}, 1228287},
		{"100000 halves", radixSort{n: 100000, key: 2, value: 8, bits: 16}, 1023231},
		{"40000 pairs by 3 bits", radixSort{n: 40000, key: 8, bits: 3}, 9727},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, storage(gpu, c.sort)) })
	}
}

// Sorting more never takes less, on any generation, and a sort that is not
// done in one block holds at least what it sorts once more.
func TestSortStorageGrows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		gpu := trace.GPU{
			Capability: rapid.SampledFrom([]int{75, 80, 86, 90, 100, 120}).Draw(rt, "capability"),
			SMs:        40, ThreadsPerSM: 1024,
		}
		s := radixSort{
			key:   rapid.SampledFrom([]int64{1, 2, 4, 8}).Draw(rt, "key"),
			value: rapid.SampledFrom([]int64{0, 8}).Draw(rt, "value"),
		}
		s.bits = int(8 * s.key)
		s.n = rapid.Int64Range(1, 1<<22).Draw(rt, "n")
		more := s
		more.n += rapid.Int64Range(0, 1<<22).Draw(rt, "more")
		small, large := storage(gpu, s), storage(gpu, more)
		require.LessOrEqual(rt, small, large)
		if small > 1 && s.key > 1 {
			require.Greater(rt, small, s.n*(s.key+s.value))
		}
	})
}
