package pt2

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/models/train"
)

// quantize holds the linear layers of a model as bitsandbytes does, as
// replace_with_bnb_linear of transformers replaces them: the modules that are called with
// a weight and a bias of their own, but for those whose result the model returns, and
// those that share their weight with something else.
func (w *weights) quantize(p *export.Program, c models.Case) map[int32]nn.Quantized {
	shared, results := map[int32]bool{}, returned(p)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, in := range n.Inputs {
			values(in.Argument, func(v int32) {
				shared[v] = shared[v] || n.Target != linear || in.Name == "input" || results[i]
			})
		}
	}
	quantizer := train.Quantizer(c)
	made := map[int32]nn.Quantized{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		weight := find(n, "weight")
		if n.Target != linear || weight == nil || weight.Kind != export.Ref || made[weight.Ref] != nil {
			continue
		}
		x := w.of(weight.Ref)
		if x == nil || len(x.values) != 1 || shared[weight.Ref] || len(x.shape) != 2 || x.name != n.Module+".weight" {
			continue
		}
		l := &nn.Linear{Weight: &nn.Parameter{Dims: x.shape, DType: x.dtype, Frozen: true}}
		if bias := find(n, "bias"); bias != nil && bias.Kind == export.Ref {
			if b := w.of(bias.Ref); b != nil {
				b.biasOf = &nn.Parameter{Dims: b.shape, DType: b.dtype, Frozen: true}
				l.Bias = b.biasOf
			}
		}
		x.packed = quantizer.Layer(l)
		made[weight.Ref] = x.packed
	}
	return made
}

// of is the parameter that a value is; nil if it is none.
func (w *weights) of(value int32) *tensor {
	for _, x := range w.parameters {
		for _, v := range x.values {
			if v == value {
				return x
			}
		}
	}
	return nil
}

// returned are the nodes whose results the model returns, as they are or scaled and capped.
func returned(p *export.Program) map[int]bool {
	out := map[int]bool{}
	maker := usesOf(p).maker
	for _, r := range p.Results {
		for v := r.Value; v >= 0 && maker[v] >= 0; {
			n := &p.Nodes[maker[v]]
			out[maker[v]] = true
			if !scaling[short(n.Target)] || !alone(n) {
				break
			}
			v = taken(n, "self")
		}
	}
	return out
}
