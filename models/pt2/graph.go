package pt2

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// graph is a program made ready to be walked.
type graph struct {
	*export.Program
	calls []plannedCall
	// first are the graphs of the first forward, where that does more; none of most.
	first []*graph
	// functions are the nodes of autograd.Functions, by the first.
	functions map[int]function
	// autocast is the type of autocast, 0 without.
	autocast trace.DType
	// kept are the values that modules keep after forward.
	kept []keptState
	// leaves are the values that forward has require gradients, whatever they are made of.
	leaves map[int32]bool
}

// withProgram returns the graph with another program that has the same nodes.
func (g *graph) withProgram(p *export.Program) *graph {
	out := *g
	out.Program, out.calls = p, slices.Clone(g.calls)
	return &out
}

// function is the nodes of a call of an autograd.Function.
type function struct {
	name string
	*region
	own *customBackward // nil where the graph does not have the backward
}

// plannedCall runs a node.
type plannedCall struct {
	op *aten.Operator
	// number computes a size; nil for operators on tensors.
	number func(args []aten.Value) (aten.Value, error)
	// replacement computes the results in place of the node; nil of most.
	replacement func(w *nodeRunner) []aten.Value
	// kernels are the ones that attention may use; nil for all.
	kernels []string
	// trues is the number of true elements of the node's mask; nil if unknown.
	trues *export.Count
	// onHost reports whether the node runs on the host, whose memory is not counted.
	onHost bool
	// skip reports whether nothing happens: checks of the graph.
	skip bool
	// end is the node that closes the block that this one opens.
	end int
	// module is the module whose code makes the call, and the line.
	module *modulePath
}

// modulePath is a module as the recorder's frame needs it, see [trace.Frame.SetModule].
type modulePath struct{ path trace.Path }

// ModulePath returns the path of a module.
func (p *modulePath) ModulePath() *trace.Path { return &p.path }

// newGraph looks up the operators of a program, and of the programs of the first forward. An unknown operator in the
// former is an [*UnknownOperatorsError]; the latter are dropped.
func newGraph(p *export.Program) (*graph, error) {
	g, err := prepareGraph(p, p)
	if err != nil {
		return nil, err
	}
	p.First = slices.DeleteFunc(p.First, func(first *export.Program) bool {
		f, err := prepareGraph(first, p)
		if err == nil {
			g.first = append(g.first, f)
		}
		return err != nil
	})
	return g, nil
}

// blockEnds returns the places of the nodes that close blocks, by the places of the nodes that open them.
func blockEnds(p *export.Program) map[int]int {
	ends := map[int]int{}
	var open []int
	for i := range p.Nodes {
		switch p.Nodes[i].Block {
		case export.Call:
		case export.Close:
			ends[open[len(open)-1]] = i
			open = open[:len(open)-1]
		default:
			open = append(open, i)
		}
	}
	return ends
}

// prepareGraph prepares a graph. Its modules keep values for the forward of next.
func prepareGraph(p, next *export.Program) (*graph, error) {
	g := &graph{Program: p, calls: make([]plannedCall, len(p.Nodes))}
	places := map[[2]string]*modulePath{}
	unknown := map[string]*UnknownOperator{}
	checks, ends := onlyUsedInChecks(p), blockEnds(p)
	for i := range p.Nodes {
		n, c := &p.Nodes[i], &g.calls[i]
		at := [2]string{n.Module, n.Line}
		if places[at] == nil {
			places[at] = &modulePath{trace.Path{Name: n.Module, Line: n.Line}}
		}
		c.module = places[at]
		switch n.Block {
		case export.Call:
			c.skip = checks[i]
			if !c.skip && !c.find(n.Target) {
				countUnknown(unknown, n)
			}
		case export.Close:
		default:
			c.end = ends[i]
		}
	}
	g.assignData()
	g.markCalls()
	g.findState(next)
	g.findLeaves()
	g.functions = map[int]function{}
	for _, f := range p.Functions {
		if f.Begin < 0 || f.Begin >= f.End || f.End > len(p.Nodes) {
			return nil, fmt.Errorf("extra/vprof.json: autograd.Function %s: no nodes %d to %d among %d", f.Name,
				f.Begin, f.End, len(p.Nodes))
		}
		if f.Backward == 0 {
			g.functions[f.Begin] = function{f.Name, functionRegion(p, f), nil}
			continue
		}
		own, err := newCustomBackward(p, f)
		if err != nil {
			return nil, err
		}
		g.functions[f.Begin] = function{f.Name, own.region, own}
	}
	for _, k := range p.Kernels {
		if k.Begin < 0 || k.Begin >= k.End || k.End > len(p.Nodes) {
			return nil, fmt.Errorf("extra/vprof.json: kernel %s: no nodes %d to %d among %d", k.Kernel, k.Begin,
				k.End, len(p.Nodes))
		}
	}
	if len(unknown) > 0 {
		list := slices.SortedFunc(maps.Values(unknown), func(a, b *UnknownOperator) int {
			return strings.Compare(a.Target, b.Target)
		})
		return nil, &UnknownOperatorsError{Operators: list}
	}
	return g, nil
}

