package trace

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// BatchNormState holds a batch norm layer's affine parameters and running statistics; nil where it has none.
type BatchNormState struct {
	Weight, Bias, Mean, Var *Tensor
	// Training reports whether the statistics are computed from the batch.
	Training bool
}

// Limits of cuDNN's batch norm (_select_batch_norm_backend of ATen/native/Normalization.cpp).
const (
	cudnnBatchNormMaxTraining = 880801
	cudnnBatchNormMaxEval     = 65535
	cudnnBatchNormMaxElements = 1<<31 - 1
)

// cudnn reports whether cuDNN runs the batch norm of x; otherwise PyTorch's own kernels do.
func (s *BatchNormState) cudnn(x *Tensor) bool {
	if s.Weight == nil || s.Bias == nil || x.dtype == BF16 || s.Weight.dtype.IsHalf() || len(x.shape) < 3 {
		return false
	}
	stats := s.Mean != nil && s.Var != nil
	if !stats && !s.Training {
		return false
	}
	limit := int64(cudnnBatchNormMaxEval)
	if s.Training {
		limit = cudnnBatchNormMaxTraining
	}
	return x.shape[0] <= limit && x.numel < cudnnBatchNormMaxElements
}

// BatchNorm records torch.nn.functional.batch_norm(x, ...).
func (x *Tensor) BatchNorm(s BatchNormState) *Tensor {
	c := x.tape.Begin("batch_norm", x, s.Weight, s.Bias)
	if s.cudnn(x) {
		in := x.inSuggestedFormat()
		return c.End(in.cudnnBatchNorm(s))
	}
	return c.End(x.nativeBatchNorm(s))
}

// inSuggestedFormat records x.contiguous(x.suggest_memory_format()).
func (x *Tensor) inSuggestedFormat() *Tensor {
	if x.SuggestsChannelsLast() {
		return x.contiguousChannelsLast()
	}
	return x.AsContiguous()
}

// cudnnBatchNorm records a batch norm by cuDNN. In training it saves mean and inverse deviation for backward. In
// evaluation, its backward is the native one.
func (x *Tensor) cudnnBatchNorm(s BatchNormState) *Tensor {
	c := x.tape.Begin("cudnn_batch_norm", x, s.Weight, s.Bias)
	channels := x.shape[1]
	last := x.SuggestsChannelsLast()
	y := c.Bind(c.t.AllocIn(x.dtype, x.shape, last))
	var mean, invstd *Tensor
	if s.Training {
		mean = c.Bind(c.t.Alloc(s.Weight.dtype, channels))
		invstd = c.Bind(c.t.Alloc(s.Weight.dtype, channels))
		if last {
			out := c.t.Begin("cudnn_batch_norm_out")
			c.t.AllocWorkspace(x.channelsLastNorm().Forward())
			out.Finish()
		}
	}
	c.t.launchNormOf(x.byChannel(), y, normFLOPs, x, s.Weight, s.Bias)
	y.SetGradFn("CudnnBatchNormBackward0", inputs{x, s.Weight, s.Bias}, saves{x, s.Weight, s.Mean, s.Var, mean, invstd},
		batchNormBackward(s, s.Training))
	c.DropAll(mean, invstd)
	return c.End(y)
}

// nativeBatchNorm records native_batch_norm of ATen/native/cuda/Normalization.cu.
func (x *Tensor) nativeBatchNorm(s BatchNormState) *Tensor {
	c := x.tape.Begin("batch_norm_cuda", x, s.Weight, s.Bias)
	channels, acc := x.shape[1], x.dtype.accumulate()
	y := c.Bind(x.AllocLike(x.dtype))
	mean := c.Bind(c.t.Alloc(acc, channels))
	invstd := c.Bind(c.t.Alloc(acc, channels))
	if s.Training && x.batchNormLayout() == normChannelsLast {
		x.channelsLastStaging(4)
	}
	c.t.launchNormOf(x.byChannel(), y, normFLOPs, x, s.Weight, s.Bias)
	y.SetGradFn("NativeBatchNormBackward0", inputs{x, s.Weight, s.Bias},
		saves{x, s.Weight, s.Mean, s.Var, mean, invstd}, batchNormBackward(s, false))
	c.DropAll(mean, invstd)
	return c.End(y)
}

