package allocator_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/allocator"
)

// trainingSizes draws sizes as a training step requests them: many scalars and vectors, fewer matrices, some large
// activations.
func trainingSizes(r *rand.Rand, n int) []int64 {
	sizes := make([]int64, n)
	for i := range sizes {
		switch p := r.Float64(); {
		case p < 0.35:
			sizes[i] = 4 << r.IntN(8)
		case p < 0.65:
			sizes[i] = 1 + r.Int64N(256<<10)
		case p < 0.85:
			sizes[i] = 1 + r.Int64N(4<<20)
		default:
			sizes[i] = 1 + r.Int64N(48<<20)
		}
	}
	return sizes
}

// BenchmarkMallocFree frees a random one of a few thousand live blocks and takes another, one operation each.
func BenchmarkMallocFree(b *testing.B) {
	for _, bench := range []struct{ name, conf string }{
		{"default", ""}, {"expandable", "expandable_segments:True"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			const live = 4096
			config, err := allocator.ParseConfig(bench.conf)
			require.NoError(b, err)
			heap, err := allocator.New(allocator.NewMemory(1<<40, 0), config)
			require.NoError(b, err)
			r := rand.New(rand.NewPCG(1, 2))
			sizes := trainingSizes(r, 1<<16)
			victims := make([]int, 1<<16)
			for i := range victims {
				victims[i] = r.IntN(live)
			}
			blocks := make([]*allocator.Block, live)
			turn := func(i int) {
				v := victims[i&(1<<16-1)]
				heap.Free(blocks[v])
				blocks[v], _ = heap.Malloc(sizes[i&(1<<16-1)])
			}
			for i := range 1 << 17 {
				turn(i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += 2 {
				turn(i / 2)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mops/s")
		})
	}
}
