package nn_test

import (
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

// graph is a Python function of tensors: its frame holds its local names.
type graph func(f *trace.Frame, in []*tensor) *tensor

// graphs are small functions where gradients meet, views share and names keep.
var graphs = map[string]graph{
	"residual_relu":  func(_ *trace.Frame, in []*tensor) *tensor { return in[0].ReLU().Add(in[0]) },
	"residual_after": func(_ *trace.Frame, in []*tensor) *tensor { return in[0].Add(in[0].ReLU()) },
	"three_uses": func(_ *trace.Frame, in []*tensor) *tensor {
		x := in[0]
		return x.Sigmoid().Add(x.Tanh()).Add(x.Exp())
	},
	"residual_iadd": func(f *trace.Frame, in []*tensor) *tensor {
		y := f.Bind(in[0].GELU())
		return y.AddInPlace(in[0])
	},
	"add_twice":    func(_ *trace.Frame, in []*tensor) *tensor { return in[0].Add(in[0]).Add(in[0]) },
	"mul_then_add": func(_ *trace.Frame, in []*tensor) *tensor { return in[0].MulScalar().Add(in[0].MulScalar()) },
	"two_branch_cat": func(_ *trace.Frame, in []*tensor) *tensor {
		return trace.Cat(-1, in[0].ReLU(), in[0].Sigmoid())
	},
	"cat_with_x": func(_ *trace.Frame, in []*tensor) *tensor { return trace.Cat(-1, in[0], in[0].ReLU()) },
	"cat_three": func(_ *trace.Frame, in []*tensor) *tensor {
		return trace.Cat(-1, in[0], in[0].ReLU(), in[0].Tanh())
	},
	"split_process_cat": func(f *trace.Frame, in []*tensor) *tensor {
		parts := f.BindAll(in[0].Split(in[0].Size(-1)/3, -1))
		return trace.Cat(-1, parts[0], parts[1].ReLU(), parts[2].ReLU())
	},
	"res2net": res2net,
	"split_sum": func(f *trace.Frame, in []*tensor) *tensor {
		parts := f.BindAll(in[0].Split(in[0].Size(-1)/3, -1))
		return parts[0].AddScalar().Add(parts[1]).Add(parts[2]) // sum() begins with 0
	},
	"view_then_add": func(_ *trace.Frame, in []*tensor) *tensor {
		return in[0].View(-1).ReLU().View(in[0].Shape()...).Add(in[0])
	},
	"transpose_residual": func(_ *trace.Frame, in []*tensor) *tensor {
		return in[0].Add(in[0].T().ReLU().T())
	},
	"expand_shared": func(_ *trace.Frame, in []*tensor) *tensor {
		return in[0].Slice(-1, 0, 1).ExpandAs(in[0]).Mul(in[0])
	},
	"mean_sub":    func(_ *trace.Frame, in []*tensor) *tensor { return in[0].Sub(in[0].Mean(true, -1)) },
	"norm_by_max": func(_ *trace.Frame, in []*tensor) *tensor { return in[0].Div(in[0].AMax(true, -1)) },
	"standardize": func(_ *trace.Frame, in []*tensor) *tensor {
		x := in[0]
		return x.Sub(x.Mean(true, -1)).Div(x.Std(true, -1).AddScalar())
	},
	"attentive_pool": attentivePool,
	"swiglu":         func(_ *trace.Frame, in []*tensor) *tensor { return in[0].SiLU().Mul(in[1]) },
	"gate":           func(_ *trace.Frame, in []*tensor) *tensor { return in[0].Mul(in[1].Sigmoid()).Add(in[1]) },
	"rope":           rope,
	"layer_scale":    func(_ *trace.Frame, in []*tensor) *tensor { return in[0].Add(in[1].Mul(in[0].GELU())) },
	"pos_add":        func(_ *trace.Frame, in []*tensor) *tensor { return in[0].Add(in[1]).Dropout(0.1, true) },
	"weighted_sum": func(_ *trace.Frame, in []*tensor) *tensor {
		return trace.Stack(-1, in[0], in[1]).Mul(in[2].Softmax(0)).Sum(false, -1)
	},
	"detach_branch": func(_ *trace.Frame, in []*tensor) *tensor { return in[0].Add(in[0].ReLU().Detach()) },
	"no_grad_branch": func(f *trace.Frame, in []*tensor) *tensor {
		var y *tensor
		in[0].Tape().NoGrad(func() { y = f.Bind(in[0].GELU().Sigmoid()) })
		return in[0].Add(y)
	},
	"gradient_penalty_free": func(_ *trace.Frame, in []*tensor) *tensor {
		return in[0].Pow(2).Sum(false, 1).Sqrt().AddScalar().Pow(2).Mean(false)
	},
	"same_param_twice": func(_ *trace.Frame, in []*tensor) *tensor {
		return in[0].Matmul(in[1]).Add(in[0].Matmul(in[1]).ReLU())
	},
	"long_chain": func(f *trace.Frame, in []*tensor) *tensor {
		x := in[0]
		for range 3 {
			f.Set(&x, x.MulScalar())
			f.Set(&x, x.ReLU())
		}
		return x
	},
	"inplace_chain": func(f *trace.Frame, in []*tensor) *tensor {
		y := f.Bind(in[0].MulScalar())
		y.AddScalarInPlace()
		y.MulScalarInPlace()
		return y.ReLUInPlace()
	},
	"local_names": func(f *trace.Frame, in []*tensor) *tensor {
		a := f.Bind(in[0].MulScalar())
		b := f.Bind(a.AddScalar())
		c := f.Bind(b.ReLU())
		d := f.Bind(c.Sum(true, -1))
		return c.Add(d)
	},
}

func res2net(f *trace.Frame, in []*tensor) *tensor {
	parts := f.BindAll(in[0].Chunk(4, 1))
	out := []*tensor{parts[0]}
	loop := f.FunctionFrame() // so that the names out and y are bound in this order
	for i, x := range parts[1:] {
		out = append(out, loop.Bind(x.Add(out[i]).ReLU()))
	}
	f.BindList(out)
	f.Bind(out[3]) // y
	loop.End()
	return trace.Cat(1, out...)
}

func attentivePool(f *trace.Frame, in []*tensor) *tensor {
	x := in[0]
	w := f.Bind(in[1].Softmax(2))
	mean := x.Mul(w).Sum(false, 2)
	variance := x.Pow(2).Mul(w).Sum(false, 2).Sub(x.Mul(w).Sum(false, 2).Pow(2))
	return trace.Cat(1, mean, variance.ClampOneSided().Sqrt())
}

func rope(f *trace.Frame, in []*tensor) *tensor {
	x, half := in[0], in[0].Size(-1)/2
	rotated := func() *tensor {
		return trace.Cat(-1, x.Slice(-1, half, 2*half).Neg(), x.Slice(-1, 0, half))
	}
	return x.Mul(in[1]).Add(rotated().Mul(in[2]))
}

func graphOperators() map[string]opvectors.Call {
	calls := map[string]opvectors.Call{}
	for name, g := range graphs {
		calls["graph_"+name] = func(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
			return []*tensor{runGraph(f, g, in)}
		}
		calls["ckpt_graph_"+name] = func(f *trace.Frame, v *vector, in []*tensor, _ params) []*tensor {
			body := func(f *trace.Frame, in []*tensor) *tensor { return g(f, in) }
			if v.Bool("reentrant", false) {
				return []*tensor{f.CheckpointReentrant(body, nil, in...)}
			}
			return []*tensor{f.Checkpoint(body, in...)}
		}
	}
	return calls
}

// runGraph calls g as a Python function.
func runGraph(f *trace.Frame, g graph, in []*tensor) *tensor {
	h := f.FunctionFrame(in...)
	y := g(h, in)
	return h.Return(y)
}
