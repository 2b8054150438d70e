package nn_test

import (
	"strings"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

// blocks are small modules: what layers, residuals and autocast's cached weights do together, plain and checkpointed.
var blocks = map[string]func() nn.Layer{
	"resblock":         func() nn.Layer { return newResblock(relu, (*tensor).Add) },
	"resblock_inplace": func() nn.Layer { return newResblock((*tensor).ReLUInPlace, (*tensor).Add) },
	"resblock_iadd":    func() nn.Layer { return newResblock((*tensor).ReLUInPlace, (*tensor).AddInPlace) },
	"mlp":              func() nn.Layer { return newMLP() },
	"prenorm_mlp":      func() nn.Layer { return &prenorm{N: nn.NewLayerNorm(65), M: newMLP()} },
	"tied_linear":      func() nn.Layer { return &tied{L: nn.NewLinear(65, 65, true)} },
	"se_block":         func() nn.Layer { return &squeeze{A: conv(48, 12, 1, true), B: conv(12, 48, 1, true)} },
	"conv_bn_relu": func() nn.Layer {
		return nn.NewSequential(conv(33, 17, 3, false), nn.NewBatchNorm(17), nn.NewReLU())
	},
	"conv_bn_relu_inplace": func() nn.Layer {
		return nn.NewSequential(conv(33, 17, 3, false), nn.NewBatchNorm(17), nn.NewReLUInPlace())
	},
	"linear_bn_relu_linear": func() nn.Layer {
		return nn.NewSequential(nn.NewLinear(65, 33, true), nn.NewBatchNorm(33), nn.NewReLUInPlace(),
			nn.NewLinear(33, 10, true))
	},
	"linear_x3": func() nn.Layer {
		return nn.NewSequential(nn.NewLinear(65, 33, true), nn.NewLinear(33, 47, true), nn.NewLinear(47, 10, true))
	},
	"encoder_layer": func() nn.Layer {
		return nn.NewTransformerEncoderLayer(64, 4, 128, nn.TransformerOptions{Dropout: 0.1, BatchFirst: true})
	},
	"tdnn": func() nn.Layer {
		first := nn.NewConv(80, 65, nn.ConvOptions{Kernel: []int64{5}, Padding: []int64{2}})
		second := nn.NewConv(65, 65, nn.ConvOptions{Kernel: []int64{3}, Padding: []int64{2}, Dilation: []int64{2}})
		return nn.NewSequential(first, nn.NewReLU(), nn.NewBatchNorm(65), second, nn.NewReLU(), nn.NewBatchNorm(65))
	},
}

func relu(x *tensor) *tensor { return x.ReLU() }

// conv returns a 2-D convolution that keeps the size.
func conv(in, out, kernel int64, bias bool) *nn.Conv {
	return nn.NewConv(in, out, nn.ConvOptions{
		Kernel: []int64{kernel, kernel}, Padding: []int64{kernel / 2, kernel / 2},
		NoBias: !bias,
	})
}

type resblock struct {
	nn.Module
	Conv1 *nn.Conv
	N1    *nn.BatchNorm
	Conv2 *nn.Conv
	N2    *nn.BatchNorm
	act   func(*tensor) *tensor
	add   func(y, x *tensor) *tensor
}

func newResblock(act func(*tensor) *tensor, add func(y, x *tensor) *tensor) *resblock {
	return &resblock{
		Conv1: conv(33, 33, 3, false), N1: nn.NewBatchNorm(33), Conv2: conv(33, 33, 3, false),
		N2: nn.NewBatchNorm(33), act: act, add: add,
	}
}

func (b *resblock) Forward(f *trace.Frame, x *tensor) *tensor {
	y := f.Bind(b.act(f.Call(b.N1, f.Call(b.Conv1, x))))
	f.Set(&y, f.Call(b.N2, f.Call(b.Conv2, y)))
	return b.act(b.add(y, x))
}

type mlp struct {
	nn.Module
	A, B *nn.Linear
}

func newMLP() *mlp { return &mlp{A: nn.NewLinear(65, 130, true), B: nn.NewLinear(130, 65, true)} }

func (m *mlp) Forward(f *trace.Frame, x *tensor) *tensor {
	return f.Call(m.B, f.Call(m.A, x).GELU()).Dropout(0.1, true)
}

type prenorm struct {
	nn.Module
	N *nn.LayerNorm
	M *mlp
}

func (p *prenorm) Forward(f *trace.Frame, x *tensor) *tensor {
	return x.Add(f.Call(p.M, f.Call(p.N, x)))
}

type tied struct {
	nn.Module
	L *nn.Linear
}

func (m *tied) Forward(f *trace.Frame, x *tensor) *tensor {
	return f.Call(m.L, f.Call(m.L, x).ReLU())
}

type squeeze struct {
	nn.Module
	A, B *nn.Conv
}

func (s *squeeze) Forward(f *trace.Frame, x *tensor) *tensor {
	return x.Mul(f.Call(s.B, f.Call(s.A, x.Mean(true, -1, -2)).ReLU()).Sigmoid())
}

func blockOperators() map[string]opvectors.Call {
	calls := map[string]opvectors.Call{}
	for name, build := range blocks {
		calls["block_"+name] = func(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
			return []*tensor{f.Call(bind(build(), p), in[0])}
		}
		calls["checkpoint_"+name] = func(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
			return []*tensor{checkpointed(f, v, bind(build(), p), in[0])}
		}
		calls["block2_"+name] = func(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
			m := bind(build(), p)
			f.Discard(f.Call(m, in[0].Slice(0, 0, 1)))
			return []*tensor{f.Call(m, f.Call(m, in[0]))}
		}
		calls["checkpoint2_"+name] = func(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
			m := bind(build(), p)
			return []*tensor{checkpointed(f, v, m, checkpointed(f, v, m, in[0]))}
		}
	}
	return calls
}

// bind gives a module the vector's parameters.
func bind(m nn.Layer, p params) nn.Layer {
	tree := nn.NewTree(m)
	for i, name := range tree.Names() {
		tree.Parameters[i].Tensor = p[strings.TrimPrefix(name, ".")]
	}
	return m
}

func checkpointed(f *trace.Frame, v *vector, m nn.Layer, x *tensor) *tensor {
	body := func(f *trace.Frame, in []*tensor) *tensor { return f.Call(m, in[0]) }
	if v.Bool("reentrant", false) {
		return f.CheckpointReentrant(body, nil, x)
	}
	return f.Checkpoint(body, x)
}
