package specgan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Two batches a step: eleven steps are batches 0 to 21, of which 0, 5, 10, 15
// and 20 end with the cache given back, as i % 5 == 0 has it.
func TestCacheIsEmptiedEveryFewBatches(t *testing.T) {
	gpu := trace.GPU{Name: "t4", Capability: 75, SMs: 40, ThreadsPerSM: 1024, Memory: 15_828_320_256}
	count := func(every int64) (n int) {
		r, err := Models()[0].Record(models.Case{Batch: 2, Settings: models.Settings{"empty-cache": every}}, gpu,
			models.Options{Steps: 11})
		require.NoError(t, err)
		for _, i := range r.Program.Instructions {
			if i.Kind == program.EmptyCache {
				n++
			}
		}
		return n
	}
	require.Equal(t, 0, count(0))
	require.Equal(t, 5, count(5))
	require.Equal(t, 22, count(1))
}
