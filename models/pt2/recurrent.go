package pt2

import (
	"slices"
	"strings"

	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/trace"
)

// recurrentOperators are those whose layers keep all their weights in one
// buffer, as cuDNN wants them.
var recurrentOperators = []string{
	"torch.ops.aten.lstm.input", "torch.ops.aten.gru.input",
	"torch.ops.aten.rnn_tanh.input", "torch.ops.aten.rnn_relu.input",
}

// recurrent finds the weights of recurrent layers: for the last of each layer
// that is moved to the device, all of them, in order. Moving a layer ends with
// flatten_parameters.
func (w *weights) recurrent(p *export.Program) map[*tensor][]*tensor {
	owners := map[int32]*tensor{}
	for _, x := range w.parameters {
		for _, v := range x.values {
			owners[v] = x
		}
	}
	out := map[*tensor][]*tensor{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if !slices.Contains(recurrentOperators, strings.TrimSuffix(n.Target, ".default")) {
			continue
		}
		for _, in := range n.Inputs {
			if in.Name != "params" {
				continue
			}
			var layer []*tensor
			last := -1
			for _, a := range in.List {
				x := owners[a.Ref]
				if x == nil {
					layer = nil // computed in the graph: not a layer's own
					break
				}
				layer = append(layer, x)
				last = max(last, slices.Index(w.moved, x))
			}
			if len(layer) > 0 && last >= 0 {
				out[w.moved[last]] = layer
			}
		}
	}
	return out
}

// flatten is flatten_parameters of a layer, all of whose weights have been
// moved.
func flatten(t *trace.Tape, layer []*tensor) {
	xs := make([]*trace.Tensor, len(layer))
	for i, x := range layer {
		xs[i] = x.x
	}
	t.FlattenRNNWeights(xs)
}
