package trace_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

var hopper = trace.GPU{Name: "h200", Capability: 90, SMs: 132, ThreadsPerSM: 2048, Memory: 141 << 30}

type tensor = trace.Tensor

// named returns the operator of one tensor of that name.
func named(name string) func(*tensor) *tensor {
	return func(x *tensor) *tensor { return x.Unary(name) }
}

// unaries are operators of one tensor that keep its shape.
var unaries = map[string]func(*tensor) *tensor{
	"abs": (*tensor).Abs, "exp": (*tensor).Exp, "log": (*tensor).Log, "sqrt": (*tensor).Sqrt,
	"sin": (*tensor).Sin, "erf": named("erf"), "rsqrt": (*tensor).Rsqrt, "acosh": named("acosh"),
	"neg": (*tensor).Neg, "add_scalar": (*tensor).AddScalar,
	"rdiv_scalar": func(x *tensor) *tensor { return x.Reciprocal().MulScalar() },
	"rpow_scalar": func(x *tensor) *tensor {
		return x.NumberPow(trace.RealNumber)
	}, "square": (*tensor).Square, "clamp": (*tensor).Clamp,
	"relu": (*tensor).ReLU, "gelu": (*tensor).GELU,
	"softplus": (*tensor).Softplus, "logsigmoid": (*tensor).LogSigmoid, "round": (*tensor).Round,
	"softmax":     func(x *tensor) *tensor { return x.Softmax(-1) },
	"log_softmax": func(x *tensor) *tensor { return x.LogSoftmax(-1) },
	"normalize":   func(x *tensor) *tensor { return x.Normalize(-1) },
	"cumsum":      func(x *tensor) *tensor { return x.CumSum(-1) },
	"cumprod":     func(x *tensor) *tensor { return x.CumProd(-1) },
	"mean":        func(x *tensor) *tensor { return x.Sub(x.Mean(true, -1)) },
	"std":         func(x *tensor) *tensor { return x.Div(x.Std(true, -1)) },
	"max":         func(x *tensor) *tensor { return x.Div(x.Max()) },
	"amax":        func(x *tensor) *tensor { return x.Sub(x.AMax(true, -1)) },
	"logsumexp":   func(x *tensor) *tensor { return x.Sub(x.LogSumExp(true, -1)) },
	"prod":        func(x *tensor) *tensor { return x.Add(x.Prod(true, -1)) },
	"half":        func(x *tensor) *tensor { return x.To(trace.F16) },
	"float":       func(x *tensor) *tensor { return x.To(trace.F32) },
	"twice":       func(x *tensor) *tensor { return x.Mul(x) },
}

// binaries are operators of two tensors that broadcast.
var binaries = map[string]func(x, y *tensor) *tensor{
	"add": (*tensor).Add, "sub": (*tensor).Sub, "mul": (*tensor).Mul, "div": (*tensor).Div,
	"pow": (*tensor).PowTensor, "atan2": (*tensor).Atan2, "maximum": (*tensor).Maximum,
	"where":      func(x, y *tensor) *tensor { return trace.Where(x.GtScalar(), x, y) },
	"mse_none":   func(x, y *tensor) *tensor { return x.MSELoss(y, trace.ReduceNone) },
	"kl_div":     func(x, y *tensor) *tensor { return x.KLDiv(y, false, trace.ReduceNone) },
	"bce_logits": func(x, y *tensor) *tensor { return x.BCEWithLogits(y, nil, trace.ReduceNone) },
	"bce_pos":    func(x, y *tensor) *tensor { return x.BCEWithLogits(y, y, trace.ReduceNone) },
	"bce":        func(x, y *tensor) *tensor { return x.Add(y).Sigmoid().BCELoss(x.Add(y), trace.ReduceSum).Add(x) },
	"masked":     func(x, y *tensor) *tensor { return x.Add(y).MaskedFill(y.GtScalar()) },
}

// drawStep records a random chain of operators over leaves that all broadcast with each other, and its backward pass.
func drawStep(rt *rapid.T, tape *trace.Tape, leaves []*tensor) {
	f := tape.Frame()
	defer f.End()
	run := func() {
		values := append([]*tensor(nil), leaves...)
		pick := func(what string) *tensor { return rapid.SampledFrom(values).Draw(rt, what) }
		for range rapid.IntRange(1, 8).Draw(rt, "operators") {
			var y *tensor
			if rapid.Bool().Draw(rt, "unary") {
				op := rapid.SampledFrom(names(unaries)).Draw(rt, "op")
				y = unaries[op](pick("x"))
			} else {
				op := rapid.SampledFrom(names(binaries)).Draw(rt, "op")
				y = binaries[op](pick("x"), pick("y"))
			}
			values = append(values, f.Bind(y))
		}
		// Every leaf takes part in the loss.
		total := f.Bind(values[len(values)-1].Sum(false))
		for _, x := range leaves {
			f.Set(&total, total.Add(x.Sum(false)))
		}
		total.Backward()
	}
	switch rapid.SampledFrom([]string{"fp32", "fp16", "bf16"}).Draw(rt, "autocast") {
	case "fp16":
		tape.Autocast(trace.F16, run)
	case "bf16":
		tape.Autocast(trace.BF16, run)
	default:
		run()
	}
}

