package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// rnnLayer is a recurrent stack with its weights on a tape.
type rnnLayer struct {
	tape    *trace.Tape
	x, h, c *tensor
	args    ops.RNNArgs
}

func newRNNLayer(mode ops.RNNMode, length, batch, inputs, hidden, layers int64, bidirectional bool) rnnLayer {
	t := trace.New(hopper, rules, trace.Options{Warm: true})
	directions := int64(1)
	if bidirectional {
		directions = 2
	}
	l := rnnLayer{tape: t, x: leaf(t, true, length, batch, inputs), h: leaf(t, true, layers*directions, batch, hidden)}
	gates := int64(1)
	switch mode {
	case ops.GRU:
		gates = 3
	case ops.LSTM:
		gates = 4
		l.c = leaf(t, true, layers*directions, batch, hidden)
	}
	l.args = ops.RNNArgs{Mode: mode, Hidden: hidden, Layers: layers, Bidirectional: bidirectional, Training: true}
	for range layers {
		for range directions {
			l.args.Weights = append(l.args.Weights, leaf(t, true, gates*hidden, inputs),
				leaf(t, true, gates*hidden, hidden),
				leaf(t, true, gates*hidden), leaf(t, true, gates*hidden))
		}
		inputs = directions * hidden
	}
	return l
}

// step records forward and backward of the whole output.
func (l rnnLayer) step() {
	f := l.tape.Frame()
	y, hy, cy := ops.RNN(l.x, l.h, l.c, l.args)
	f.Bind(y)
	f.Bind(hy)
	if cy != nil {
		f.Bind(cy)
	}
	y.Sum(false).Backward()
	f.End()
}

func drawRNN(rt *rapid.T) rnnLayer {
	size := func(what string) int64 { return rapid.Int64Range(1, 40).Draw(rt, what) }
	return newRNNLayer(rapid.SampledFrom([]ops.RNNMode{ops.SimpleRNN, ops.GRU, ops.LSTM}).Draw(rt, "mode"),
		size("length"), size("batch"), size("inputs"), size("hidden"), rapid.Int64Range(1, 3).Draw(rt, "layers"),
		rapid.Bool().Draw(rt, "bidirectional"))
}

// After a step the leaves and their gradients are left; all weight gradients are views of one buffer.
func TestRecurrentStepLeavesNothingBehind(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawRNN(rt)
		before := l.tape.Program().LeftBytes()
		if rapid.Bool().Draw(rt, "autocast") {
			l.tape.Autocast(trace.F16, l.step)
		} else {
			l.step()
			for _, w := range l.args.Weights {
				require.True(rt, w.Grad().SharesStorage(l.args.Weights[0].Grad()))
			}
		}
		for _, x := range append([]*tensor{l.x, l.h, l.c}, l.args.Weights...) {
			if x != nil {
				require.Equal(rt, x.Shape(), x.Grad().Shape())
				x.ZeroGrad()
			}
		}
		require.NoError(rt, l.tape.Program().Validate())
		require.Equal(rt, before, l.tape.Program().LeftBytes())
	})
}

// A longer sequence never needs less, and what training keeps for backward is freed by it.
func TestRecurrentWorkspaceGrowsWithTheLength(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawRNN(rt)
		length := l.x.Size(0)
		longer := newRNNLayer(l.args.Mode, length+1, l.x.Size(1), l.x.Size(2), l.args.Hidden, l.args.Layers,
			l.args.Bidirectional)
		l.step()
		longer.step()
		require.Less(rt, allocated(l.tape.Program()), allocated(longer.tape.Program()))
	})
}

// flatten_parameters: one buffer of all weights takes the place of theirs.
func TestFlatWeightsShareOneBuffer(t *testing.T) {
	l := newRNNLayer(ops.LSTM, 10, 4, 8, 16, 2, true)
	before := l.tape.Program().LeftBytes()
	ops.FlattenRNNWeights(l.tape, l.args.Weights)
	require.Equal(t, before, l.tape.Program().LeftBytes())
	for _, w := range l.args.Weights {
		require.True(t, w.SharesStorage(l.args.Weights[0]))
	}
	buffers := l.tape.Program().Buffers
	require.Equal(t, program.Weights, buffers[len(buffers)-1].Class)
}
