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

// customFunctions finds the calls of autograd.Functions (Name.apply(...)) in a graph: the nodes that ran in the
// Function's forward. Consecutive calls on one line are one call.
//
// Autograd does not record the operators inside a Function: the temporaries of its forward end with it, and its
// backward is Python code, which an exported graph does not have.
func customFunctions(p *export.Program) []export.FunctionCall {
	var out []export.FunctionCall
	around := countCallers(p)
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
			case a.name == "" || a.within <= len(n.Stack)-around[a.caller]: // by modules alone
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

// functionApply is the source of a line that calls an autograd.Function.
var functionApply = regexp.MustCompile(`\b([A-Za-z_]\w*)\.apply\(`)

// application describes the line of a stack that calls Name.apply(.
type application struct {
	// name is the Function's, "" if there is no such line.
	name   string
	caller sourceLine
	// within is the number of functions called forward that the line called, each called by
	// the one before: the Function's, modules' or both.
	within int
}

// sourceLine is a line of a model's code, and the number of frames that led to it.
type sourceLine struct {
	line   string
	frames int
}

// callSiteOf finds the outermost line of a stack that contains Name.apply( and whose callee is named forward. Lines
// of PyTorch itself do not count.
func callSiteOf(stack []export.Frame) application {
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
			callee++ // Function.apply itself
		}
		if stack[callee].Func == "forward" {
			return application{name: m[1], caller: sourceLine{lineOf(stack[i]), i}, within: forwards(stack[callee:])}
		}
	}
	return application{}
}

// lineOf returns a frame as descriptions name it.
func lineOf(f export.Frame) string { return fmt.Sprintf("%s:%d:%s", path.Base(f.File), f.Line, f.Func) }

// forwards counts the functions called forward among frames.
func forwards(frames []export.Frame) (n int) {
	for _, f := range frames {
		if f.Func == "forward" {
			n++
		}
	}
	return n
}

// countCallers returns, for each line that applies a Function, the number of modules around it: the fewest around any
// of its nodes. A module that the line also calls, as in proj(Name.apply(x)), adds a frame named forward for each
// further module; a Function's nodes have one frame more than that.
func countCallers(p *export.Program) map[sourceLine]int {
	around := map[sourceLine]int{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for k, f := range n.Trace {
			if !strings.Contains(f.Source, ".apply(") {
				continue
			}
			c := sourceLine{lineOf(f), k}
			if fewest, seen := around[c]; !seen || len(n.Stack) < fewest {
				around[c] = len(n.Stack)
			}
		}
	}
	return around
}

// functionRegion returns the nodes of a call of an autograd.Function, with the parameters that it reads.
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

// function runs the nodes of an autograd.Function. If the graph does not have its backward, backward is assumed to need
// the Function's tensor arguments and to compute their gradients in one kernel.
func (w *nodeRunner) function(fn function) {
	if fn.own != nil {
		w.ownFunction(fn.own)
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
		Backward: fakeGradients,
	}, inputs...)
	w.returned(r, outs, results)
}

// fakeGradients returns the gradients of a Function whose code is unknown: one kernel computes one for each argument
// that needs it.
func fakeGradients(f *trace.Frame, ctx *trace.FunctionContext, grads []*trace.Tensor) []*trace.Tensor {
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
