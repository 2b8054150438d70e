package pt2

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// The operators that vprof capture inserts to mark the parts of an autograd.Function in a graph.
const (
	functionMarker   = "torch.ops.aten.alias.default"
	incomingArgument = "torch.ops.aten.empty_like.default"
)

// customBackward is a call of an autograd.Function whose backward is in the graph. The nodes are, in order: markers
// of the arguments, forward, incoming gradients, backward, markers of the returned gradients.
type customBackward struct {
	// region spans all nodes of the autograd.Function's call; its inputs are forward's inputs.
	*region
	call export.FunctionCall
	// forward is forward's first node, after the markers of the arguments. Backward's nodes are from up to before to.
	forward, from, to int
	// results are the results of forward that get gradients, grads their incoming gradients.
	results, grads []int32
	// saved are the values from forward that backward uses.
	saved []int32
	// gradientOf maps each argument to its gradient.
	gradientOf map[int32]int32
}

// capturedFunctions returns the calls of autograd.Functions that vprof capture has recorded, with indices of nodes in
// place of their numbers. Calls that do not match the graph are left out.
func capturedFunctions(p *export.Program) []export.FunctionCall {
	if p.Extra == nil {
		return nil
	}
	at, ends := map[int]int{}, blockEnds(p)
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Block != export.Close { // a closing node repeats the number of the node before it
			at[int(n.Number)] = i
		}
	}
	var out []export.FunctionCall
	for _, f := range p.Extra.Functions {
		begin, knownBegin := at[f.Begin]
		backward, knownBackward := at[f.Backward]
		last, knownLast := at[f.End-1]
		for i := begin; i <= last; i++ { // include the whole of each block that begins inside
			last = max(last, ends[i])
		}
		f.Begin, f.Backward, f.End = begin, backward, last+1
		if knownBegin && knownBackward && knownLast && begin < backward && backward <= last {
			out = append(out, f)
		}
	}
	return out
}

// newCustomBackward finds the parts of a call. The error names the node that vprof capture would not write there.
func newCustomBackward(p *export.Program, c export.FunctionCall) (*customBackward, error) {
	f := &customBackward{region: &region{begin: c.Begin, end: c.End}, call: c, gradientOf: map[int32]int32{}}
	wrong := func(i int) (*customBackward, error) {
		return nil, fmt.Errorf("the backward of autograd.Function %s has node %d, which vprof cannot read; capture "+
			"the model again", c.Name, i)
	}
	marked := func(i int, target string) (of, made int32, ok bool) {
		if i < c.Begin || i >= c.End || p.Nodes[i].Target != target {
			return 0, 0, false
		}
		of, made = inputOf(&p.Nodes[i], "self"), soleResult(&p.Nodes[i])
		return of, made, of >= 0 && made >= 0
	}
	var arguments []int32
	f.forward = c.Begin
	for range c.Gives {
		v, _, ok := marked(f.forward, functionMarker)
		if !ok {
			return wrong(f.forward)
		}
		arguments = append(arguments, v)
		f.forward++
	}
	f.from = c.Backward
	for {
		y, g, ok := marked(f.from, incomingArgument)
		if !ok {
			break
		}
		f.results, f.grads = append(f.results, y), append(f.grads, g)
		f.from++
	}
	f.to = c.End
	for k := len(c.Gives) - 1; k >= 0; k-- {
		if !c.Gives[k] {
			continue
		}
		f.to--
		g, _, ok := marked(f.to, functionMarker)
		if !ok {
			return wrong(f.to)
		}
		f.gradientOf[arguments[k]] = g
	}
	if f.forward > c.Backward || f.from > f.to {
		return wrong(c.Backward)
	}
	f.findBorderValues(p, arguments)
	return f, nil
}

