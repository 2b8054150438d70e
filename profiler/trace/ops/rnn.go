package ops

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// RNNMode is the kind of a recurrent layer.
type RNNMode = cudnn.RNNMode

// The recurrent layers of cuDNN.
const (
	SimpleRNN = cudnn.SimpleRNN // with tanh or ReLU
	GRU       = cudnn.GRU
	LSTM      = cudnn.LSTM
)

// RNNArgs describe a stack of recurrent layers that one cuDNN call runs.
type RNNArgs struct {
	Mode          RNNMode
	Hidden        int64
	Layers        int64
	Bidirectional bool
	BatchFirst    bool
	Training      bool
	Dropout       float64 // between layers
	// Weights holds weight_ih, weight_hh, bias_ih and bias_hh of each layer and direction, in this order.
	Weights []*tensor
}

func (a *RNNArgs) directions() int64 {
	if a.Bidirectional {
		return 2
	}
	return 1
}

// cudnnConfig returns cuDNN's description of the layers for input x.
func (a *RNNArgs) cudnnConfig(x *tensor) cudnn.RNN {
	length, batch := x.Shape()[0], x.Shape()[1]
	if a.BatchFirst {
		length, batch = batch, length
	}
	return cudnn.RNN{
		Mode: a.Mode, Element: x.DType().Size(), Length: length, Batch: batch, Inputs: x.Shape()[2], Hidden: a.Hidden,
		Layers: a.Layers, Directions: a.directions(), Training: a.Training, Dropout: a.Dropout > 0 && a.Training,
	}
}

// RNN records recurrent layers over x [length, batch, inputs], or batch first. The initial states h and c (c only for
// an LSTM) are [layers*directions, batch, hidden]. cy is nil except for an LSTM.
func RNN(x *tensor, h, c *tensor, a RNNArgs) (y, hy, cy *tensor) {
	t := x.Tape()
	call := t.Begin("_cudnn_rnn", x, h, c)
	if a.Dropout > 0 && a.Training {
		t.InitDropout()
	}
	if _, casting := t.Autocasting(); casting { // always to fp16 (_cudnn_rnn_cast_reflatten)
		if a.Weights[0].DType() == trace.F32 {
			a.Weights = flattenHalf(call, a.Weights)
		}
		for _, p := range []**tensor{&c, &h, &x} {
			if *p != nil && (*p).DType().IsFloat() && (*p).DType() != trace.F64 {
				*p = call.Bind((*p).AsType(trace.F16))
			}
		}
	}
	call.BelowAutocast()
	outs := cudnnRNN(x, h, c, &a)
	call.EndAll(outs...)
	if c == nil {
		return outs[0], outs[1], nil
	}
	return outs[0], outs[1], outs[2]
}

// flattenHalf records the copy of fp32 weights into one flat fp16 buffer, and returns views of it. Autograd tracks the
// copies.
func flattenHalf(c *call, weights []*tensor) []*tensor {
	t := c.Tape()
	flat := c.Bind(t.Zeros(trace.F16, trace.TotalNumel(weights)))
	views := make([]*tensor, len(weights))
	at := int64(0)
	for i, w := range weights {
		v := c.Bind(flat.Part(at, w.Shape()...))
		at += w.Numel()
		t.LaunchCopy(v, w)
		v.SetGradFn("CopyBackwards", inputs{w}, nil, func(b *backward) { b.Set(0, b.Grad.AsType(trace.F32)) })
		views[i] = v
	}
	return views
}

// FlattenRNNWeights records torch._cudnn_rnn_flatten_weight: the weights become views of a new buffer.
func FlattenRNNWeights(t *tape, weights []*tensor) {
	flat := t.New("_cudnn_rnn_flatten_weight", program.Weights, weights[0].DType(), trace.TotalNumel(weights)).Retain()
	at := int64(0)
	for _, w := range weights {
		t.LaunchCopy(flat, w)
		view := flat.Part(at, w.Shape()...)
		w.SetData(view)
		view.Release()
		at += w.Numel()
	}
	flat.Release()
}

