package all_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/sample"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// TestModelsOfTheCommonLoopRunOnSeveralGPUs records each under each strategy.
func TestModelsOfTheCommonLoopRunOnSeveralGPUs(t *testing.T) {
	board := trace.Board{Name: "a100-80", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 80 << 30}
	var list []models.Model
	for _, m := range all.Models().All() {
		if m.Distributes {
			list = append(list, m)
		}
	}
	require.NotEmpty(t, list)
	for _, m := range sample.Of(list) {
		for _, text := range []string{"fsdp2", "fsdp2:mp=bf16,reshard=auto", "ddp:bucket_view=true", "zero1"} {
			s, err := models.ParseStrategy(text)
			require.NoError(t, err)
			c := models.Case{Batch: 1, Accumulate: 2, GPUs: 8, Strategy: &s}
			r, err := m.Record(c, board, models.Options{})
			require.NoError(t, err, "%s %s", m.Name, text)
			require.NoError(t, r.Program.Validate(), "%s %s", m.Name, text)
			weights := left(r.Program, program.Weights)
			if s.Name == models.FSDP2 { // each has an eighth, with padding
				require.Less(t, weights, r.Counts.Total*4/7, "%s %s", m.Name, text)
				require.GreaterOrEqual(t, weights, r.Counts.Total*4/8, "%s %s", m.Name, text)
			} else {
				require.Equal(t, r.Counts.Total*4, weights, "%s %s", m.Name, text)
			}
		}
	}
}

// left are the bytes of a class that live at the end of a program.
func left(p *program.Program, c program.Class) int64 {
	sum := int64(0)
	for _, in := range p.Instructions {
		if in.Kind != program.Alloc && in.Kind != program.Free || p.Buffers[in.Arg].Class != c {
			continue
		}
		if in.Kind == program.Alloc {
			sum += p.Buffers[in.Arg].Bytes
		} else {
			sum -= p.Buffers[in.Arg].Bytes
		}
	}
	return sum
}
