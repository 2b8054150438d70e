package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

// layer is a function of [rows, 8] to the same shape, with weights [8, 8] at hand.
type layer func(f *trace.Frame, x *tensor, weights []*tensor) *tensor

// layers are what blocks are made of: operators that save inputs, outputs, masks, views and nothing.
var layers = []layer{
	func(_ *trace.Frame, x *tensor, w []*tensor) *tensor { return x.Linear(w[0], nil) },
	func(_ *trace.Frame, x *tensor, w []*tensor) *tensor { return x.Matmul(w[1]) },
	func(_ *trace.Frame, x *tensor, _ []*tensor) *tensor { return x.ReLU() },
	gelu: func(_ *trace.Frame, x *tensor, _ []*tensor) *tensor { return x.GELU() },
	func(_ *trace.Frame, x *tensor, w []*tensor) *tensor {
		return x.T().Unsqueeze(0).Conv(w[0].Unsqueeze(2), nil, trace.ConvArgs{}).Squeeze(0).T()
	},
	func(_ *trace.Frame, x *tensor, _ []*tensor) *tensor { return x.LayerNorm(1, nil, nil) },
	func(_ *trace.Frame, x *tensor, _ []*tensor) *tensor { return x.Dropout(0.5, true) },
	func(_ *trace.Frame, x *tensor, _ []*tensor) *tensor { return x.Add(x.Sigmoid()) },
	func(_ *trace.Frame, x *tensor, _ []*tensor) *tensor { return x.MulScalar() },
	func(_ *trace.Frame, x *tensor, _ []*tensor) *tensor { return x.Softmax(-1) },
	func(f *trace.Frame, x *tensor, _ []*tensor) *tensor {
		y := f.Bind(x.Tanh())
		return trace.Cat(1, y.Slice(1, 0, 4), y.Slice(1, 4, 8).ReLU())
	},
	func(f *trace.Frame, x *tensor, _ []*tensor) *tensor {
		y := f.Bind(x.MulScalar())
		return y.ReLUInPlace()
	},
}

const gelu = 3

// block is a part of a network: indices of layers, and how it is checkpointed.
type block struct {
	Layers []int
	How    int // 0 plain, 1 checkpointed, 2 reentrant, 3 a checkpoint in a checkpoint
}

func (b block) run(f *trace.Frame, x *tensor, w []*tensor, how int) *tensor {
	body := func(f *trace.Frame, in []*tensor) *tensor {
		y := in[0]
		for i, k := range b.Layers {
			z := layers[k](f, y, w)
			if i == 0 {
				y = f.Bind(z)
			} else {
				f.Set(&y, z)
			}
		}
		return y
	}
	switch how {
	case 1:
		return f.Checkpoint(body, x)
	case 2:
		return f.CheckpointReentrant(body, nil, x)
	case 3:
		return f.Checkpoint(func(f *trace.Frame, in []*tensor) *tensor {
			return f.Checkpoint(body, in[0]).GELU()
		}, x)
	default:
		g := f.CallFrame(x)
		y := body(g, []*tensor{x})
		return g.Return(y)
	}
}

// train runs one step over blocks and returns the recording, what lives at
// the end of forward and what lives after the step.
func train(t require.TestingT, blocks []block, amp, checkpointing bool) (p *program.Program, kept, left int64) {
	tape := trace.New(opvectors.GPUs["rtx-5060-ti"], rules, trace.Options{Warm: true})
	held := tape.Frame()
	var w []*tensor
	for range 2 {
		w = append(w, held.Bind(tape.New("parameter", program.Weights, trace.F32, 8, 8)).Leaf())
	}
	f := tape.Frame()
	x := f.Bind(tape.New("batch", program.Batch, trace.F32, 64, 8).Leaf())
	run := func() {
		for _, b := range blocks {
			how := b.How
			if !checkpointing {
				how = 0
			}
			y := b.run(f, x, w, how)
			if b.How == 3 && !checkpointing {
				y = y.GELU()
			}
			f.Set(&x, y)
		}
	}
	if amp {
		tape.Autocast(trace.BF16, run)
	} else {
		run()
	}
	kept = tape.Program().LeftBytes()
	f.Bind(x.Sum(false).To(trace.F32)).Backward()
	f.End()
	require.NoError(t, tape.Program().Validate())
	return tape.Program(), kept, tape.Program().LeftBytes()
}

// TestCheckpointedStepEndsAsThePlainOne compares what is left after a step:
// parameters and their gradients, and nothing of what was run again.
func TestCheckpointedStepEndsAsThePlainOne(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		blocks := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) block {
			return block{
				Layers: rapid.SliceOfN(rapid.IntRange(0, len(layers)-1), 1, 5).Draw(rt, "layers"),
				How:    rapid.IntRange(0, 3).Draw(rt, "how"),
			}
		}), 1, 4).Draw(rt, "blocks")
		amp := rapid.Bool().Draw(rt, "amp")
		_, _, plain := train(rt, blocks, amp, false)
		_, _, checkpointed := train(rt, blocks, amp, true)
		require.Equal(rt, plain, checkpointed)
	})
}

// TestCheckpointKeepsInputsAlone counts what forward leaves of a chain of five
// GELUs of 2,048 bytes: its input and output.
func TestCheckpointKeepsInputsAlone(t *testing.T) {
	chain := []block{{Layers: []int{gelu, gelu, gelu, gelu, gelu}, How: 1}}
	_, plain, _ := train(t, chain, false, false)
	_, kept, _ := train(t, chain, false, true)
	const weights, activation = 2 * 256, 2048
	require.EqualValues(t, weights+6*activation, plain)
	require.EqualValues(t, weights+2*activation, kept)
}

// TestRecomputationStopsWhenAllIsSaved counts GELUs: of three in a checkpoint
// two run again, since the third keeps its input alone; reentrant ones all do.
func TestRecomputationStopsWhenAllIsSaved(t *testing.T) {
	for how, want := range []int{3, 5, 6} {
		p, _, _ := train(t, []block{{Layers: []int{gelu, gelu, gelu}, How: how}}, false, true)
		n := 0
		for _, b := range p.Buffers {
			if p.Sites[b.Site].Native == "gelu" {
				n++
			}
		}
		require.Equal(t, want, n, "way %d of checkpointing", how)
	}
}