// batchNormBackward returns the backward of both kinds of batch norm. The node has saved input, weight, running mean
// and variance, mean and inverse deviation.
func batchNormBackward(s BatchNormState, cudnn bool) func(*Gradients) {
	training := s.Training
	return func(b *Gradients) {
		if cudnn {
			b.SetAll(b.cudnnBatchNormBackward()...)
			return
		}
		b.SetAll(b.nativeBatchNormBackward(training)...)
	}
}

// channelsLastNorm returns the parameters of x's batch norm for cuDNN's workspace rules.
func (x *Tensor) channelsLastNorm() cudnn.BatchNorm {
	channels := x.shape[1]
	return cudnn.BatchNorm{Channels: channels, Rows: x.numel / max(channels, 1), Half: x.dtype.IsHalf()}
}

// cudnnBatchNormBackward records all three gradients, needed or not.
func (b *Gradients) cudnnBatchNormBackward() []*Tensor {
	t, x, w := b.t, b.Saved(0), b.Saved(1)
	last := x.SuggestsChannelsLast()
	g := b.Grad.ContiguousIn(last)
	c := t.Begin("cudnn_batch_norm_backward", g)
	gx := t.AllocIn(x.dtype, x.shape, last).Retain()
	gw := t.Alloc(w.dtype, w.shape...).Retain()
	gb := t.Alloc(w.dtype, w.shape...).Retain()
	if last {
		t.AllocWorkspace(x.channelsLastNorm().Backward())
	}
	t.launchNormOf(x.byChannel(), gx, normBackwardFLOPs, g, x)
	c.Finish()
	return []*Tensor{gx, gw, gb}
}

func (b *Gradients) nativeBatchNormBackward(training bool) []*Tensor {
	t, x, w := b.t, b.Saved(0), b.Saved(1)
	g := b.Grad
	c := t.Begin("native_batch_norm_backward", g)
	needX, needW, needB := b.Needs(0), b.Needs(1), b.Needs(2)
	reduce := training || needW || needB
	channels, acc := x.shape[1], x.dtype.accumulate()
	var out [3]*Tensor
	if reduce && needX && !x.normChannelsLastKernels() {
		// One kernel reduces and multiplies (batch_norm_backward_cuda_template).
		x.ContiguousUntracked()
		g.ContiguousUntracked()
		out[0] = t.Alloc(x.dtype, x.shape...).Retain()
		if needW {
			out[1] = t.Alloc(w.dtype, channels).Retain()
		}
		if needB {
			out[2] = t.Alloc(b.input(2).dtype, channels).Retain()
		}
		t.launchNormOf(x.byChannel(), out[0], normBackwardFLOPs, g, x)
		c.Finish()
		return out[:]
	}
	if b.Saved(4) == nil {
		// In evaluation cuDNN saves no statistics.
		if reduce && b.Saved(2).dtype != acc {
			c.Bind(b.Saved(2).AsType(acc))
		}
		c.Bind(t.Alloc(acc, channels))
	}
	if reduce {
		out[1], out[2] = b.batchNormReduce(c, g)
	}
	if needX {
		if training && x.batchNormLayout() == normChannelsLast {
			out[0] = x.AllocLike(x.dtype).Retain()
		} else {
			out[0] = t.Alloc(x.dtype, x.shape...).Retain()
			if training && w == nil {
				t.Alloc(acc)
			}
		}
		t.launchNorm(out[0], batchNormElementwiseBackwardFLOPs, g, x)
	}
	c.Finish()
	return out[:]
}

