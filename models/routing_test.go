package models

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRouting(t *testing.T) {
	for text, want := range map[string]float64{"balanced": 1, "worst": math.Inf(1), "skew=1": 1, "skew=2.5": 2.5} {
		way, err := parseRouting(text)
		require.NoError(t, err, text)
		require.Equal(t, want, MemoryOptions{Routing: way}.ExpertLoad(), text)
	}
	for _, text := range []string{"", "skew", "skew=", "skew=0.5", "skew=NaN", "skew=inf", "Worst"} {
		_, err := parseRouting(text)
		require.Error(t, err, text)
	}
}
