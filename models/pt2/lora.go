package pt2

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/trace"
)

// linear is the operator that adapters are put beside.
const linear = "torch.ops.aten.linear.default"

// embedding is the operator whose result is the first to require gradients where
// checkpointing needs that.
const embedding = "torch.ops.aten.embedding.default"

// adapter is peft's lora.Linear around a frozen linear layer: down to the rank,
// up to the width, added to the layer's result. Its weights are in fp32
// (autocast_adapter_dtype).
type adapter struct {
	a, b    *tensor
	dropout float64
}

// apply is lora.Linear.forward after the layer itself, which made result of x.
func (l *adapter) apply(f *trace.Frame, x, result *trace.Tensor) *trace.Tensor {
	g := f.CallFrame(x)
	g.Let(result)
	dtype := result.DType()
	g.Set(&x, x.To(l.a.x.DType()))
	in := x
	if l.dropout > 0 {
		in = x.Dropout(l.dropout, true)
	}
	g.Set(&result, result.Add(in.Linear(l.a.x, nil).Linear(l.b.x, nil).MulScalar()))
	y := result.To(dtype)
	g.End(y)
	return y
}

// adapt is peft.get_peft_model: it freezes all parameters and puts adapters
// beside the linear layers that are named, or all but those whose result the
// model returns. The adapters are by the value of the layer's weight.
func (w *weights) adapt(p *export.Program, o models.LoRA) (map[int32]*adapter, error) {
	if o.InWeightsType {
		return nil, errors.New("vprof records adapters in the type of the weights in models of transformers (hf:config.json); leave out dtype=weights")
	}
	if o.DoRA != "" {
		return nil, errors.New("vprof records DoRA in models of transformers (hf:config.json); leave out dora=true")
	}
	if len(o.Save) > 0 {
		return nil, fmt.Errorf("save: %s: vprof trains modules as a whole beside adapters in models of hf: and its own, not in graphs", strings.Join(o.Save, "+"))
	}
	if len(o.Parameters) > 0 {
		return nil, fmt.Errorf("parameters: %s: vprof puts adapters beside single parameters of models of hf:, not of graphs", strings.Join(o.Parameters, "+"))
	}
	for _, x := range w.parameters {
		x.frozen = true
	}
	made, targeted := map[int32]*adapter{}, targets(o, p)
	var names []string
	for i := range p.Nodes {
		n := &p.Nodes[i]
		weight := find(n, "weight")
		if n.Target != linear || weight == nil || weight.Kind != export.Ref || made[weight.Ref] != nil {
			continue
		}
		at := slices.IndexFunc(w.parameters, func(x *tensor) bool { return slices.Contains(x.values, weight.Ref) })
		if at < 0 || len(w.parameters[at].shape) != 2 {
			continue
		}
		base := w.parameters[at]
		module := ownerOf(base, n, p)
		names = append(names, module[strings.LastIndexByte(module, '.')+1:])
		if targeted(module, i) {
			made[weight.Ref] = w.beside(base, module, o, p)
		}
	}
	if len(made) == 0 {
		slices.Sort(names)
		return nil, fmt.Errorf("%s; there are %s", o.Wanted(), strings.Join(slices.Compact(names), ", "))
	}
	return made, nil
}

// linears are the linear layers of a program by their weights.
func (w *weights) linears(p *export.Program) map[*trace.Tensor]train.Linear {
	all, results := map[*trace.Tensor]train.Linear{}, returned(p)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		weight := find(n, "weight")
		if n.Target != linear || weight == nil || weight.Kind != export.Ref {
			continue
		}
		if at := slices.IndexFunc(w.parameters, func(x *tensor) bool { return slices.Contains(x.values, weight.Ref) }); at >= 0 {
			all[w.parameters[at].x] = train.Linear{Path: parent(w.parameters[at].name), Output: results[i]}
		}
	}
	return all
}

// ownerOf is the path of the linear layer that a node calls: the module that has the weight,
// under one of its names if it is tied to another's.
func ownerOf(base *tensor, n *export.Node, p *export.Program) string {
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.Role == export.Parameter && in.Name == n.Module+".weight" && slices.Contains(base.values, in.Value) {
			return n.Module
		}
	}
	return parent(base.name)
}

// targets tells which layers get adapters, by path and node. The path of one is matched as
// peft does: whole, or from a dot on.
func targets(o models.LoRA, p *export.Program) func(module string, node int) bool {
	if len(o.Targets) > 0 || o.Match != "" {
		adapts := o.Adapts()
		return func(module string, _ int) bool { return adapts(module) }
	}
	results := returned(p)
	return func(_ string, node int) bool { return !results[node] }
}

// beside makes the adapter of a layer and puts its weights after the layer's, or after those
// of the modules before it where the layer's weight is another module's.
func (w *weights) beside(base *tensor, module string, o models.LoRA, p *export.Program) *adapter {
	make2 := func(name string, rows, columns int64) *tensor {
		return &tensor{name: module + "." + name + ".default.weight", role: export.Parameter, dtype: trace.F32, shape: []int64{rows, columns}}
	}
	l := &adapter{a: make2("lora_A", o.Rank, base.shape[1]), b: make2("lora_B", base.shape[0], o.Rank), dropout: o.Dropout}
	tied := parent(base.name) != module
	before := slices.Index(p.Modules, module)
	insert := func(list []*tensor) []*tensor {
		last := -1
		for i, x := range list {
			own := parent(x.name)
			if x.role == export.Parameter && own == module || !tied && x == base || tied && slices.Index(p.Modules, own) < before {
				last = i
			}
		}
		return slices.Insert(list, last+1, l.a, l.b)
	}
	w.parameters, w.moved = insert(w.parameters), insert(w.moved)
	return l
}
