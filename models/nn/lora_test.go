package nn_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

// tower holds layers in every place where an adapter can go.
type tower struct {
	nn.Module
	First  nn.Layer
	Stack  *nn.Sequential
	Shared nn.Layer
	Head   *nn.Linear
}

func newTower() *tower {
	shared := nn.NewLinear(8, 8, true)
	return &tower{
		First:  nn.NewLinear(4, 8, true),
		Stack:  nn.NewSequential(shared, nn.NewReLU()),
		Shared: nn.NewLinear(8, 16, false),
		Head:   nn.NewLinear(16, 2, true),
	}
}

func TestAdaptersAreWhatIsTrained(t *testing.T) {
	m := newTower()
	adapted := nn.AdaptLinears(m, nn.LoRA{Rank: 2, Dropout: 0.1})
	require.Len(t, adapted, 3, "the head is no field of type Layer")

	tree := nn.NewTree(m)
	_, trainable := tree.Numel()
	require.EqualValues(t, 2*(4+8)+2*(8+8)+2*(8+16), trainable, "rank times input and output widths")
	require.Equal(t, []string{
		"first.base_layer.weight", "first.base_layer.bias", "first.lora_A.default.weight",
		"first.lora_B.default.weight",
	}, tree.Names()[:4])
	for i, p := range tree.Parameters[:2] {
		require.True(t, p.Frozen, tree.Names()[i])
	}
}

func TestLayersLeftOutStayAsTheyAre(t *testing.T) {
	m := newTower()
	first := m.First.(*nn.Linear)
	require.Len(t, nn.AdaptLinears(m, nn.LoRA{Rank: 2}, first), 2)
	require.Same(t, first, m.First)
	require.True(t, first.Weight.Frozen)
}

// The result has the type of the base layer's, under autocast the half type,
// and one gradient for each matrix of the adapter.
func TestAdaptersRunInThePrecisionOfTheirLayer(t *testing.T) {
	tape := trace.New(trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, stack.Default().Rules(),
		trace.Options{})
	base := nn.NewLinear(64, 32, true)
	model := nn.NewSequential(base)
	nn.AdaptLinears(model, nn.LoRA{Rank: 4, Dropout: 0.1})
	l := model.Layers[0].(*nn.LoRALinear)
	tree := nn.NewTree(l)
	tree.MoveToDevice(tape)
	f := tape.Frame()
	x := f.Bind(tape.New("randn", program.Batch, trace.F32, 16, 64))
	var y *trace.Tensor
	tape.Autocast(trace.F16, func() { y = f.Bind(f.Call(l, x)) })
	require.Equal(t, trace.F16, y.DType())
	require.Equal(t, []int64{16, 32}, y.Shape())
	y.Sum(false).Backward()
	require.Nil(t, base.Weight.Grad())
	require.Equal(t, []int64{4, 64}, l.LoraA.Weight.Grad().Shape())
	require.Equal(t, []int64{32, 4}, l.LoraB.Weight.Grad().Shape())
	f.End()
}

// Targets are names, or ends of paths from a dot on; a Conv1D, whose weight is
// the other way round, takes adapters like any other.
func TestTargetsAreEndsOfPaths(t *testing.T) {
	type attention struct {
		nn.Module
		QProj, VProj nn.Layer
	}
	type network struct {
		nn.Module
		SelfAttn, CrossAttn *attention
		CProj               nn.Layer
	}
	adapt := func(targets ...string) int {
		m := &network{
			SelfAttn:  &attention{QProj: nn.NewLinear(8, 4, true), VProj: nn.NewLinear(8, 4, false)},
			CrossAttn: &attention{QProj: nn.NewLinear(8, 4, true), VProj: nn.NewLinear(8, 4, true)},
			CProj:     nn.NewConv1D(4, 8),
		}
		require.Equal(t, []string{
			"self_attn.q_proj", "self_attn.v_proj", "cross_attn.q_proj", "cross_attn.v_proj",
			"c_proj",
		}, nn.LinearPaths(m))
		made := nn.AdaptLinears(m, nn.LoRA{Rank: 2, AdaptsPath: func(path string) bool {
			return targets == nil ||
				slices.ContainsFunc(targets, func(t string) bool { return nn.MatchesSuffix(path, t) })
		}})
		for _, a := range made {
			l := a.(*nn.LoRALinear)
			require.Equal(t, []int64{2, 8}, l.LoraA.Weight.Dims)
			require.Equal(t, []int64{4, 2}, l.LoraB.Weight.Dims)
		}
		return len(made)
	}
	require.Equal(t, 5, adapt())
	require.Equal(t, 2, adapt("q_proj"))
	require.Equal(t, 1, adapt("self_attn.q_proj"))
	require.Equal(t, 3, adapt("c_proj", "v_proj"))
	require.Zero(t, adapt("proj"))
}
