package trace

import "github.com/vprof/vprof/profiler/program"

func (t *Tape) launchNorm(y *Tensor, flops int64, ins ...*Tensor) {
	t.launch(program.Op{Work: program.Normalization, FLOPs: flops * y.numel}, []*Tensor{y}, ins)
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
