package redimnet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// Counts of the original code (models facts, verified against the trainer).
func TestParameterCountsAreThoseOfTheOriginals(t *testing.T) {
	want := map[string]int64{
		"redimnet-b0": 1_214_487, "redimnet-b1": 2_116_505, "redimnet-b2": 5_016_305, "redimnet-b3": 3_411_005,
		"redimnet-b4": 6_186_289, "redimnet-b5": 6_186_289, "redimnet-b6": 10_291_057, "redimnet-M": 4_478_353,
		"redimnet-b0-orig": 1_081_115, "redimnet-b1-orig": 2_016_409, "redimnet-b2-orig": 4_919_665,
		"redimnet-b3-orig": 3_372_541,
		"redimnet-b4-orig": 6_736_497, "redimnet-b5-orig": 7_954_737, "redimnet-b6-orig": 15_310_449,
		"redimnet-M-orig": 4_381_713,
	}
	for _, m := range Models() {
		full, err := m.Build(models.Case{Stage: "full", Batch: 2, Accumulate: 1})
		require.NoError(t, err)
		require.Equal(t, want[m.Name], full.Counts().Total, m.Name)
		require.Equal(t, want[m.Name], full.Counts().Trainable, m.Name)
		require.EqualValues(t, 1_534_464, full.Counts().Criterion, m.Name)
	}
	b2, err := Models()[2].Build(models.Case{Stage: "frozen", Batch: 2, Accumulate: 1})
	require.NoError(t, err)
	require.EqualValues(t, 264_448, b2.Counts().Trainable)
	require.EqualValues(t, 32_391, b2.Counts().Buffers)
}
