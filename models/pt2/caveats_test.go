package pt2

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2/export"
)

// A model that does something else at other batches is not planned at one without a word.
func TestOtherBatchesOfModelsThatCountThemAreDoubted(t *testing.T) {
	x := &export.Extra{
		Symbols:  map[string]export.Symbol{"s0": {Name: "batch", Example: 4}},
		OtherWay: &export.OtherWay{Batch: 1031, Line: "net.py:12"},
	}
	of := newCaveats("net.pt2", &export.Program{Extra: x}, &dimensions{})
	require.Empty(t, of(models.Case{Batch: 4}))
	require.Len(t, of(models.Case{Batch: 8}), 1)
	require.Contains(t, of(models.Case{Batch: 8})[0], "net.py:12")
	x.OtherWay = nil
	require.Empty(t, of(models.Case{Batch: 8}))
}

// Nor is one whose way depends on numbers that its training need not have.
func TestWhatDependsOnNumbersIsDoubted(t *testing.T) {
	x := &export.Extra{Numbers: []string{"net.py:12", "net.py:30"}}
	said := newCaveats("net.pt2", &export.Program{Extra: x}, &dimensions{})(models.Case{Batch: 4})
	require.Len(t, said, 1)
	require.Contains(t, said[0], "net.py:12")
}

func TestWhatRunsOtherwiseInTrainingIsDoubted(t *testing.T) {
	x := &export.Extra{}
	require.False(t, mayDiffer(x))
	x.Scripted = true
	require.True(t, mayDiffer(x))
	said := newCaveats("net.pt2", &export.Program{Extra: x}, &dimensions{})(models.Case{Batch: 4})
	require.Len(t, said, 1)
	require.Contains(t, said[0], "torch.jit.script")
}
