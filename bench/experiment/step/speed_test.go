package step

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/allocator"
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

// BenchmarkSpread measures the perturbed replays of a step, in which searches for the largest batch take most time.
func BenchmarkSpread(b *testing.B) {
	gpu, err := device.Lookup("rtx-4090")
	require.NoError(b, err)
	for _, c := range []models.Case{
		{Model: "redimnet-b2", Stage: "full", Batch: 80}, {Model: "gpt2", Batch: 8}, {Model: "unet", Batch: 16},
	} {
		b.Run(c.Model, func(b *testing.B) {
			rec, err := all.Models().Record(c, RecorderGPU(gpu), models.Options{Steps: 3})
			require.NoError(b, err)
			for b.Loop() {
				_, err := replay.MeasureSpread(b.Context(), rec.Program, allocator.DefaultConfig(), true, gpu.Rising,
					1<<20)
				require.NoError(b, err)
			}
		})
	}
}
