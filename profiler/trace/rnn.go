package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
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

// RNNArgs describe a stack of recurrent layers that cuDNN runs as one.
type RNNArgs struct {
	Mode          RNNMode
	Hidden        int64
	Layers        int64
	Bidirectional bool
	BatchFirst    bool
	Training      bool
	Dropout       float64 // between layers
	// Weights has weight_ih, weight_hh, bias_ih and bias_hh of each layer and direction in
	// turn.
	Weights []*Tensor
}

func (a *RNNArgs) directions() int64 {
	if a.Bidirectional {
		return 2
	}
	return 1
}

// of returns the layers as cuDNN sees them, run over x.
func (a *RNNArgs) of(x *Tensor) cudnn.RNN {
	length, batch := x.shape[0], x.shape[1]
	if a.BatchFirst {
		length, batch = batch, length
	}
	return cudnn.RNN{
		Mode: a.Mode, Element: x.dtype.Size(), Length: length, Batch: batch, Inputs: x.shape[2], Hidden: a.Hidden,
		Layers: a.Layers, Directions: a.directions(), Training: a.Training, Dropout: a.Dropout > 0 && a.Training,
	}
}

// RNN runs recurrent layers over x, [length, batch, inputs] or batch first,
// from the states h and, for an LSTM, c: [layers*directions, batch, hidden].
// cy is nil but for an LSTM.
func (x *Tensor) RNN(h, c *Tensor, a RNNArgs) (y, hy, cy *Tensor) {
	t := x.tape
	call := t.Begin("_cudnn_rnn", x, h, c)
	t.initDropout(&a)
	if t.casts.enabled && a.Weights[0].dtype == F32 {
		a.Weights = call.flattenHalf(a.Weights)
	}
	if _, casting := t.Autocasting(); casting { // always to fp16 (_cudnn_rnn_cast_reflatten)
		for _, p := range []**Tensor{&c, &h, &x} {
			if *p != nil && (*p).dtype.IsFloat() && (*p).dtype != F64 {
				*p = call.Let((*p).AsType(F16))
			}
		}
	}
	call.BelowAutocast()
	outs := x.cudnnRNN(h, c, &a)
	call.EndAll(outs...)
	if c == nil {
		return outs[0], outs[1], nil
	}
	return outs[0], outs[1], outs[2]
}

// dropoutStateBytes is the state of one resident thread in cuDNN's random number generator
// (cudnnDropoutGetStatesSize; measured on an RTX 3090).
const dropoutStateBytes = 24

// initDropout makes the state of cuDNN's dropout for the first layers that drop out. It stays for
// the others (get_dropout_state).
func (t *Tape) initDropout(a *RNNArgs) {
	if a.Dropout > 0 && a.Training && t.libraries.dropoutState == nil {
		t.libraries.dropoutState = t.AllocWorkspace(onGPU(t, func(b GPU) int64 {
			return int64(b.SMs*b.ThreadsPerSM) * dropoutStateBytes
		})).Retain()
	}
}

// flattenHalf copies fp32 weights into one flat fp16 buffer, whose views take
// their place; autograd follows the copies.
func (c *Call) flattenHalf(weights []*Tensor) []*Tensor {
	t := c.t
	flat := c.Let(t.Zeros(F16, totalNumel(weights)))
	views := make([]*Tensor, len(weights))
	at := int64(0)
	for i, w := range weights {
		v := c.Let(flat.Alias(w.shape, contiguousStrides(nil, w.shape), at))
		at += w.numel
		t.LaunchCopy(v, w)
		v.Derived("CopyBackwards", inputs{w}, nil, func(b *Gradients) { b.Give(0, b.Grad.AsType(F32)) })
		views[i] = v
	}
	return views
}

// FlattenRNNWeights records torch._cudnn_rnn_flatten_weight: the weights become
// views of one fresh buffer, and their own go.
func (t *Tape) FlattenRNNWeights(weights []*Tensor) {
	flat := t.New("_cudnn_rnn_flatten_weight", program.Weights, weights[0].dtype, totalNumel(weights)).Retain()
	at := int64(0)
	for _, w := range weights {
		t.LaunchCopy(flat, w)
		view := flat.Alias(w.shape, contiguousStrides(nil, w.shape), at)
		w.SetData(view)
		view.release()
		at += w.numel
	}
	flat.release()
}

