package models

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrapsAreCallsOfFullyShard(t *testing.T) {
	s, err := ParseStrategy("fsdp2:wrap=h.*+layers.*/2+norm:head+a:b/2")
	require.NoError(t, err)
	require.Equal(t, []Wrap{
		{Patterns: []string{"h.*"}, Every: 1},
		{Patterns: []string{"layers.*"}, Every: 2},
		{Patterns: []string{"norm", "head"}},
		{Patterns: []string{"a", "b"}, Every: 2},
	}, s.Wraps())
	require.Zero(t, s.ReshardRanks())
}
