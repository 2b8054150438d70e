package pt2

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// customFunctions returns the calls of autograd.Functions (Name.apply(...)) in a graph: the nodes that ran in the
// Function's forward. Consecutive calls on one source line are one call.
//
// Autograd does not record the operators inside a Function: its temporaries are freed when its forward ends, and its
// backward is Python code that an exported graph does not contain.
func customFunctions(p *export.Program) []export.FunctionCall {
	var out []export.FunctionCall
	around := modulesAroundCalls(p)
	last, depth := "", 0
	for i := range p.Nodes {
		switch n := &p.Nodes[i]; {
		case n.Block == export.Close:
			depth--
		case n.Block != export.Call:
			depth++
		case n.Target == "":
		default:
			a := callSiteOf(n.Trace)
			at := fmt.Sprint(n.Module, a.name, a.caller.line)
			switch {
			// the node is not inside the Function: modules explain all its forward frames
			case a.name == "" || a.within <= len(n.Stack)-around[a.caller]:
				last = ""
			case at == last:
				out[len(out)-1].End = i + 1
			case depth == 0:
				out = append(out, export.FunctionCall{Name: a.name, Line: a.caller.line, Begin: i, End: i + 1})
				last = at
			}
		}
	}
	return out
}

// functionApply matches a source line that calls an autograd.Function.
var functionApply = regexp.MustCompile(`\b([A-Za-z_]\w*)\.apply\(`)

// functionCallSite is the line of a stack that calls Name.apply(...).
type functionCallSite struct {
	// name is the Function's name; "" if the stack has no such line.
	name   string
	caller sourceLine
	// within is the number of nested calls named forward (the Function's and the modules') below its caller.
	within int
}

// sourceLine is a line of the model's code and the number of stack frames above it.
type sourceLine struct {
	line   string
	frames int
}

// callSiteOf returns the outermost line of a stack that contains Name.apply( and calls a function named forward.
// Lines of PyTorch itself do not count.
func callSiteOf(stack []export.Frame) functionCallSite {
	for i := 0; i+1 < len(stack); i++ {
		if !strings.Contains(stack[i].Source, ".apply(") || strings.Contains(stack[i].File, "-packages/torch/") {
			continue
		}
		m := functionApply.FindStringSubmatch(stack[i].Source)
		if m == nil {
			continue
		}
		callee := i + 1
		if strings.HasSuffix(stack[callee].File, "torch/autograd/function.py") && callee+1 < len(stack) {
			callee++ // skip Function.apply itself
		}
		if stack[callee].Func == "forward" {
			return functionCallSite{
				name: m[1], caller: sourceLine{frameText(stack[i]), i},
				within: countForwards(stack[callee:]),
			}
		}
	}
	return functionCallSite{}
}

// frameText returns a frame as file:line:function.
func frameText(f export.Frame) string {
	return fmt.Sprintf("%s:%d:%s", path.Base(f.File), f.Line, f.Func)
}

func countForwards(frames []export.Frame) int {
	return len(lists.Filter(frames, func(f export.Frame) bool { return f.Func == "forward" }))
}

// modulesAroundCalls returns, for each line that applies a Function, the number of modules around it: the smallest
// number over its nodes. A module that the line also calls, as in proj(Name.apply(x)), adds one frame named forward per
// module; a node of the Function has one such frame more.
func modulesAroundCalls(p *export.Program) map[sourceLine]int {
	around := map[sourceLine]int{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for k, f := range n.Trace {
			if !strings.Contains(f.Source, ".apply(") {
				continue
			}
			c := sourceLine{frameText(f), k}
			if fewest, seen := around[c]; !seen || len(n.Stack) < fewest {
				around[c] = len(n.Stack)
			}
		}
	}
	return around
}

// functionRegion returns the nodes of an autograd.Function's call. Its inputs include the parameters that it reads.
func functionRegion(p *export.Program, c export.FunctionCall) *region {
	r := &region{begin: c.Begin, end: c.End}
	r.findBorders(p)
	parameters := map[int32]bool{}
	for i := range p.Inputs {
		parameters[p.Inputs[i].Value] = p.Inputs[i].Role == export.Parameter
	}
	for i := r.begin; i < r.end; i++ {
		eachInput(&p.Nodes[i], func(v int32) { addOnce(&r.inputs, v, parameters[v]) })
	}
	return r
}

// runFunction runs the nodes of an autograd.Function. If the graph lacks its backward, the backward is assumed to save
// all tensor arguments and to compute their gradients by one kernel each.
func (w *nodeRunner) runFunction(fn function) {
	if fn.own != nil {
		w.runCapturedFunction(fn.own)
		return
	}
	r := fn.region
	inputs, at := w.inputsOf(r)
	known := slices.Clone(w.values)
	var results []aten.Value
	outs := w.frame.Apply(&trace.Function{
		Name: fn.name + "Backward",
		Forward: func(f *trace.Frame, ctx *trace.FunctionContext, inputs []*trace.Tensor) (outs []*trace.Tensor) {
			inner := &nodeRunner{task: w.task, frame: f, values: known, inside: r, inFunction: true, note: w.note}
			outs, results = inner.runRegion(at, inputs)
			ctx.SaveForBackward(inputs...)
			return outs
		},
		Backward: assumedGradients,
	}, inputs...)
	w.setResults(r, outs, results)
}

// assumedGradients computes the gradients of a Function without a known backward: one kernel for each argument that
// needs a gradient.
func assumedGradients(f *trace.Frame, ctx *trace.FunctionContext, grads []*trace.Tensor) []*trace.Tensor {
	reads := lists.Filter(grads, func(g *trace.Tensor) bool { return g != nil })
	out := make([]*trace.Tensor, ctx.Inputs())
	for i := range out {
		if !ctx.NeedsInputGrad(i) {
			continue
		}
		x := ctx.Saved(i)
		out[i] = f.Tape().Empty(x.DType(), x.Shape()...)
		f.Tape().Kernel("backward", x.Numel(), []*trace.Tensor{out[i]}, append(reads, x))
	}
	return out
}
