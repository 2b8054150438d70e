package export_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/pt2/export"
)

func TestNumbersWithoutJSONAreKept(t *testing.T) {
	for _, f := range []float64{0.1, -1e300, math.Inf(1), math.Inf(-1), 0} {
		text, err := json.Marshal(export.Argument{Kind: export.Real, Real: export.RealNumber(f)})
		require.NoError(t, err)
		var back export.Argument
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, export.RealNumber(f), back.Real)
	}
	text, err := json.Marshal(export.RealNumber(math.NaN()))
	require.NoError(t, err)
	var back export.RealNumber
	require.NoError(t, json.Unmarshal(text, &back))
	require.True(t, math.IsNaN(float64(back)))
	require.Error(t, json.Unmarshal([]byte(`"many"`), &back))
}
