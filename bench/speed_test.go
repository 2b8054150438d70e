package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
)

// BenchmarkRecordAndReplay is the unit of all work: two steps of redimnet-b2,
// recorded and replayed on a simulated board. It should take at most 10 ms on
// one core.
func BenchmarkRecordAndReplay(b *testing.B) {
	gpu, err := device.Lookup("rtx-5060-ti")
	require.NoError(b, err)
	registry := all.Models()
	for b.Loop() {
		rec, err := registry.Record(models.Case{Model: "redimnet-b2", Stage: "full", Batch: 16}, boardOf(gpu), models.Options{})
		require.NoError(b, err)
		_, err = simulate(b.Context(), rec.Program, gpu, allocator.DefaultConfig(), 0)
		require.NoError(b, err)
	}
}
