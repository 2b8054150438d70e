package host

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func needs() *rapid.Generator[Need] {
	return rapid.Custom(func(t *rapid.T) Need {
		bytes := func(name string) int64 { return rapid.Int64Range(0, 1<<40).Draw(t, name) }
		n := Need{
			Processes:         rapid.IntRange(1, 8).Draw(t, "processes"),
			WorkersPerProcess: rapid.IntRange(0, 16).Draw(t, "workers"),
			Saving:            bytes("saving"), Weights: bytes("weights"), Gradients: bytes("gradients"),
			State: bytes("state"), Rounding: bytes("rounding"), Activations: bytes("activations"), Managed: bytes("managed"),
			Batch: bytes("batch"), Memory: bytes("memory"),
		}
		n.Pinned = n.Activations + bytes("pinned")
		n.Loading = Interval{Value: bytes("loading")}
		n.Loading.High = n.Loading.Value + bytes("above")
		return n
	})
}

// A GPU with unified memory takes from the machine's: the need is judged at the moment at which the least is left.
func TestUnifiedMemoryIsOnePool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := Need{
			Processes: 1, Unified: true, Memory: rapid.Int64Range(1<<30, 1<<37).Draw(t, "memory"),
			Loading: Interval{High: rapid.Int64Range(0, 1<<36).Draw(t, "loading")},
			State:   rapid.Int64Range(0, 1<<36).Draw(t, "state"),
		}
		loaded := rapid.Int64Range(0, 1<<36).Draw(t, "loaded")
		trained := loaded + rapid.Int64Range(0, 1<<36).Draw(t, "trained")
		e := n.Estimate(0, loaded, trained)
		load, train := ProcessMemory.High+n.Loading.High+loaded, ProcessMemory.High+n.State+trained
		require.Equal(t, max(load, train) > n.Memory, e.Exceeds())
		if e.Exceeds() && trained < n.Memory {
			require.Equal(t, max(load, train), n.Memory-e.Memory+e.High)
		}
	})
}

func TestPartsSumToTheEstimate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := needs().Draw(t, "need")
		e := n.Estimate(rapid.Int64Range(0, 1<<40).Draw(t, "on GPU"), 0, 0)
		var sum Interval
		for _, p := range e.Parts {
			require.LessOrEqual(t, p.Low, p.Value, p.Name)
			require.LessOrEqual(t, p.Value, p.High, p.Name)
			sum = sum.plusTimes(p.Interval, 1)
		}
		require.Equal(t, sum, e.Interval)
		require.False(t, e.ExceedsCertainly() && !e.Exceeds())
	})
}

// More processes, workers or bytes need no less, and neither moment of training needs more than the estimate says.
func TestMoreNeedsNoLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := needs().Draw(t, "need")
		before := n.Estimate(0, 0, 0).High
		more := n
		more.Processes++
		more.WorkersPerProcess++
		require.Greater(t, more.Estimate(0, 0, 0).High, before)
		require.GreaterOrEqual(t, before, n.Loading.High)
		require.GreaterOrEqual(t, before, int64(n.Processes)*(n.Weights+n.Gradients+n.State+n.Rounding+n.Pinned))
	})
}

func TestMachinesHoldAllGPUs(t *testing.T) {
	for _, want := range [][3]int{{0, 1, 1}, {1, 1, 1}, {8, 1, 8}, {9, 2, 5}, {16, 2, 8}, {20, 3, 7}} {
		machines, each := MachinesFor(want[0])
		require.Equal(t, [2]int(want[1:]), [2]int{machines, each})
	}
}