func names[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func drawLeaves(rt *rapid.T, tape *trace.Tape) []*tensor {
	rows, cols := rapid.Int64Range(1, 2000).Draw(rt, "rows"), rapid.Int64Range(1, 600).Draw(rt, "cols")
	d := rapid.SampledFrom([]trace.DType{trace.F32, trace.F16, trace.BF16}).Draw(rt, "dtype")
	var leaves []*tensor
	for range rapid.IntRange(1, 3).Draw(rt, "leaves") {
		shape := []int64{rows, cols}
		if rapid.Bool().Draw(rt, "one row") {
			shape[0] = 1
		}
		leaves = append(leaves, tape.Frame().Bind(tape.New("leaf", program.Weights, d, shape...).Leaf()))
	}
	return leaves
}

// Whatever is recorded frees what it allocates: after a step, with names and gradients gone, the leaves alone are left,
// and no kernel touched a buffer that was not there.
func TestStepLeavesNothingBehind(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		leaves := drawLeaves(rt, tape)
		before := tape.Program().LeftBytes()
		drawStep(rt, tape, leaves)
		for _, x := range leaves {
			g := x.Grad()
			require.NotNil(rt, g, "every leaf has a gradient")
			require.Equal(rt, x.Shape(), g.Shape())
			require.Equal(rt, x.DType(), g.DType())
			x.ZeroGrad()
		}
		require.NoError(rt, tape.Program().Validate())
		require.Equal(rt, before, tape.Program().LeftBytes())
	})
}

// Without gradients an operator leaves its result and nothing else.
func TestNoGradKeepsResultAlone(t *testing.T) {
	for op, f := range unaries {
		t.Run(op, func(t *testing.T) {
			tape := trace.New(hopper, rules, trace.Options{Warm: true})
			frame := tape.Frame()
			x := frame.Bind(tape.New("x", program.Weights, trace.F16, 33, 47).Leaf())
			before := tape.Program().LeftBytes()
			tape.NoGrad(func() {
				y := frame.Bind(f(x))
				if y == x { // .half() of a half tensor
					return
				}
				require.False(t, y.RequiresGrad())
				require.Equal(t, before+y.Bytes(), tape.Program().LeftBytes())
			})
		})
	}
}

// In place means in place: nothing is allocated when autograd does not look.
func TestInPlaceAllocatesNothing(t *testing.T) {
	inPlace := map[string]func(x, y *tensor) *tensor{
		"add_": (*tensor).AddInPlace, "sub_": (*tensor).SubInPlace, "mul_": (*tensor).MulInPlace,
		"div_":         (*tensor).DivInPlace,
		"relu_":        func(x, _ *tensor) *tensor { return x.ReLUInPlace() },
		"clamp_":       func(x, _ *tensor) *tensor { return x.ClampInPlace() },
		"zero_":        func(x, _ *tensor) *tensor { return x.ZeroInPlace() },
		"masked_fill_": (*tensor).MaskedFillInPlace,
		"mul_scalar_":  func(x, _ *tensor) *tensor { return x.MulScalarInPlace() },
	}
	for op, f := range inPlace {
		t.Run(op, func(t *testing.T) {
			tape := trace.New(hopper, rules, trace.Options{Warm: true})
			frame := tape.Frame()
			x, y := frame.Bind(tape.New("x", program.Batch, trace.F32, 5, 7)),
				frame.Bind(tape.New("y", program.Batch, trace.F32, 7))
			n := len(tape.Program().Buffers)
			require.Same(t, x, f(x, y))
			require.Len(t, tape.Program().Buffers, n)
		})
	}
}

// Operators of autocast's fp32 list, and operators with a dtype argument, run in fp32. Others run
// in the type of their inputs.
func TestAutocastChoosesType(t *testing.T) {
	full := []string{
		"exp", "log", "rsqrt", "square", "softplus", "rpow_scalar", "softmax", "log_softmax", "cumsum",
		"cumprod", "normalize",
	}
	kept := []string{"abs", "sqrt", "sin", "neg", "relu", "gelu", "clamp", "std", "amax", "mean"}
	for want, ops := range map[trace.DType][]string{trace.F32: full, trace.F16: kept} {
		for _, op := range ops {
			tape := trace.New(hopper, rules, trace.Options{Warm: true})
			frame := tape.Frame()
			x := frame.Bind(tape.New("x", program.Batch, trace.F16, 33, 47))
			tape.Autocast(trace.F16, func() { require.Equal(t, want, frame.Bind(unaries[op](x)).DType(), op) })
		}
	}
}

// The result of a broadcasting operator does not depend on the order of its operands, in shape and in type.
func TestBroadcastCommutes(t *testing.T) {
	dtypes := rapid.SampledFrom([]trace.DType{trace.Bool, trace.I64, trace.F16, trace.BF16, trace.F32})
	rapid.Check(t, func(rt *rapid.T) {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		f := tape.Frame()
		whole := rapid.SliceOfN(rapid.Int64Range(1, 5), 0, 4).Draw(rt, "shape")
		draw := func(name string) *tensor {
			shape := slices.Clone(whole[rapid.IntRange(0, len(whole)).Draw(rt, name+" lead"):])
			for i := range shape {
				if rapid.Bool().Draw(rt, name+" one") {
					shape[i] = 1
				}
			}
			return f.Bind(tape.New(name, program.Batch, dtypes.Draw(rt, name+" dtype"), shape...))
		}
		x, y := draw("x"), draw("y")
		a, b := f.Bind(x.Add(y)), f.Bind(y.Add(x))
		require.Equal(rt, a.Shape(), b.Shape())
		require.Equal(rt, a.DType(), b.DType())
		require.Equal(rt, a.Strides(), b.Strides())
	})
}

// BenchmarkPointwise records a chain of a hundred operators and its backward pass.
func BenchmarkPointwise(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		f := tape.Frame()
		x := f.Bind(tape.New("x", program.Weights, trace.F32, 64, 512).Leaf())
		y := f.Bind(x.MulScalar())
		for range 25 {
			f.Set(&y, y.Mul(x).GELU().Add(y).Softmax(-1))
		}
		y.Mean(false).Backward()
		f.End()
	}
}