// findBorderValues sets the inputs and outputs of forward, and the values that backward needs.
func (f *customBackward) findBorderValues(p *export.Program, arguments []int32) {
	f.findBorders(p)
	made, known := map[int32]bool{}, map[int32]bool{}
	for i := f.forward; i < f.call.Backward; i++ {
		eachOutput(&p.Nodes[i], func(v int32) { made[v] = true })
	}
	use := func(i int, list *[]int32, inside map[int32]bool) {
		eachInput(&p.Nodes[i], func(v int32) { addOnce(list, v, !inside[v]) })
	}
	f.inputs = nil
	for _, v := range arguments {
		addOnce(&f.inputs, v, true)
	}
	for i := f.forward; i < f.call.Backward; i++ {
		use(i, &f.inputs, made)
	}
	for _, g := range f.grads {
		known[g] = true
	}
	for i := f.from; i < f.to; i++ {
		use(i, &f.saved, known)
		eachOutput(&p.Nodes[i], func(v int32) { known[v] = true })
	}
	for _, v := range f.saved { // backward's values from before the call are inputs of forward, too
		addOnce(&f.inputs, v, !made[v])
	}
	f.outputs = slices.DeleteFunc(f.outputs, func(v int32) bool { return !made[v] })
	for _, v := range f.results {
		addOnce(&f.outputs, v, made[v])
	}
}

func addOnce(list *[]int32, v int32, wanted bool) {
	if wanted && !slices.Contains(*list, v) {
		*list = append(*list, v)
	}
}

// takeSaved removes the tensors from values. It returns the tensors that backward needs, and their indices.
func (f *customBackward) takeSaved(of []aten.Value) (keep []*trace.Tensor, at []int32) {
	for i, v := range of {
		if x, ok := v.(*trace.Tensor); ok {
			if x != nil && slices.Contains(f.saved, int32(i)) {
				keep, at = append(keep, x), append(at, int32(i))
			}
			of[i] = nil
		}
	}
	return keep, at
}

// tensorSpec is the shape and data type of a tensor that may have been freed.
type tensorSpec struct {
	dtype trace.DType
	shape []int64
}

// runCapturedFunction runs the forward of an autograd.Function, and its captured backward once gradients arrive.
func (w *nodeRunner) runCapturedFunction(f *customBackward) {
	inputs, at := w.inputsOf(f.region)
	known := slices.Clone(w.values)
	var results []aten.Value
	var numbers []aten.Value // saved values that are not tensors
	var saved []int32
	shapes := map[int32]tensorSpec{}
	inner := func(frame *trace.Frame, values []aten.Value) *nodeRunner {
		return &nodeRunner{task: w.task, frame: frame, values: values, inside: f.region, inFunction: true, note: w.note}
	}
	outs := w.frame.Apply(&trace.Function{
		Name: f.call.Name + "Backward", AMP: f.call.AMP,
		Forward: func(frame *trace.Frame, ctx *trace.FunctionContext, inputs []*trace.Tensor) (outs []*trace.Tensor) {
			run := inner(frame, known)
			for i, v := range at {
				run.values[v] = inputs[i]
			}
			run.runNodes(f.forward, f.call.Backward)
			for _, v := range f.outputs {
				results = append(results, run.values[v])
				if x := run.tensor(v); x != nil {
					outs = append(outs, x)
					shapes[v] = tensorSpec{x.DType(), slices.Clone(x.Shape())}
				}
			}
			var keep []*trace.Tensor
			numbers = slices.Clone(run.values)
			keep, saved = f.takeSaved(numbers)
			ctx.SaveForBackward(keep...)
			return outs
		},
		Backward: func(frame *trace.Frame, ctx *trace.FunctionContext, grads []*trace.Tensor) []*trace.Tensor {
			run := inner(frame, slices.Clone(numbers))
			for i, v := range saved {
				run.values[v] = ctx.Saved(i)
			}
			f.setIncomingGradients(run, shapes, grads)
			run.runNodes(f.from, f.to)
			out := make([]*trace.Tensor, len(at))
			for i, v := range at {
				if g, ok := f.gradientOf[v]; ok && ctx.NeedsInputGrad(i) {
					out[i] = run.tensor(g)
				}
			}
			return out
		},
	}, inputs...)
	w.setResults(f.region, outs, results)
}

// setIncomingGradients sets the incoming gradients of backward; missing ones are tensors of zeros.
func (f *customBackward) setIncomingGradients(run *nodeRunner, shapes map[int32]tensorSpec, grads []*trace.Tensor) {
	k := 0
	for _, v := range f.outputs {
		x, ok := shapes[v]
		if !ok {
			continue
		}
		grad := grads[k]
		k++
		for i, y := range f.results {
			if y != v {
				continue
			}
			if grad == nil {
				grad = run.frame.Bind(run.frame.Tape().Zeros(x.dtype, x.shape...))
			}
			run.values[f.grads[i]] = grad
		}
	}
}
