package step

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/replay"
)

// recordAndReplay measures the unit of all work, on one core: two steps of a
// case, recorded for a GPU and replayed whole, whether they fit it or not.
func recordAndReplay(b *testing.B, c models.Case) {
	gpu, err := device.Lookup("rtx-5060-ti")
	require.NoError(b, err)
	registry := all.Models()
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as the program runs
	b.ReportAllocs()
	for b.Loop() {
		rec, err := registry.Record(c, RecorderGPU(gpu), models.Options{})
		require.NoError(b, err)
		run, err := replay.Replay(b.Context(), rec.Program, replay.Options{})
		require.NoError(b, err)
		require.Nil(b, run.OOM)
	}
}

// BenchmarkRecordAndReplay should take at most 10 ms for redimnet-b2, 50 ms for any other model as it is trained by
// default, and 250 ms for a Llama of 80 layers.
func BenchmarkRecordAndReplay(b *testing.B) {
	b.Run("redimnet-b2-full", func(b *testing.B) {
		recordAndReplay(b, models.Case{Model: "redimnet-b2", Stage: "full", Batch: 16})
	})
	for _, m := range all.Models().All() {
		b.Run(m.Name, func(b *testing.B) { recordAndReplay(b, m.Default) })
	}
	b.Run("llama-80-layers", func(b *testing.B) {
		recordAndReplay(b, models.Case{Model: "llama", Settings: models.Settings{"layers": 80}})
	})
}
