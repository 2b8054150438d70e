package bert

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// The paper says 110M and 340M; the masked language model has an output head
// beside the encoder and shares the embeddings with it.
func TestParameterCounts(t *testing.T) {
	for i, want := range []int64{109_514_298, 335_174_458} {
		m := Models()[i]
		c, err := m.Complete(models.Case{})
		require.NoError(t, err)
		trainer, err := m.Build(c)
		require.NoError(t, err)
		require.Equal(t, want, trainer.Counts().Total, m.Name)
	}
}

// Without padding there is no mask, and without a mask flash attention serves
// half precision: no probabilities' bias is expanded.
func TestPaddingCosts(t *testing.T) {
	allocations := func(padding int64) int {
		r, err := Models()[0].Record(models.Case{Batch: 2, AMP: "fp16", Settings: models.Settings{
			"padding": padding,
			"layers":  1,
		}}, trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, models.Options{})
		require.NoError(t, err)
		require.NoError(t, r.Program.Validate())
		return len(r.Program.Buffers)
	}
	require.Less(t, allocations(0), allocations(1))
}
