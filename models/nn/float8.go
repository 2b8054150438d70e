package nn

import (
	"errors"
	"reflect"
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// Float8Linear is the linear layer of torchao.float8 0.17 with one scale per tensor. Inputs, weights and gradients
// are cast to 8 bits for each product; the eager cast goes through fp32.
type Float8Linear struct {
	Module
	Weight, Bias *Parameter
}

// float8Multiple is a number that must divide both sizes of a layer's weight.
const float8Multiple = 16

// ReplaceByFloat8 replaces a model's linear layers, except the excluded ones, whose sizes torch._scaled_mm accepts. It
// returns their number.
func ReplaceByFloat8(model any, excluded ...Layer) (replaced int) {
	WalkLinears(model, excluded, func(v reflect.Value, _ string) {
		l, ok := v.Interface().(*Linear)
		if ok && l.Weight.Dims[0]%float8Multiple == 0 && l.Weight.Dims[1]%float8Multiple == 0 {
			v.Set(reflect.ValueOf(&Float8Linear{Weight: l.Weight, Bias: l.Bias}))
			replaced++
		}
	})
	return replaced
}

// Widths returns the layer's input and output widths, for [Projection].
func (l *Float8Linear) Widths() (in, out int64) { return l.Weight.Dims[1], l.Weight.Dims[0] }

// AdapterType returns the dtype of adapters on the layer, for [Projection].
func (l *Float8Linear) AdapterType() trace.DType { return l.Weight.DType }

// errFloat8 is PyTorch's error on GPUs without 8-bit floats.
var errFloat8 = errors.New("RuntimeError: torch._scaled_mm is only supported on CUDA devices with compute capability " +
	">= 9.0 or 8.9; choose an Ada, Hopper or Blackwell GPU with --gpu, or leave out --set float8")

// Forward maps [..., in] to [..., out].
func (l *Float8Linear) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	if trace.GPUProperty(f.Tape(), func(gpu trace.GPU) bool { return gpu.Capability < 89 }) {
		f.Tape().Raise(errFloat8)
	}
	if d, on := f.Tape().Autocasting(); on {
		f.Set(&x, x.To(d))
	}
	y := f.Bind(f.Apply(float8Product, x, l.Weight.TensorOrNil().T())[0])
	if bias := l.Bias.TensorOrNil(); bias != nil {
		f.Set(&y, y.Add(bias.To(y.DType())))
	}
	return y
}

// float8Product records matmul_with_hp_or_float8_args for an input and a column-major weight.
var float8Product = &trace.Function{
	Name: "matmul_with_hp_or_float8_argsBackward",
	Forward: func(f *trace.Frame, ctx *trace.FunctionContext, in []*trace.Tensor) []*trace.Tensor {
		x, w := in[0], in[1]
		ctx.SaveForBackward(x, w)
		small := f.Bind(toFloat8(f, x))
		weight := f.Bind(toFloat8(f, w))
		shape := slices.Clone(x.Shape())
		rows := f.Bind(small.Reshape(-1, small.Size(-1)))
		y := float8Matmul(f, rows, weight, x.DType())
		shape[len(shape)-1] = w.Size(1)
		return []*trace.Tensor{y.Reshape(shape...)}
	},
	Backward: func(f *trace.Frame, ctx *trace.FunctionContext, grads []*trace.Tensor) []*trace.Tensor {
		x, w, grad := ctx.Saved(0), ctx.Saved(1), grads[0]
		flat := f.Bind(grad.Reshape(-1, grad.Size(-1)))
		small := f.Bind(toFloat8(f, flat))
		weight := f.Bind(toFloat8(f, w))
		ofInput := f.Bind(float8Matmul(f, small, weight.T(), grad.DType()))
		f.Set(&ofInput, ofInput.Reshape(x.Shape()...))
		inputs := f.Bind(x.Reshape(-1, x.Size(-1)))
		again := f.Bind(toFloat8(f, flat))
		input := f.Bind(toFloat8(f, inputs))
		ofWeight := f.Bind(float8Matmul(f, again.T(), input, grad.DType()))
		return []*trace.Tensor{ofInput, ofWeight.T()}
	},
}

// float8 has the size of an 8-bit float, which the recorder does not distinguish from uint8.
const float8 = trace.U8

// toFloat8 records hp_tensor_to_float8_dynamic with one scale for the tensor.
func toFloat8(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	g := f.FunctionFrame(x)
	size := g.Bind(x.Abs())
	scale := g.Bind(size.Max())
	g.Del(&size)
	g.Set(&scale, scale.To(trace.F32))
	scaled := g.Bind(x.To(trace.F32).Mul(scale))
	return g.Return(g.Bind(scaled.Clamp()).FilledLike("to_dtype", float8))
}

// float8Matmul multiplies [m, k] by [k, n]. It first copies a if it is not row-major, and b if it is not column-major.
func float8Matmul(f *trace.Frame, a, b *trace.Tensor, d trace.DType) *trace.Tensor {
	return f.Tape().ProductBySubclass(func() *trace.Tensor {
		g := f.FunctionFrame(a, b)
		if !isRowMajor(a) {
			g.Set(&a, a.Contiguous())
		}
		if isRowMajor(b) {
			g.Set(&b, b.T().Contiguous().T())
		}
		return g.Return(trace.ScaledMM(a, b, d))
	})
}

// isRowMajor reports whether x is row-major (torchao's is_row_major).
func isRowMajor(x *trace.Tensor) bool { return x.Strides()[0] > x.Strides()[1] && x.Strides()[1] == 1 }