// batchNormReduce records batch_norm_backward_reduce_cuda. The sums over all dimensions but the channels become locals
// of c. The gradients of weight and bias are returned; the caller owns them.
func (b *Gradients) batchNormReduce(c *Call, g *Tensor) (gw, gb *Tensor) {
	t, x := c.t, b.Saved(0)
	channels, acc := x.shape[1], x.dtype.accumulate()
	lastKernels := x.normChannelsLastKernels() && g.normChannelsLastKernels()
	weighted := b.Saved(1) != nil
	if lastKernels || b.Needs(0) {
		c.Bind(t.Alloc(acc, channels))
		c.Bind(t.Alloc(acc, channels))
	}
	if b.Needs(1) || lastKernels && weighted {
		gw = t.Alloc(b.Saved(1).dtype, channels).Retain()
	}
	switch {
	case b.Needs(2):
		gb = t.Alloc(b.input(2).dtype, channels).Retain()
	case lastKernels && weighted:
		gb = t.Alloc(b.Saved(1).dtype, channels).Retain()
	}
	if lastKernels {
		x.channelsLastStaging(2)
	}
	return gw, gb
}

// normLayout is the kernel family of batch norm's forward.
type normLayout uint8

const (
	normContiguous normLayout = iota
	normChannelsLast
	normGeneral
)

// batchNormLayout implements batch_norm_choose_impl.
func (x *Tensor) batchNormLayout() normLayout {
	switch {
	case x.IsContiguous() && x.strides[1] != 1:
		return normContiguous
	case x.IsContiguous(), x.isChannelsLast():
		return normChannelsLast
	default:
		return normGeneral
	}
}

// normChannelsLastKernels implements batch_norm_use_channels_last_kernels.
func (x *Tensor) normChannelsLastKernels() bool {
	return x.isChannelsLast() || (x.IsContiguous() && x.strides[1] == 1)
}

// channelsLastStaging records the temporary buffers of the channels-last reductions: the given number of floats per
// channel and block, and a counter per column of blocks (flexible_launch_configs).
func (x *Tensor) channelsLastStaging(floats int64) {
	const (
		tileWidth        = 32
		elementsPerBlock = 16 // of one thread
		maxThreads       = 512
		maxRows          = 128
		minRows          = 8 // below, one block per column is better
	)
	channels := x.shape[1]
	rows := x.numel / max(channels, 1)
	width := min(lastPow2(channels), tileWidth)
	height := min(lastPow2(ceil.Div(rows, elementsPerBlock)), maxThreads/width)
	if width*height != maxThreads {
		width = min(lastPow2(channels), maxThreads/height)
	}
	grid := min(ceil.Div(rows, height*elementsPerBlock), maxRows)
	if grid < minRows {
		return
	}
	c := x.tape.Begin("batch_norm_channels_last", x)
	c.Bind(c.t.Alloc(F32, floats*channels*grid))
	c.Bind(c.t.Alloc(I32, ceil.Div(channels, width)))
	c.Finish()
}

// InstanceNorm records torch.nn.functional.instance_norm of x [N, C, ...]: a batch norm of one sample with N*C
// channels. Weight and bias may be nil. Running statistics are not supported: by default, layers have none.
func (x *Tensor) InstanceNorm(s BatchNormState) *Tensor {
	c := x.tape.Begin("instance_norm", x, s.Weight, s.Bias)
	n := x.shape[0]
	shape := append([]int64{1, n * x.shape[1]}, x.shape[2:]...)
	mean, variance := s.Mean, s.Var
	for _, p := range []**Tensor{&s.Weight, &s.Bias, &s.Mean, &s.Var} {
		if *p != nil {
			*p = c.Bind((*p).Repeat(n))
		}
	}
	in := c.Bind(x.AsContiguous().View(shape...))
	y := c.Bind(in.BatchNorm(s))
	for _, running := range []*Tensor{mean, variance} {
		if running != nil && s.Training { // the mean over the samples is copied back
			c.Drop(c.Bind(x.tape.Alloc(running.dtype, running.shape...)))
		}
	}
	return c.End(y.View(x.shape...))
}
