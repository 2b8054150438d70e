package nn

import (
	"fmt"
	"strings"

	"github.com/vprof/vprof/profiler/trace"
)

// Layer is a module whose forward has one input and one output tensor.
type Layer = trace.Module

// Linear is torch.nn.Linear.
type Linear struct {
	Module
	Weight, Bias *Parameter
}

// NewLinear returns torch.nn.Linear(in, out, bias).
func NewLinear(in, out int64, bias bool) *Linear {
	l := &Linear{Weight: NewParameter(out, in)}
	if bias {
		l.Bias = NewParameter(out)
	}
	return l
}

// Forward maps [..., in] to [..., out].
func (l *Linear) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return x.Linear(l.Weight.TensorOrNil(), l.Bias.TensorOrNil())
}

// Conv is torch.nn.Conv1d, Conv2d or Conv3d, depending on the number of kernel dimensions.
type Conv struct {
	Module
	Weight, Bias *Parameter
	args         trace.ConvArgs
}

// ConvOptions are the arguments of a convolution layer besides the numbers of channels.
type ConvOptions struct {
	Kernel []int64
	Stride []int64
	// Padding holds one number per dimension. Same is padding="same".
	Padding  []int64
	Same     bool
	Dilation []int64
	Groups   int64
	NoBias   bool
}

// NewConv returns a convolution from in to out channels.
func NewConv(in, out int64, o ConvOptions) *Conv {
	c := newConv(out, in, out, o)
	c.args.Same = o.Same
	return c
}

// NewConvTranspose returns torch.nn.ConvTranspose1d, 2d or 3d.
func NewConvTranspose(in, out int64, o ConvOptions) *Conv {
	c := newConv(in, out, out, o)
	c.args.Transposed = true
	return c
}

// newConv returns a convolution with a weight [first, second/groups, kernel...] and a bias [out].
func newConv(first, second, out int64, o ConvOptions) *Conv {
	groups := max(o.Groups, 1)
	c := &Conv{
		Weight: NewParameter(append([]int64{first, second / groups}, o.Kernel...)...),
		args:   trace.ConvArgs{Stride: o.Stride, Padding: o.Padding, Dilation: o.Dilation, Groups: groups},
	}
	if !o.NoBias {
		c.Bias = NewParameter(out)
	}
	return c
}

// Args returns the convolution's stride, padding, dilation and groups.
func (c *Conv) Args() trace.ConvArgs { return c.args }

// Forward maps [N, in, ...] to [N, out, ...].
func (c *Conv) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return x.Conv(c.Weight.TensorOrNil(), c.Bias.TensorOrNil(), c.args)
}

// BatchNorm is torch.nn.BatchNorm1d, BatchNorm2d or BatchNorm3d.
type BatchNorm struct {
	Module
	Weight, Bias            *Parameter
	RunningMean, RunningVar *Buffer
	NumBatchesTracked       *Buffer
}

// NewBatchNorm returns an affine layer that tracks running statistics.
func NewBatchNorm(channels int64) *BatchNorm {
	return &BatchNorm{
		Weight: NewParameter(channels), Bias: NewParameter(channels),
		RunningMean: NewBuffer(trace.F32, channels), RunningVar: NewBuffer(trace.F32, channels),
		NumBatchesTracked: NewBuffer(trace.I64),
	}
}

// Forward normalizes each channel of [N, channels, ...]. In training, one value per channel is an error.
func (b *BatchNorm) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor {
	if b.Training() && x.Numel() == x.Size(1) {
		x.Tape().Raise(fmt.Errorf("ValueError: Expected more than 1 value per channel when training, got input size "+
			"torch.Size(%s) in layer %s", strings.ReplaceAll(fmt.Sprint(x.Shape()), " ", ", "), b.path.Name))
	}
	return x.BatchNorm(trace.BatchNormState{
		Weight: b.Weight.TensorOrNil(), Bias: b.Bias.TensorOrNil(), Mean: b.RunningMean.TensorOrNil(),
		Var: b.RunningVar.TensorOrNil(), Training: b.Training(),
	})
}

// LayerNorm is torch.nn.LayerNorm.
type LayerNorm struct {
	Module
	Weight, Bias *Parameter
	dims         int
}

// NewLayerNorm returns a norm over the last len(shape) dimensions.
func NewLayerNorm(shape ...int64) *LayerNorm {
	return &LayerNorm{Weight: NewParameter(shape...), Bias: NewParameter(shape...), dims: len(shape)}
}

// Forward normalizes x and keeps its shape.
func (l *LayerNorm) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return x.LayerNorm(l.dims, l.Weight.TensorOrNil(), l.Bias.TensorOrNil())
}