// cudnnRNN records at::_cudnn_rnn; it returns y, hy and, for an LSTM, cy.
func cudnnRNN(x *tensor, h, c *tensor, a *RNNArgs) []*tensor {
	t := x.Tape()
	call := t.Begin("_cudnn_rnn", x, h, c)
	size := a.cudnnConfig(x)
	in := call.Bind(timeFirst(x, a).ContiguousUntracked())
	y := call.Bind(timeFirst(t.Alloc(x.DType(), size.Length, size.Batch, a.directions()*a.Hidden), a))
	outs := []*tensor{y, call.Bind(t.Alloc(h.DType(), h.Shape()...))}
	if c != nil {
		outs = append(outs, call.Bind(t.Alloc(c.DType(), c.Shape()...)))
	}
	work := rnnWorkspace(t, size)
	var reserve *tensor
	if a.Training {
		reserve = t.AllocWorkspace(size.Reserve()).Retain()
	}
	t.Launch(program.Matmul, 2*size.FLOPs(), outs, append([]*tensor{in, h, c, work, reserve}, a.Weights...))
	call.EndStatement() // frees the workspace, before the input's copy
	call.Drop(in)
	kept, weights := *a, len(a.Weights)
	kept.Weights = nil
	t.SetGradFn(outs, "CudnnRnnBackward0", slices.Concat(inputs{x}, a.Weights, inputs{h, c}),
		slices.Concat(saves{c, h, x}, a.Weights, saves{y, reserve, a.Weights[0]}), // the last is the flat buffer
		func(b *backward) { rnnGradients(b, &kept, size, weights) })
	reserve.Release()
	return call.EndAll(outs...)
}

// rnnWorkspace allocates the workspace of a cuDNN call for recurrent layers.
func rnnWorkspace(t *tape, r cudnn.RNN) *tensor {
	return t.AllocWorkspace(trace.GPUProperty(t, func(b trace.GPU) int64 { return r.Workspace(b.Capability) }))
}

// timeFirst swaps the first two dimensions of x if the batch comes first, without autograd.
func timeFirst(x *tensor, a *RNNArgs) *tensor {
	if !a.BatchFirst {
		return x
	}
	return x.Alias([]int64{x.Shape()[1], x.Shape()[0], x.Shape()[2]},
		[]int64{x.Strides()[1], x.Strides()[0], x.Strides()[2]}, x.Offset())
}

// rnnGradients records _cudnn_rnn_backward.
func rnnGradients(b *backward, a *RNNArgs, size cudnn.RNN, weights int) {
	t := b.Tape()
	c, h, x := b.Saved(0), b.Saved(1), b.Saved(2)
	y, reserve := b.Saved(3+weights), b.Saved(4+weights)
	if reserve == nil {
		panic("trace: backward of a recurrent layer in evaluation, which PyTorch refuses")
	}
	states := []*tensor{h}
	if c != nil {
		states = append(states, c)
	}
	incoming := append([]*tensor(nil), b.Grads...)
	if incoming[0] == nil {
		incoming[0] = b.Bind(t.Zeros(y.DType(), y.Shape()...)) // whatever the strides of y
	}
	for i, s := range states {
		if incoming[1+i] == nil {
			incoming[1+i] = b.Bind(s.ZerosLike())
		}
	}

	// _cudnn_rnn_backward_input
	in := b.Bind(timeFirst(x, a).ContiguousUntracked())
	dy := b.Bind(timeFirst(incoming[0], a).ContiguousUntracked())
	out := make([]*tensor, 1+weights+2)
	dx := b.Bind(t.Alloc(x.DType(), size.Length, size.Batch, x.Shape()[2]))
	out[0] = timeFirst(dx, a).Retain()
	for i, s := range states {
		out[1+weights+i] = b.Bind(t.Alloc(s.DType(), s.Shape()...)).Retain()
	}
	work := rnnWorkspace(t, size)
	t.Launch(program.Matmul, 2*size.FLOPs(), []*tensor{dx}, append([]*tensor{dy, y, reserve, work}, states...))
	b.EndStatement()
	b.Drop(dx)
	for i := range states {
		b.Drop(out[1+weights+i])
	}
	b.Drop(dy)
	b.Drop(in)

	for i := range weights {
		if b.Needs(1 + i) {
			rnnWeightGradients(b, a, size, out[1:1+weights])
			break
		}
	}
	for i := len(states) - 1; i >= 0; i-- {
		if b.Grads[1+i] == nil {
			b.Drop(incoming[1+i])
		}
	}
	b.SetAll(out...)
}

// rnnWeightGradients records _cudnn_rnn_backward_weight, whose results are views of one flat buffer.
func rnnWeightGradients(b *backward, a *RNNArgs, size cudnn.RNN, out []*tensor) {
	t := b.Tape()
	in := b.Bind(timeFirst(b.Saved(2), a).ContiguousUntracked())
	weights := lists.Make(len(out), func(i int) *tensor { return b.Saved(3 + i) })
	flat := b.Bind(t.Zeros(weights[0].DType(), trace.TotalNumel(weights)))
	work := rnnWorkspace(t, size)
	t.Launch(program.Matmul, 2*size.FLOPs(), []*tensor{flat}, []*tensor{in, b.Saved(3 + len(out)), work})
	b.EndStatement()
	at := int64(0)
	for i, w := range weights {
		out[i] = flat.Part(at, w.Shape()...).Retain()
		at += w.Numel()
	}
	b.Drop(flat)
	b.Drop(in)
}