// cudnnRNN records at::_cudnn_rnn; it returns y, hy and, for an LSTM, cy.
func (x *Tensor) cudnnRNN(h, c *Tensor, a *RNNArgs) []*Tensor {
	t := x.tape
	call := t.Begin("_cudnn_rnn", x, h, c)
	size := a.of(x)
	in := call.Let(x.timeFirst(a).ContiguousUntracked())
	y := call.Let(t.Alloc(x.dtype, size.Length, size.Batch, a.directions()*a.Hidden).timeFirst(a))
	outs := []*Tensor{y, call.Let(t.Alloc(h.dtype, h.shape...))}
	if c != nil {
		outs = append(outs, call.Let(t.Alloc(c.dtype, c.shape...)))
	}
	work := t.rnnWorkspace(size)
	var reserve *Tensor
	if a.Training {
		reserve = t.AllocWorkspace(size.Reserve()).Retain()
	}
	t.Launch(program.Matmul, 2*size.FLOPs(), outs, append([]*Tensor{in, h, c, work, reserve}, a.Weights...))
	call.EndStatement() // the workspace goes here, before the input's copy
	call.Drop(in)
	kept, weights := *a, len(a.Weights)
	kept.Weights = nil
	t.Derive(outs, "CudnnRnnBackward0", slices.Concat(inputs{x}, a.Weights, inputs{h, c}),
		slices.Concat(saves{c, h, x}, a.Weights, saves{y, reserve, a.Weights[0]}), // the last is the flat buffer
		func(b *Gradients) { b.rnnGradients(&kept, size, weights) })
	reserve.release()
	return call.EndAll(outs...)
}

// rnnWorkspace returns what cuDNN asks for in a pass of recurrent layers.
func (t *Tape) rnnWorkspace(r cudnn.RNN) *Tensor {
	return t.AllocWorkspace(onGPU(t, func(b GPU) int64 { return r.Workspace(b.Capability) }))
}

// timeFirst swaps the first two dimensions if the batch comes first, below
// autograd.
func (x *Tensor) timeFirst(a *RNNArgs) *Tensor {
	if !a.BatchFirst {
		return x
	}
	return x.Alias([]int64{x.shape[1], x.shape[0], x.shape[2]},
		[]int64{x.strides[1], x.strides[0], x.strides[2]}, x.offset)
}

// rnnGradients records _cudnn_rnn_backward.
func (b *Gradients) rnnGradients(a *RNNArgs, size cudnn.RNN, weights int) {
	t := b.t
	c, h, x := b.Saved(0), b.Saved(1), b.Saved(2)
	y, reserve := b.Saved(3+weights), b.Saved(4+weights)
	if reserve == nil {
		panic("trace: backward of a recurrent layer in evaluation, which PyTorch refuses")
	}
	states := []*Tensor{h}
	if c != nil {
		states = append(states, c)
	}
	incoming := append([]*Tensor(nil), b.Grads...)
	if incoming[0] == nil {
		incoming[0] = b.Let(t.Zeros(y.dtype, y.shape...)) // whatever the strides of y
	}
	for i, s := range states {
		if incoming[1+i] == nil {
			incoming[1+i] = b.Let(s.ZerosLike())
		}
	}

	// _cudnn_rnn_backward_input
	in := b.Let(x.timeFirst(a).ContiguousUntracked())
	dy := b.Let(incoming[0].timeFirst(a).ContiguousUntracked())
	out := make([]*Tensor, 1+weights+2)
	dx := b.Let(t.Alloc(x.dtype, size.Length, size.Batch, x.shape[2]))
	out[0] = dx.timeFirst(a).Retain()
	for i, s := range states {
		out[1+weights+i] = b.Let(t.Alloc(s.dtype, s.shape...)).Retain()
	}
	work := t.rnnWorkspace(size)
	t.Launch(program.Matmul, 2*size.FLOPs(), []*Tensor{dx}, append([]*Tensor{dy, y, reserve, work}, states...))
	b.EndStatement()
	b.Drop(dx)
	for i := range states {
		b.Drop(out[1+weights+i])
	}
	b.Drop(dy)
	b.Drop(in)

	if slices.ContainsFunc(b.node.next()[1:1+weights], func(e edge) bool { return e.node != nil }) {
		b.rnnWeightGradients(a, size, out[1:1+weights])
	}
	for i := len(states) - 1; i >= 0; i-- {
		if b.Grads[1+i] == nil {
			b.Drop(incoming[1+i])
		}
	}
	b.GiveAll(out...)
}

// rnnWeightGradients records _cudnn_rnn_backward_weight: one flat buffer, of which
// the gradients are views.
func (b *Gradients) rnnWeightGradients(a *RNNArgs, size cudnn.RNN, out []*Tensor) {
	t := b.t
	in := b.Let(b.Saved(2).timeFirst(a).ContiguousUntracked())
	flat := b.Let(t.Zeros(b.Saved(3).dtype, totalNumel(b.kept[3:3+len(out)])))
	work := t.rnnWorkspace(size)
	t.Launch(program.Matmul, 2*size.FLOPs(), []*Tensor{flat}, []*Tensor{in, b.Saved(3 + len(out)), work})
	b.EndStatement()
	at := int64(0)
	for i := range out {
		w := b.Saved(3 + i)
		out[i] = flat.Alias(w.shape, contiguousStrides(nil, w.shape), at).Retain()
		at += w.numel
	}
	b.Drop(flat)
	b.Drop(in)
}
