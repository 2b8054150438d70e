package models_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// The last of the differences has made one case the other, and each before it changes one thing.
func TestDifferencesLeadFromOneCaseToTheOther(t *testing.T) {
	a := models.Case{Model: "m", Stage: "full", AMP: models.NoAutocast, Accumulate: 1, GPUs: 2}
	b := a
	b.AMP, b.Checkpointing, b.GPUs, b.Optimizer = "fp16", true, 0, "sgd"
	b.Settings = models.Settings{"seq-len": 512}
	all := models.Differences(a, b)
	var said []string
	for _, d := range all {
		said = append(said, d.Label+": "+d.A+" to "+d.B)
	}
	require.Equal(t, []string{
		"precision: none to fp16", "checkpointing: false to true", "optimizer:  to sgd", "settings:  to seq-len=512",
		"GPUs: 2 to ",
	}, said)
	require.Equal(t, b.Key(), all[len(all)-1].Case.Key())
	require.Equal(t, a.Checkpointing, all[0].Case.Checkpointing)

	require.Empty(t, models.Differences(a, a))
}
