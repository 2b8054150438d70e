package pt2

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// The nodes that a captured graph marks the parts of an autograd.Function with.
const (
	functionMarker   = "torch.ops.aten.alias.default"
	incomingArgument = "torch.ops.aten.empty_like.default"
)

// customBackward is a call of an autograd.Function whose backward is in the graph, after its forward: markers of the
// arguments, forward, incoming gradients, backward, markers of the gradients that it returns.
type customBackward struct {
	// region is all of it; its inputs are forward's.
	*region
	call export.FunctionCall
	// forward begins after the markers of arguments; backward from begins after the incoming
	// gradients and ends before the markers.
	forward, from, to int
	// results are the values that gradients come for, grads these gradients.
	results, grads []int32
	// saved are the values that backward takes from before.
	saved []int32
	// gives are the gradients by the arguments that they are of.
	gives map[int32]int32
}

// capturedFunctions returns the calls that "vprof capture" has recorded, with node indices in place of node numbers.
// Calls that do not match the graph are left out.
func capturedFunctions(p *export.Program) []export.FunctionCall {
	if p.Extra == nil {
		return nil
	}
	at, ends := map[int]int{}, blockEnds(p)
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Block != export.Close { // which has the number of the node before it
			at[int(n.Number)] = i
		}
	}
	var out []export.FunctionCall
	for _, f := range p.Extra.Functions {
		begin, knownBegin := at[f.Begin]
		backward, knownBackward := at[f.Backward]
		last, knownLast := at[f.End-1]
		for i := begin; i <= last; i++ { // a block that begins inside ends there, too
			last = max(last, ends[i])
		}
		f.Begin, f.Backward, f.End = begin, backward, last+1
		if knownBegin && knownBackward && knownLast && begin < backward && backward <= last {
			out = append(out, f)
		}
	}
	return out
}

// newCustomBackward parses a call. The error names where the graph differs from the form that a capture writes.
func newCustomBackward(p *export.Program, c export.FunctionCall) (*customBackward, error) {
	f := &customBackward{region: &region{begin: c.Begin, end: c.End}, call: c, gives: map[int32]int32{}}
	wrong := func(i int) (*customBackward, error) {
		return nil, fmt.Errorf("autograd.Function %s: unexpected node %d; capture the model again", c.Name, i)
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
		f.gives[arguments[k]] = g
	}
	if f.forward > c.Backward || f.from > f.to {
		return wrong(c.Backward)
	}
	f.find(p, arguments)
	return f, nil
}

// find finds the inputs and outputs of forward, and the values that backward needs.
func (f *customBackward) find(p *export.Program, arguments []int32) {
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
	for _, v := range f.saved { // what comes from before forward goes into it, too
		addOnce(&f.inputs, v, !made[v])
	}
	f.outputs = slices.DeleteFunc(f.outputs, func(v int32) bool { return !made[v] })
	for _, v := range f.results {
		addOnce(&f.outputs, v, made[v])
	}
}

// addOnce adds a value that a list does not have, if it is wanted.
func addOnce(list *[]int32, v int32, wanted bool) {
	if wanted && !slices.Contains(*list, v) {
		*list = append(*list, v)
	}
}

// take removes tensors from values, and returns the ones that backward needs.
func (f *customBackward) take(of []aten.Value) (keep []*trace.Tensor, at []int32) {
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

// tensorLike holds the shape and type of a tensor that may be freed already.
type tensorLike struct {
	dtype trace.DType
	shape []int64
}

// ownFunction runs a Function, and its own backward when gradients arrive.
func (w *nodeRunner) ownFunction(f *customBackward) {
	inputs, at := w.inputsOf(f.region)
	known := slices.Clone(w.values)
	var results []aten.Value
	var numbers []aten.Value // values that are no tensors
	var saved []int32
	shapes := map[int32]tensorLike{}
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
			run.run(f.forward, f.call.Backward)
			for _, v := range f.outputs {
				results = append(results, run.values[v])
				if x := run.tensor(v); x != nil {
					outs = append(outs, x)
					shapes[v] = tensorLike{x.DType(), slices.Clone(x.Shape())}
				}
			}
			var keep []*trace.Tensor
			numbers = slices.Clone(run.values)
			keep, saved = f.take(numbers)
			ctx.SaveForBackward(keep...)
			return outs
		},
		Backward: func(frame *trace.Frame, ctx *trace.FunctionContext, grads []*trace.Tensor) []*trace.Tensor {
			run := inner(frame, slices.Clone(numbers))
			for i, v := range saved {
				run.values[v] = ctx.Saved(i)
			}
			f.receive(run, shapes, grads)
			run.run(f.from, f.to)
			out := make([]*trace.Tensor, len(at))
			for i, v := range at {
				if g, ok := f.gives[v]; ok && ctx.NeedsInputGrad(i) {
					out[i] = run.tensor(g)
				}
			}
			return out
		},
	}, inputs...)
	w.returned(f.region, outs, results)
}

// receive sets the values of the incoming gradients; absent ones are zeros.
func (f *customBackward) receive(run *nodeRunner, shapes map[int32]tensorLike, grads []*trace.Tensor) {
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
