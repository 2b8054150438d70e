package pt2

import (
	"math"
	"slices"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// valueShapes runs forward on a separate tape and returns the shapes of the graph's tensors by value.
func (t *task) valueShapes(scratch *trace.Tape, net *nn.Tree) [][]int64 {
	net.MoveToDevice(scratch)
	t.Load(scratch, int64(t.c.Batch))
	f := scratch.Frame()
	w := t.newRunner(f.CallFrame())
	w.regions = nil
	shapes := make([][]int64, t.g.Values)
	w.note = func(v int32, x *trace.Tensor) { shapes[v] = slices.Clone(x.Shape()) }
	for v, x := range w.values {
		if x, ok := x.(*trace.Tensor); ok && x != nil {
			w.note(int32(v), x)
		}
	}
	w.runNodes(0, len(t.g.Nodes))
	scratch.Finish()
	return shapes
}

// resizeArguments changes the sizes in a call's arguments from the whole tensor's to the rank's shard's, or from
// the exported batch size to another one.
func (w *nodeRunner) resizeArguments(n *export.Node, given []aten.Arg) {
	if len(n.Inputs) == 0 || len(n.Outputs) == 0 {
		return
	}
	x, ok := given[0].Value.(*trace.Tensor)
	if !ok || x == nil || n.Inputs[0].Kind != export.Ref {
		return
	}
	p, split := newShardedDim(x.Shape(), w.wholeShapes[n.Inputs[0].Ref])
	if !split {
		return
	}
	p.single = p.has > p.wholly && w.sizes.batchSizes != nil && w.sizes.batchSizes.Exported == 1
	var out []int64
	if n.Outputs[0].Kind == export.Ref {
		out = w.wholeShapes[n.Outputs[0].Ref]
	}
	switch overloadName(n.Target) {
	case "view", "reshape", "_unsafe_view":
		given[1].Value = p.shardShape(out)
	case "expand":
		size := slices.Clone(out)
		d := p.dim + len(out) - len(p.whole)
		size[d] = p.toShard(size[d])
		given[1].Value = size
	case "unflatten":
		dim := int(dimArgument(given))
		if dim < 0 {
			dim += len(p.whole)
		}
		setArgument(given, "sizes", p.shardShape(out)[dim:dim+len(out)-len(p.whole)+1])
	case "slice", "narrow", "split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes":
		if dim := int(dimArgument(given)); dim == p.dim || dim+len(p.whole) == p.dim {
			p.cutSlice(given)
		}
	}
}

// shardedDim is a tensor whose size differs in one dimension: a rank's shard of the whole tensor, or the tensor of
// another batch size.
type shardedDim struct {
	whole       []int64
	dim         int
	has, wholly int64 // size of the dimension here, and in the whole tensor
	// single reports whether the whole tensor holds one sample: its batch dimension is 1 and not merged with others.
	single bool
}

// newShardedDim compares a tensor's shape with the whole tensor's. The result is false unless one dimension differs.
func newShardedDim(shape, whole []int64) (shardedDim, bool) {
	p := shardedDim{whole: whole, dim: -1}
	if len(shape) != len(whole) {
		return p, false
	}
	for d := range shape {
		if shape[d] == whole[d] {
			continue
		}
		if p.dim >= 0 {
			return p, false
		}
		p.dim, p.has, p.wholly = d, shape[d], whole[d]
	}
	return p, p.dim >= 0
}

// toShard converts a size or index of the dimension from the whole tensor to the shard.
func (p shardedDim) toShard(n int64) int64 {
	if n > math.MaxInt64/max(1, p.has) {
		return n // a slice up to the end
	}
	return n * p.has / p.wholly
}

// shardShape converts another shape of the whole tensor to the shard's. The sharded dimension has the same stride.
func (p shardedDim) shardShape(to []int64) []int64 {
	before := int64(1) // number of elements in the dimensions before
	for _, n := range p.whole[:p.dim] {
		before *= n
	}
	out, outside := slices.Clone(to), int64(1)
	for d, n := range to {
		if outside <= before && before < outside*n || p.single && outside == before {
			out[d] = p.toShard(n)
			return out
		}
		outside *= n
	}
	return out
}

// cutSlice converts the bounds of a slice along the sharded dimension.
func (p shardedDim) cutSlice(given []aten.Arg) {
	for i := range given {
		switch given[i].Name {
		case "start", "end", "length", "split_size", "split_sizes":
			switch v := given[i].Value.(type) {
			case int64:
				given[i].Value = p.toShard(v)
			case []int64:
				sizes := slices.Clone(v)
				for k := range sizes {
					sizes[k] = p.toShard(sizes[k])
				}
				given[i].Value = sizes
			}
		}
	}
}

func dimArgument(given []aten.Arg) int64 {
	for i := range given {
		if v, ok := given[i].Value.(int64); ok && given[i].Name == "dim" {
			return v
		}
	}
	return 0
}

func setArgument(given []aten.Arg, name string, v aten.Value) {
	for i := range given {
		if given[i].Name == name {
			given[i].Value = v
		}
	}
}