// GroupNorm is torch.nn.GroupNorm.
type GroupNorm struct {
	Module
	Weight, Bias *Parameter
	groups       int64
}

// NewGroupNorm returns torch.nn.GroupNorm(groups, channels).
func NewGroupNorm(groups, channels int64) *GroupNorm {
	return &GroupNorm{Weight: NewParameter(channels), Bias: NewParameter(channels), groups: groups}
}

// Forward normalizes [N, channels, ...] and keeps its shape.
func (l *GroupNorm) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return x.GroupNorm(l.groups, l.Weight.TensorOrNil(), l.Bias.TensorOrNil())
}

// FuncLayer is a layer that applies a function and has no parameters.
type FuncLayer struct {
	Module
	apply func(x *trace.Tensor) *trace.Tensor
}

// Forward applies the function.
func (l *FuncLayer) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor { return l.apply(x) }

// NewFunc returns a layer that applies an operator.
func NewFunc(apply func(x *trace.Tensor) *trace.Tensor) *FuncLayer { return &FuncLayer{apply: apply} }

// NewSiLU returns torch.nn.SiLU.
func NewSiLU() *FuncLayer { return NewFunc((*trace.Tensor).SiLU) }

// NewGELU returns torch.nn.GELU.
func NewGELU() *FuncLayer { return NewFunc((*trace.Tensor).GELU) }

// NewReLU returns torch.nn.ReLU.
func NewReLU() *FuncLayer { return NewFunc((*trace.Tensor).ReLU) }

// NewReLUInPlace returns torch.nn.ReLU(inplace=True).
func NewReLUInPlace() *FuncLayer { return NewFunc((*trace.Tensor).ReLUInPlace) }

// NewIdentity returns torch.nn.Identity.
func NewIdentity() *FuncLayer { return NewFunc(func(x *trace.Tensor) *trace.Tensor { return x }) }

// Sequential is torch.nn.Sequential.
type Sequential struct {
	Module
	Layers []Layer `torch:""`
}

// NewSequential returns torch.nn.Sequential of the layers.
func NewSequential(layers ...Layer) *Sequential { return &Sequential{Layers: layers} }

// Forward calls the layers in order; like PyTorch's loop, it drops each input when it has the output.
func (s *Sequential) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	for _, l := range s.Layers {
		f.Set(&x, f.Call(l, x))
	}
	return x
}

// Dropout is torch.nn.Dropout.
type Dropout struct {
	Module
	p float64
}

// NewDropout returns torch.nn.Dropout(p).
func NewDropout(p float64) *Dropout { return &Dropout{p: p} }

// Forward zeroes random elements in training and keeps the shape.
func (d *Dropout) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return x.Dropout(d.p, d.Training())
}

// Embedding is torch.nn.Embedding.
type Embedding struct {
	Module
	Weight *Parameter
	// EmbedScale is multiplied with the looked-up rows, as in Gemma's ScaledWordEmbedding; nil if there is no scale.
	EmbedScale   *Buffer
	requireGrads bool
}

// NewEmbedding returns torch.nn.Embedding(n, width).
func NewEmbedding(n, width int64) *Embedding {
	e := &Embedding{Weight: NewParameter(n, width)}
	e.Weight.IsEmbedding = true
	return e
}

// RequireGrads makes the results require gradients although the table is frozen, as the forward hook of transformers'
// enable_input_require_grads() does.
func (e *Embedding) RequireGrads() { e.requireGrads = true }

// Forward maps indices [...] to rows [..., width].
func (e *Embedding) Forward(_ *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return e.Lookup(x, e.Weight.TensorOrNil())
}

// Lookup maps indices to rows of the given table instead of the layer's own. It applies EmbedScale and
// [Embedding.RequireGrads].
func (e *Embedding) Lookup(x, table *trace.Tensor) *trace.Tensor {
	y := x.Embedding(table)
	if e.EmbedScale != nil {
		y = y.Mul(e.EmbedScale.To(e.Weight.DType))
	}
	y.RequireGrad(e.requireGrads)
	return y
}

// CallCheckpointed calls a module, under torch.utils.checkpoint if checkpointing is set.
func CallCheckpointed(f *trace.Frame, m trace.Module, x *trace.Tensor, checkpointing bool) *trace.Tensor {
	if !checkpointing {
		return f.Call(m, x)
	}
	return f.Checkpoint(func(g *trace.Frame, in []*trace.Tensor) *trace.Tensor { return g.Call(m, in[0]) }, x)
}
