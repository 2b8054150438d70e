package pt2

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// customFunctions finds the calls of autograd.Functions (Name.apply(...)) in a graph: the
// nodes that ran in the Function's forward. Calls that follow each other on one line
// are taken together.
//
// Autograd does not look into a Function: what its forward makes for itself goes
// with it, and its backward is Python code, which an exported graph does not have.
func customFunctions(p *export.Program) []export.FunctionCall {
	var out []export.FunctionCall
	last, depth := "", 0
	for i := range p.Nodes {
		switch n := &p.Nodes[i]; {
		case n.Block == export.Close:
			depth--
		case n.Block != export.Call:
			depth++
		case n.Target == "":
		default:
			name, line := functionOf(n.Trace)
			at := fmt.Sprint(n.Module, name, line)
			switch {
			case name == "":
				last = ""
			case at == last:
				out[len(out)-1].End = i + 1
			case depth == 0:
				out = append(out, export.FunctionCall{Name: name, Line: line, Begin: i, End: i + 1})
				last = at
			}
		}
	}
	return out
}

// applied is the source of a line that calls an autograd.Function.
var applied = regexp.MustCompile(`\b([A-Za-z_]\w*)\.apply\(`)

// functionOf is the name of the outermost autograd.Function that a stack is in and the
// line that called it; "" if it is in none: a line with Name.apply( whose callee is
// called forward. A model's lines alone count, not those of PyTorch itself.
func functionOf(stack []export.Frame) (name, line string) {
	for i := 0; i+1 < len(stack); i++ {
		if !strings.Contains(stack[i].Source, ".apply(") || strings.Contains(stack[i].File, "-packages/torch/") {
			continue
		}
		m := applied.FindStringSubmatch(stack[i].Source)
		if m == nil {
			continue
		}
		callee := i + 1
		if strings.HasSuffix(stack[callee].File, "torch/autograd/function.py") && callee+1 < len(stack) {
			callee++ // Function.apply itself
		}
		if stack[callee].Func == "forward" {
			return m[1], fmt.Sprintf("%s:%d:%s", path.Base(stack[i].File), stack[i].Line, stack[i].Func)
		}
	}
	return "", ""
}

// functionRegion is the nodes of a call of an autograd.Function, with the parameters
// that go into it.
func functionRegion(p *export.Program, c export.FunctionCall) *region {
	r := &region{begin: c.Begin, end: c.End}
	r.borders(p)
	seen := map[int32]bool{}
	parameters := map[int32]bool{}
	for i := range p.Inputs {
		parameters[p.Inputs[i].Value] = p.Inputs[i].Role == export.Parameter
	}
	for i := r.begin; i < r.end; i++ {
		for _, a := range p.Nodes[i].Inputs {
			values(a.Argument, func(v int32) {
				if parameters[v] && !seen[v] {
					seen[v] = true
					r.inputs = append(r.inputs, v)
				}
			})
		}
	}
	return r
}

// function runs the nodes of an autograd.Function. Its backward is taken to need the
// Function's tensor arguments and to make a gradient of each in one kernel.
func (w *walker) function(name string, r *region) {
	inputs, at := w.inputsOf(r)
	known := slices.Clone(w.values)
	var results []aten.Value
	outs := w.frame.Apply(&trace.Function{
		Name: name + "Backward",
		Forward: func(f *trace.Frame, ctx *trace.FunctionContext, inputs []*trace.Tensor) (outs []*trace.Tensor) {
			inner := &walker{g: w.g, frame: f, values: known, inside: r, inFunction: true, weights: w.weights, packed: w.packed, whole: w.whole, note: w.note}
			outs, results = inner.runRegion(at, inputs)
			ctx.SaveForBackward(inputs...)
			return outs
		},
		Backward: gradients,
	}, inputs...)
	w.returned(r, outs, results)
}

// gradients is the backward of a Function of which nothing is known: one kernel makes a
// gradient of each argument that wants one.
func gradients(f *trace.Frame, ctx *trace.FunctionContext, grads []*trace.Tensor) []*trace.Tensor {
	var reads []*trace.Tensor
	for _, g := range grads {
		if g != nil {
			reads = append(reads, g)
		}
	}
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
