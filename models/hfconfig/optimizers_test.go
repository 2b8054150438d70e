package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// Peaks of the phases of the second step with bitsandbytes 0.49, schedulefree 1.4 and
// adam_mini 1.1, transformers 5.23 and torch 2.11 on an A100, allocations in blocks of 512
// bytes.
func TestOptimizersOfOtherLibraries(t *testing.T) {
	const (
		loss = 512     // which the loops that were measured had let go of
		rows = 3 * 512 // second moments of queries, of which Adam_mini has one for each head
	)
	for name, want := range map[string]struct{ forward, backward, step int64 }{
		"schedule-free-adamw": {190896640, 199268352, 129814528 + loss},
		"came":                {191196672, 199568384, 151605760 + loss},
		"adam-mini":           {168388096 + rows, 176759808 + rows, 93167616 + rows + loss},
		"lion32bit":           {190896640, 199268352, 0}, // no more than there is after backward
		"lion8bit":            {157257216, 165628928, 0},
		"ademamix8bit":        {180183552, 188555264, 0},
		"ademamix32bit":       {281102848, 289474560, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := model(t, smallLlama)
			c := complete(t, m, models.Case{
				Batch: 2, Weights: "bf16", Optimizer: name, Settings: models.Settings{"seq-len": 512, "packed": 0}, Levers: models.Levers{Clip: models.ClipNone},
			})
			r, err := m.Record(c, trace.Board{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, models.Options{Steps: 2})
			require.NoError(t, err)
			all := phases(r.Program, inBlocks)
			require.Equal(t, want.forward, all[phase(1, "forward")].peak)
			require.Equal(t, want.backward, all[phase(1, "backward")].peak)
			if want.step > 0 {
				require.Equal(t, want.step, all[phase(1, "optimizer")].peak)
			}
		})
	}
}
