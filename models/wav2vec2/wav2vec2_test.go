package wav2vec2

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

func counts(t *testing.T, c Config) models.Counts {
	m := entry("it", "", c)
	full, err := m.Complete(models.Case{})
	require.NoError(t, err)
	trainer, err := m.Build(full)
	require.NoError(t, err)
	return trainer.Counts()
}

// facebook/wav2vec2-base-960h has 94,396,320 parameters, 768 of them a mask
// vector that the model has for SpecAugment alone.
func TestParameterCounts(t *testing.T) {
	require.EqualValues(t, 94_396_320-768, counts(t, base()).Total)
}

// With layer norms in the feature encoder every one of the six other layers
// gets a norm of 512 features.
func TestLayerNormsInTheFeatureEncoder(t *testing.T) {
	c := base()
	c.LayerNorms = true
	require.EqualValues(t, 6*2*512, counts(t, c).Total-counts(t, base()).Total)
	c.ConvBias = true
	require.EqualValues(t, (6*2+7)*512, counts(t, c).Total-counts(t, base()).Total)
}

// A loop that keeps what the model returned holds the scores of the characters until the step ends, 49 frames a second.
func TestLoopKeepsScores(t *testing.T) {
	m := entry("it", "", base())
	atBackward := func(loop models.Loop) (live int64) {
		c, err := m.Complete(models.Case{Batch: 2, Levers: models.Levers{Loop: loop}})
		require.NoError(t, err)
		r, err := m.Record(c, trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, models.Options{Steps: 1})
		require.NoError(t, err)
		for _, i := range r.Program.Instructions {
			switch i.Kind {
			case program.Alloc:
				live += r.Program.Buffers[i.Arg].Bytes
			case program.Free:
				live -= r.Program.Buffers[i.Arg].Bytes
			case program.Mark:
				if r.Program.Phases[i.Arg].Name == "backward" {
					return live
				}
			}
		}
		return live
	}
	c, err := m.Complete(models.Case{})
	require.NoError(t, err)
	frames := 50*c.Settings[secondsSetting] - 1
	require.Equal(t, 2*frames*base().Vocab*4, atBackward(models.LoopFunction)-atBackward(models.LoopTrainer))
}
