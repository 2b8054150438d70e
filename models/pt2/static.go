package pt2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// infer finds the sizes that depend on the batch in a file of torch.export with a single batch size. A file of vprof
// capture already has them, or its graph differs between batch sizes.
func (d *dimensions) infer(g *graph) {
	if !d.batchIsFree() && g.Extra == nil && d.fixed > 0 {
		d.affine = inferBatch(g, int64(d.fixed))
		d.inferred = d.affine != nil
	}
}

// inferBatch finds the sizes that depend on the batch in a program that was exported without dynamic shapes: the first
// dimension of inputs with the batch's size, and the arguments that must change for forward to run with twice as many
// samples, by the rule of [task.localize]. Tensors that are created or repeated in the batch's size are assumed to
// depend on it, unless forward runs only otherwise. The result is nil if forward does not run either way.
func inferBatch(g *graph, batch int64) *export.Batch {
	out := &export.Batch{Exported: batch}
	for _, in := range g.Inputs {
		if in.Role == export.UserInput && in.Value >= 0 && len(in.Sizes) > 0 && in.Sizes[0].Int == batch {
			out.Inputs = append(out.Inputs, export.AffineInput{Name: g.Names[in.Value], B: 1})
		}
	}
	t := &task{moduleTree: newModules(g.Program), plain: g, sizes: &dimensions{affine: out}}
	var err error
	if t.whole, err = t.forward(batch); err != nil {
		return nil
	}
	for _, created := range []bool{true, false} {
		out.Args = nil
		f := &sizeFollower{Batch: out, created: created, to: 2 * batch}
		t.resized = f.resize
		if _, err := t.forward(f.to); err == nil && f.err == nil {
			return out
		}
	}
	return nil
}

// forward runs the graph with a number of samples and returns the shapes of its values. The error says why not.
func (t *task) forward(batch int64) (shapes [][]int64, err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("forward does not run: %v", what)
		}
	}()
	release, err := t.c.Release()
	if err == nil {
		err = t.sized(int(batch))
	}
	if err != nil {
		return nil, err
	}
	tape := trace.New(trace.GPU{}, release.Rules(), trace.Options{})
	err = tape.Try(func() { shapes = t.shapes(tape, nn.NewTree(t.Model())) })
	return shapes, err
}

// sizeFollower collects the arguments that depend on the batch while forward runs with to samples. created reports
// whether tensors created in the exported batch's size depend on it; err is the reason why an argument cannot.
type sizeFollower struct {
	*export.Batch
	created bool
	to      int64
	err     error
}

// resize gives tensors that a node creates or repeats the other batch's size, and notes which arguments differ.
func (f *sizeFollower) resize(n *export.Node, given []aten.Arg) {
	name := overloadName(n.Target)
	for i := range given {
		switch {
		case f.created && slices.Contains(creating, name) && (given[i].Name == "size" || given[i].Name == "end"):
			given[i].Value = f.sized(given[i].Value)
		case name == "expand" && given[i].Name == "size", name == "repeat" && given[i].Name == "repeats":
			f.repeat(name, given, i)
		}
		f.note(n, i, given[i].Value)
	}
}

// creating are the operators that make a tensor of a size that is said.
var creating = strings.Fields("arange empty full new_empty new_full new_ones new_zeros ones rand randn zeros")

// sized returns a size whose first dimension, if it is the batch's, is the other batch's.
func (f *sizeFollower) sized(size aten.Value) aten.Value {
	switch size := size.(type) {
	case int64:
		if size == f.Exported {
			return f.to
		}
	case []int64:
		if i := slices.Index(size, f.Exported); i >= 0 {
			out := slices.Clone(size)
			out[i] = f.to
			return out
		}
	}
	return size
}

// repeat scales an argument that counts repetitions for each sample to the samples of the other batch.
func (f *sizeFollower) repeat(name string, given []aten.Arg, i int) {
	x, isTensor := given[0].Value.(*trace.Tensor)
	size, isSize := given[i].Value.([]int64)
	if !isTensor || !isSize || x == nil {
		return
	}
	added := len(size) - x.NDim() // dimensions in front of x's
	for d := range size {
		if size[d] == f.Exported && (d < added || x.Size(d-added) == 1 || f.Exported > 1 && name == "repeat") {
			size = slices.Clone(size)
			size[d] = f.to
			given[i].Value = size
			return
		}
	}
}

// note records an argument that differs from the file.
func (f *sizeFollower) note(n *export.Node, i int, value aten.Value) {
	arg := &n.Inputs[i]
	follow := func(index int, was, is int64) {
		if was == is || was == -1 {
			return
		}
		if was%f.Exported != 0 || was/f.Exported*f.to != is {
			f.err = fmt.Errorf("%s of node %d is %d, which is not a multiple of the batch", arg.Name, n.Number, was)
			return
		}
		f.Args = append(f.Args, export.AffineArg{Node: n.Number, Name: arg.Name, Index: index, B: was / f.Exported})
	}
	switch value := value.(type) {
	case int64:
		if arg.Kind == export.Integer {
			follow(0, arg.Int, value)
		}
	case []int64:
		if arg.Kind == export.List && len(arg.List) == len(value) {
			for k, e := range arg.List {
				if e.Kind == export.Integer {
					follow(k, e.Int, value[k])
				}
			}
		}
	}
}