// markCalls notes which kernels attention may use, how many elements of masks are true, and what runs on the host.
func (g *graph) markCalls() {
	if g.Extra == nil {
		return
	}
	kernels, counts := map[int32][]string{}, map[int32]*export.Count{}
	for _, m := range g.Extra.Attention {
		kernels[m.Node] = m.Kernels
	}
	for i := range g.Extra.Counts {
		counts[g.Extra.Counts[i].Node] = &g.Extra.Counts[i]
	}
	host := lists.Set(g.Extra.Host.Nodes)
	for i, n := range g.Nodes {
		c := &g.calls[i]
		c.kernels, c.trues, c.onHost = kernels[n.Number], counts[n.Number], host[n.Number]
	}
}

// findLeaves finds the values on which forward calls requires_grad_().
func (g *graph) findLeaves() {
	if g.Extra == nil || len(g.Extra.Leaves) == 0 {
		return
	}
	made := madeByName(g.Program)
	g.leaves = map[int32]bool{}
	for _, name := range g.Extra.Leaves {
		if v, known := made[name[strings.IndexByte(name, '/')+1:]]; known {
			g.leaves[v] = true
		}
	}
}

// item is the number in a tensor of one element. Numbers that depend on data are
// unknown in a recording, which needs none that a graph only checks.
const item = "torch.ops.aten.item.default"

// row is x[i]. The index may be a number that depends on data.
const row = "torch.ops.aten.select.int"

// onlyUsedInChecks returns for each node whether it is a check of the graph, or computes only numbers for checks and
// indices of single rows.
func onlyUsedInChecks(p *export.Program) []bool {
	out := make([]bool, len(p.Nodes))
	taken := make([]bool, p.Values) // by something else than a check
	for _, r := range p.Results {
		if r.Value >= 0 {
			taken[r.Value] = true
		}
	}
	for i := len(p.Nodes) - 1; i >= 0; i-- {
		n := &p.Nodes[i]
		out[i] = strings.HasPrefix(n.Target, "torch.ops.aten._assert_") ||
			strings.HasPrefix(n.Target, "torch.ops.aten.sym_constrain_range")
		if n.Target == item || numberOf(n.Target) != nil {
			out[i] = true
			eachOutput(n, func(v int32) { out[i] = out[i] && !taken[v] })
		}
		index := int32(-1) // where a row lies changes nothing
		if n.Target == row {
			index = inputOf(n, "index")
		}
		if !out[i] {
			eachInput(n, func(v int32) { taken[v] = taken[v] || v != index })
		}
	}
	return out
}

// find finds the function of a target, and reports whether it is known.
func (c *plannedCall) find(target string) bool {
	if target == "" {
		c.skip = true
		return true
	}
	if c.number = numberOf(target); c.number != nil {
		return true
	}
	var ok bool
	c.op, ok = aten.ByTarget(target)
	return ok
}

// UnknownOperator is an operator that the recorder does not know.
type UnknownOperator struct {
	Target string
	// Count is the number of calls, Module and Line describe the first one.
	Count        int
	Module, Line string
}

