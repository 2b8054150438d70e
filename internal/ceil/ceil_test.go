package ceil_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/internal/ceil"
)

func TestMultipleIsTheLeastNotBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, unit := rapid.Int64Range(0, 1<<40).Draw(t, "n"), rapid.Int64Range(1, 1<<20).Draw(t, "unit")
		m := ceil.Multiple(n, unit)
		require.Zero(t, m%unit)
		require.GreaterOrEqual(t, m, n)
		require.Less(t, m-n, unit)
		require.Equal(t, m/unit, ceil.Div(n, unit))
	})
}
