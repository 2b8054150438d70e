package pt2_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
	"github.com/vprof/vprof/models/pt2"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// A rank of a pipeline allocates the same whether its stages are cut out of a model in Go or
// out of the graph of the same model.
func TestStagesInGoAreThoseOfTheGraph(t *testing.T) {
	gpu := trace.GPU{Name: "a100-80", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 80 << 30}
	graph, err := pt2.Open("testdata/hf-gpt2.pt2")
	require.NoError(t, err)
	layers := hfconfig.Listed("gpt2")[0]
	type event struct {
		kind  program.Kind
		bytes int64
	}
	events := func(m models.Model, c models.Case) (out []event) {
		r, err := m.Record(c, gpu, models.Options{})
		require.NoError(t, err)
		require.NoError(t, r.Program.Validate())
		for _, in := range r.Program.Instructions {
			if in.Kind != program.Alloc && in.Kind != program.Free {
				continue
			}
			// smaller ones are what Python looks at, and a graph has not
			if n := r.Program.Buffers[in.Arg].Bytes; n >= 1<<20 {
				out = append(out, event{in.Kind, n})
			}
		}
		return out
	}
	for _, text := range []string{
		"pp:rank=0", "pp:rank=1,micro=5", "pp:rank=3,schedule=gpipe",
		"pp:rank=2,schedule=interleaved", "pp:split=2+7+10,rank=2", "pp:split=2+7+10,rank=0,schedule=gpipe",
	} {
		for _, amp := range []models.Autocast{models.NoAutocast, "bf16"} {
			for _, checkpointed := range []bool{false, true} {
				s, err := models.ParseStrategy(text)
				require.NoError(t, err)
				c := models.Case{
					Batch: 2, Accumulate: 1, GPUs: 4, Strategy: &s, AMP: amp,
					MemoryOptions: models.MemoryOptions{Clip: models.ClipNone},
				}
				c.Checkpointing = checkpointed
				ofGraph, ofLayers := c, c
				ofGraph.Loss = "output"
				ofLayers.Settings = map[string]int64{"seq-len": 256, "packed": 1}
				require.Equal(t, events(graph, ofGraph), events(layers, ofLayers), "%s %s %v", text, amp, checkpointed)
			}
		}
	}
}