func countUnknown(unknown map[string]*UnknownOperator, n *export.Node) {
	u := unknown[n.Target]
	if u == nil {
		u = &UnknownOperator{Target: n.Target, Module: n.Module, Line: n.Line}
		unknown[n.Target] = u
	}
	u.Count++
}

// UnknownOperatorsError names which operators of a model the recorder does not know, all of them at once.
type UnknownOperatorsError struct {
	File      string
	Operators []*UnknownOperator
}

func (e *UnknownOperatorsError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: the model calls %d operators that vprof does not know:", e.File, len(e.Operators))
	for i, u := range e.Operators {
		if i > 0 {
			b.WriteByte(';')
		}
		fmt.Fprintf(&b, " %s (%d times", strings.TrimPrefix(u.Target, "torch.ops."), u.Count)
		if u.Module != "" {
			fmt.Fprintf(&b, ", first in %s", u.Module)
		}
		if u.Line != "" {
			fmt.Fprintf(&b, ", %s", u.Line)
		}
		b.WriteByte(')')
	}
	b.WriteString("; vprof capture MODEL --step records a training step with them as it runs " +
		"(each needs a row in the operator table, profiler/aten, with what it allocates and keeps for backward)")
	return b.String()
}

// Usage marks the error as bad input.
func (*UnknownOperatorsError) Usage() bool { return true }

// dtypes are the supported element types.
var dtypes = map[export.ScalarType]trace.DType{
	export.Byte:     trace.U8,
	export.Char:     trace.U8, // of the same size
	export.Int:      trace.I32,
	export.Long:     trace.I64,
	export.Half:     trace.F16,
	export.Float:    trace.F32,
	export.Double:   trace.F64,
	export.Complex:  trace.C64,
	export.Bool:     trace.Bool,
	export.BFloat16: trace.BF16,
}

// assignData carries out what copies in a graph mean by p.data = x: the parameter takes x's memory, its own is freed.
func (g *graph) assignData() {
	if g.Extra == nil {
		return
	}
	assigned := lists.Set(g.Extra.Assigned)
	for i := range g.Nodes {
		n := &g.Nodes[i]
		to, from := inputOf(n, "self"), inputOf(n, "src")
		if n.Block != export.Call || !assigned[n.Number] || to < 0 || from < 0 {
			continue
		}
		g.calls[i].replacement = func(w *nodeRunner) []aten.Value {
			x, y := w.values[to].(*trace.Tensor), w.values[from].(*trace.Tensor)
			x.SetData(y)
			return []aten.Value{x}
		}
	}
}

// uses lists the nodes of a program that compute and use its values.
type uses struct {
	maker  []int   // the node that makes a value, -1 if none does
	takers [][]int // the nodes that have a value as an argument of its own, in order
}

func findUses(p *export.Program) uses {
	u := uses{maker: make([]int, p.Values), takers: make([][]int, p.Values)}
	for v := range u.maker {
		u.maker[v] = -1
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, a := range n.Inputs {
			if a.Kind == export.Ref {
				u.takers[a.Ref] = append(u.takers[a.Ref], i)
			}
		}
		for _, o := range n.Outputs {
			if o.Kind == export.Ref {
				u.maker[o.Ref] = i
			}
		}
	}
	return u
}

// eachInput calls f for the values among a node's arguments.
func eachInput(n *export.Node, f func(v int32)) {
	for _, a := range n.Inputs {
		eachValue(a.Argument, f)
	}
}

// eachOutput calls f for the values among a node's results.
func eachOutput(n *export.Node, f func(v int32)) {
	for _, o := range n.Outputs {
		eachValue(o, f)
	}
}

// soleResult returns the value of a node with one result, -1 for others: files can contain anything.
func soleResult(n *export.Node) int32 {
	if len(n.Outputs) == 1 && n.Outputs[0].Kind == export.Ref {
		return n.Outputs[0].Ref
	}
	return -1
}

// inputOf returns the value of a node's argument by name, -1 if there is none.
func inputOf(n *export.Node, name string) int32 {
	if a := findArgument(n, name); a != nil && a.Kind == export.Ref {
		return a.Ref
	}
	return -1
}
