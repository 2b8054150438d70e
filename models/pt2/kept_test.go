package pt2

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/pt2/export"
)

// What modules keep is found by the names of values, in whichever graph they are made.
func TestKeptValuesAreNamed(t *testing.T) {
	p := &export.Program{Names: []string{"x", "sin", "cos"}, Extra: &export.Extra{Replaced: []export.Death{
		{Node: 3, Values: []string{"cos"}}, {Node: 5, Values: []string{"2/sin", "unknown"}},
	}}}
	require.Equal(t, []kept{{value: 2, until: 3}, {value: 1, until: 5}}, keptOf(p))
	require.Empty(t, keptOf(&export.Program{}))
}
