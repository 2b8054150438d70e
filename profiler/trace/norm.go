package trace

import "github.com/vprof/vprof/profiler/program"

func (t *Tape) launchNorm(y *Tensor, flops int64, ins ...*Tensor) {
	t.launch(program.Op{Work: program.Normalization, FLOPs: flops * y.numel}, []*Tensor{y}, ins)
}

// BatchNormState is what a batch norm layer brings: affine parameters and
// running statistics, nil where it has none.
type BatchNormState struct {
	Weight, Bias, Mean, Var *Tensor
	Training                bool
}

// BatchNorm is torch.nn.functional.batch_norm(x, ...). fp32 and fp16 inputs in
// training go to cuDNN, bf16 to the native kernel.
func (x *Tensor) BatchNorm(s BatchNormState) *Tensor {
	t := x.tape
	c := t.begin("batch_norm", x)
	channels := x.Size(1)
	y := x.emptyLike(x.dtype)
	var mean, invstd *Tensor
	if s.Training {
		mean, invstd = t.empty(F32, channels), t.empty(F32, channels)
	}
	t.launchNorm(y, 8, x)
	node := "CudnnBatchNormBackward0"
	if x.dtype == BF16 || !s.Training {
		node = "NativeBatchNormBackward0"
	}
	if n := t.record(node, x, s.Weight, s.Bias); n != nil {
		n.save(x)
		n.keep(mean, mean != nil)
		n.keep(invstd, invstd != nil)
		n.yields(y)
		n.apply = func(b *backward) {
			gx := b.let(b.saved(0).emptyLike(b.saved(0).dtype))
			gw, gb := b.t.empty(F32, channels), b.t.empty(F32, channels)
			b.t.launchNorm(gx, 12, b.grad, b.saved(0))
			b.out[0], b.out[1], b.out[2] = keepIf(gx, b.needs(0)), keepIf(gw, b.needs(1)), keepIf(gb, b.needs(2))
			b.statement()
		}
	}
	return c.end(y)
}

// keepIf retains x as a result that is wanted.
func keepIf(x *Tensor, wanted bool) *Tensor {
	if !wanted {
		return nil
	}
	return x.retain()
}

// LayerNorm is torch.nn.functional.layer_norm over the last dims dimensions.
func (x *Tensor) LayerNorm(dims int, weight, bias *Tensor) *Tensor {
	t := x.tape
	c := t.begin("layer_norm", x, weight, bias)
	in := t.full(x)
	in = in.contiguous()
	rows := append([]int64(nil), in.shape...)
	for i := len(rows) - dims; i < len(rows); i++ {
		rows[i] = 1
	}
	y := t.empty(in.dtype, in.shape...)
	mean, rstd := t.empty(F32, rows...), t.empty(F32, rows...)
	t.launchNorm(y, 8, in, weight, bias)
	if n := t.record("NativeLayerNormBackward0", in, weight, bias); n != nil {
		n.save(in, mean, rstd)
		n.yields(y)
		n.apply = func(b *backward) { layerNormBackward(b, weight, bias) }
	}
	return c.end(y)
}

func layerNormBackward(b *backward, weight, bias *Tensor) {
	t, x := b.t, b.saved(0)
	if b.needs(0) {
		b.out[0] = t.empty(x.dtype, x.shape...).retain()
	}
	if b.needs(1) {
		b.out[1] = t.empty(weight.dtype, weight.shape...).retain()
	}
	if b.needs(2) {
		b.out[2] = t.empty(bias.dtype, bias.shape...).retain()
	}
	if b.out[0] != nil {
		t.launchNorm(b.out[0], 12, b.grad, x)
	}
	b.statement()
}
