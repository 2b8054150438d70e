package pt2

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// What modules keep is found by the names of values, in whichever graph they are made.
func TestKeptValuesAreNamed(t *testing.T) {
	p := &export.Program{
		Names:  []string{"x", "sin", "cos", "cos"},
		Inputs: []export.Input{{Value: 0}},
		Nodes: []export.Node{
			{Outputs: []export.Argument{{Kind: export.Ref, Ref: 1}}},
			{Outputs: []export.Argument{{Kind: export.Ref, Ref: 2}}},
		},
		Extra: &export.Extra{
			Replaced: []export.Death{
				{Node: 3, Values: []string{"cos"}},
				{Node: 5, Values: []string{"2/sin", "unknown"}},
			},
			State: []export.State{{Input: "x", Value: "9/cos", Half: true}, {Input: "unknown", Value: "sin"}},
		},
	}
	require.Equal(t, []keptState{{value: 2, until: 3, half: true}, {value: 1, until: 5, input: -1}},
		findKeptStates(p, p))
	require.Empty(t, findKeptStates(&export.Program{}, p))
}

// What forward puts in the place of buffers and other attributes has the size of the batch, and goes when the next
// forward replaces it; of what was detached the memory stays alone. The first forward does more, and what it makes
// stays. The bytes are what PyTorch 2.15 requested in the first and third step of testdata/own-memory.py.
func TestWhatForwardKeepsFollowsTheBatch(t *testing.T) {
	for _, c := range []struct {
		batch                int
		amp                  models.Autocast
		first, peak, atItEnd int64
	}{
		{64, "", 8989224, 8837804, 231036},
		{64, "bf16", 8989224, 8781700, 214652},
		{500, "", 18898632, 9953964, 1012348},
		{500, "bf16", 18898632, 9739156, 884348},
	} {
		m, err := Source(nil).Open("testdata/own-memory.pt2")
		require.NoError(t, err)
		gpu := trace.GPU{Name: "rtx-3090", Capability: 86, SMs: 82, ThreadsPerSM: 1536, Memory: 24 << 30}
		trained := models.Case{Batch: c.batch, AMP: c.amp, Optimizer: "adamw", Torch: "2.15"}
		r, err := m.Record(trained, gpu, models.Options{})
		require.NoError(t, err)
		var peak, end int64
		var peaks []int64
		for in, now := range r.Program.Live() {
			peak = max(peak, now)
			if in.Kind == program.MarkPhase && r.Program.Phases[in.Arg].Name == "step_end" {
				peaks, peak, end = append(peaks, peak), 0, now
			}
		}
		require.Equal(t, c.first, peaks[0])
		require.Equal(t, c.peak, peaks[len(peaks)-1])
		require.Equal(t, c.atItEnd, end)
	}
}
