package naics

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

func record(t *testing.T, c models.Case) *program.Program {
	if c.Settings == nil {
		c.Settings = models.Settings{}
	}
	if _, given := c.Settings["max-length"]; !given {
		c.Settings["max-length"] = 64
	}
	if c.Accumulate == 0 {
		c.Accumulate = 1
	}
	c.Batch = 2
	r, err := Models()[0].Record(c, trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, models.Options{})
	require.NoError(t, err)
	require.NoError(t, r.Program.Validate())
	return r.Program
}

// Four encoders of 22,713,216, with adapters of 337,920 each; mixture,
// projection and hyperboloid have 12,599,300 + 590,208 + 148,225.
func TestParameterCounts(t *testing.T) {
	for _, m := range Models() {
		c, err := m.Complete(models.Case{})
		require.NoError(t, err)
		trainer, err := m.Build(c)
		require.NoError(t, err)
		const rest = 12_599_300 + 590_208 + 148_225
		require.Equal(t, models.Counts{
			Total: 4*(22_713_216+337_920) + rest, Trainable: 4*337_920 + rest,
			Buffers: 4 * 2 * 512, Gradients: 4 * (4*337_920 + rest),
		}, trainer.Counts(), m.Name)
	}
}

func TestPositivesDoNotChangeMemory(t *testing.T) {
	few := record(t, models.Case{Settings: models.Settings{"n-positives": 1}})
	many := record(t, models.Case{Settings: models.Settings{"n-positives": 64}})
	require.Equal(t, few, many)
}

func TestMemoryGrowsWithNegativesAndLength(t *testing.T) {
	base := record(t, models.Case{}).Peak()
	require.Greater(t, record(t, models.Case{Settings: models.Settings{"n-negatives": 9}}).Peak(), base)
	require.Greater(t, record(t, models.Case{Settings: models.Settings{"max-length": 65}}).Peak(), base)
	require.Greater(t, record(t, models.Case{Settings: models.Settings{"adapter-dropout": 1}}).Peak(), base)
}

// The authors measured 346.7 MiB without and 43.0 MiB with checkpointing that runs: an eighth of what the graph keeps.
func TestCheckpointingThatRunsSavesMostOfTheGraph(t *testing.T) {
	kept := func(checkpointing bool) int64 {
		var loaded, forward int64
		p := record(t, models.Case{AMP: "fp16", Checkpointing: checkpointing})
		for i, now := range p.Live() {
			if i.Kind != program.MarkPhase {
				continue
			}
			switch phase := p.Phases[i.Arg]; {
			case phase.Name == "batch":
				loaded = now
			case phase.Name == "forward" && phase.Step == 0:
				forward = now
			}
		}
		return forward - loaded
	}
	require.Less(t, kept(true), kept(false)/3)
}

// Gradients of the step before are there while the next forward pass runs.
func TestGradientsLiveThroughTheForwardPass(t *testing.T) {
	p := record(t, models.Case{})
	live := map[uint32]bool{}
	for _, i := range p.Instructions {
		switch i.Kind {
		case program.Alloc:
			live[i.Arg] = true
		case program.Free:
			delete(live, i.Arg)
		case program.MarkPhase:
			if phase := p.Phases[i.Arg]; phase.Step == 1 && phase.Name == "forward" {
				var gradients int64
				for b := range live {
					if p.Buffers[b].Class == program.Gradients {
						gradients += p.Buffers[b].Bytes
					}
				}
				// All but the poolers' adapters get one.
				require.EqualValues(t, 4*(14_689_413-4*2*8*384), gradients)
			}
		}
	}
}

// What ends and is used again leaves no trace: the same case gives the same program.
func TestRecordingsAreReproducible(t *testing.T) {
	for _, checkpointing := range []bool{false, true} {
		c := models.Case{AMP: "fp16", Checkpointing: checkpointing, Accumulate: 2}
		require.Equal(t, record(t, c), record(t, c))
	}
}
