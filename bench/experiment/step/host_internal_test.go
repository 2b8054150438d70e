package step

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// Of 12 GB of shards with as many gradients: the shards come twice for each of two micro-batches, gradients go once,
// and the optimizer reads 48 GB and writes 36. DeepSpeed sends gradients twice, and half of the weights once.
func TestWhatTheHostTakesIsCopiesAndItsOptimizer(t *testing.T) {
	facts := trace.Facts{Host: trace.Host{Weights: 12e9, Gradients: 12e9, State: 24e9, Stepped: 12e9}}
	c := models.Case{Accumulate: 2, Strategy: &models.Strategy{Name: models.FSDP2}}
	optimizer := (48e9 + 36e9) / 40e9
	require.InDelta(t, 4+1+optimizer, hostSeconds(c, facts), 1e-9)
	c.Strategy.Name = models.ZeRO3
	require.InDelta(t, 4+2+0.5+optimizer, hostSeconds(c, facts), 1e-9)
	require.Zero(t, hostSeconds(c, trace.Facts{}))
}
