package gpt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// The counts of transformers' gpt2, gpt2-medium, gpt2-large and gpt2-xl.
func TestParameterCounts(t *testing.T) {
	for i, want := range []int64{124_439_808, 354_823_168, 774_030_080, 1_557_611_200} {
		m := Models()[i]
		c, err := m.Complete(models.Case{})
		require.NoError(t, err)
		trainer, err := m.Build(c)
		require.NoError(t, err)
		require.Equal(t, want, trainer.Counts().Total, m.Name)
	}
}

// A mask of packed rows has a byte for every pair of tokens, and every layer
// expands it to the type of the scores; without it there is neither.
func TestPackedRowsNeedAMask(t *testing.T) {
	requested := func(packed int64) (sum int64) {
		c := models.Case{
			Batch: 2, AMP: "fp16",
			Settings: models.Settings{"packed": packed, "layers": 1, "seq-len": 512},
		}
		r, err := Models()[0].Record(c, trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, models.Options{})
		require.NoError(t, err)
		require.NoError(t, r.Program.Validate())
		for _, b := range r.Program.Buffers {
			sum += b.Bytes
		}
		return sum
	}
	require.Greater(t, requested(1), requested(0)+2*512*512*3)
}
