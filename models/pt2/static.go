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

// inferBatchSizes finds the sizes that depend on the batch in a torch.export file with one batch size. Files of vprof
// capture already list them, or their graph differs between batch sizes.
func (d *dimensions) inferBatchSizes(g *graph) {
	if !d.batchIsFree() && g.Extra == nil && d.fixed > 0 {
		d.batchSizes = inferBatch(g, int64(d.fixed))
		d.inferred = d.batchSizes != nil
	}
}

// inferBatch finds the sizes that depend on the batch in a program without dynamic shapes: the first dimension of
// inputs with the batch's size, and the arguments that must change for forward to run with twice as many samples, by
// the rule of [task.localize]. Tensors that are created or repeated at the batch's size are assumed to depend on it,
// unless forward runs only if they do not. The result is nil if forward runs neither way.
func inferBatch(g *graph, batch int64) *export.Batch {
	out := &export.Batch{Exported: batch}
	for _, in := range g.Inputs {
		if in.Role == export.UserInput && in.Value >= 0 && len(in.Sizes) > 0 && in.Sizes[0].Int == batch {
			out.Inputs = append(out.Inputs, export.AffineInput{Name: g.Names[in.Value], B: 1})
		}
	}
	t := &task{moduleTree: newModules(g.Program), plain: g, sizes: &dimensions{batchSizes: out}}
	var err error
	if t.wholeShapes, err = t.tryForward(batch); err != nil {
		return nil
	}
	for _, created := range []bool{true, false} {
		out.Args = nil
		f := &batchSizeFinder{Batch: out, created: created, to: 2 * batch}
		t.onArguments = f.resize
		if _, err := t.tryForward(f.to); err == nil && f.err == nil {
			return out
		}
	}
	return nil
}

// tryForward runs the graph with a number of samples and returns the shapes of its values, or the error that stops it.
func (t *task) tryForward(batch int64) (shapes [][]int64, err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("the graph cannot be run at another batch size: %v; export the model with a dynamic "+
				"batch dimension", what)
		}
	}()
	release, err := t.c.Release()
	if err == nil {
		err = t.setBatch(int(batch))
	}
	if err != nil {
		return nil, err
	}
	tape := trace.New(trace.GPU{}, release.Rules(), trace.Options{})
	err = tape.Try(func() { shapes = t.valueShapes(tape, nn.NewTree(t.Model())) })
	return shapes, err
}

// batchSizeFinder collects the arguments that depend on the batch during a forward with to samples. created is the
// assumption about tensors created at the exported batch's size. err is the reason why an argument cannot be changed.
type batchSizeFinder struct {
	*export.Batch
	created bool
	to      int64
	err     error
}

// resize changes sizes of tensors that a node creates or repeats to the new batch size, and notes changed arguments.
func (f *batchSizeFinder) resize(n *export.Node, given []aten.Arg) {
	name := overloadName(n.Target)
	for i := range given {
		switch {
		case f.created && slices.Contains(creationOperators, name) &&
			(given[i].Name == "size" || given[i].Name == "end"):
			given[i].Value = f.resizedShape(given[i].Value)
		case name == "expand" && given[i].Name == "size", name == "repeat" && given[i].Name == "repeats":
			f.scaleRepeats(name, given, i)
		}
		f.addArgument(n, i, given[i].Value)
	}
}

// creationOperators are the operators that create a tensor of a given size.
var creationOperators = strings.Fields("arange empty full new_empty new_full new_ones new_zeros ones rand randn zeros")

// resizedShape returns the size with the new batch size as its first dimension, if that was the exported batch size.
func (f *batchSizeFinder) resizedShape(size aten.Value) aten.Value {
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

// scaleRepeats multiplies an argument that counts repetitions per sample by the ratio of the batch sizes.
func (f *batchSizeFinder) scaleRepeats(name string, given []aten.Arg, i int) {
	x, isTensor := given[0].Value.(*trace.Tensor)
	size, isSize := given[i].Value.([]int64)
	if !isTensor || !isSize || x == nil {
		return
	}
	added := len(size) - x.NDim() // dimensions that repeat adds before x's
	for d := range size {
		if size[d] == f.Exported && (d < added || x.Size(d-added) == 1 || f.Exported > 1 && name == "repeat") {
			size = slices.Clone(size)
			size[d] = f.to
			given[i].Value = size
			return
		}
	}
}

// addArgument records an argument whose value differs from the file's.
func (f *batchSizeFinder) addArgument(n *export.Node, i int, value aten.Value) {
	arg := &n.Inputs[i]
	follow := func(index int, was, is int64) {
		if was == is || was == -1 {
			return
		}
		if was%f.Exported != 0 || was/f.Exported*f.to != is {
			f.err = fmt.Errorf("%s of node %d is %d, which is not a multiple of the batch size; export the model "+
				"with a dynamic batch dimension", arg.Name, n.Number, was)
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
