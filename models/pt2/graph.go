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

// graph is a program with its operators looked up, ready to run.
type graph struct {
	*export.Program
	calls []plannedCall
	// first are the graphs of the first forward pass if it differs from later ones, by batch size; nil otherwise.
	first []*graph
	// functions maps the first node of each autograd.Function to its nodes.
	functions map[int]function
	// autocast is the data type of autocast; 0 without autocast.
	autocast trace.DType
	// kept are the values that modules keep after forward.
	kept []keptState
	// leaves are the values on which forward calls requires_grad_().
	leaves map[int32]bool
}

// withProgram returns the graph with another program of the same nodes.
func (g *graph) withProgram(p *export.Program) *graph {
	out := *g
	out.Program, out.calls = p, slices.Clone(g.calls)
	return &out
}

// function is one call of an autograd.Function.
type function struct {
	name string
	*region
	own *customBackward // nil if the graph lacks its backward
}

// plannedCall is how a node of the graph runs.
type plannedCall struct {
	op *aten.Operator
	// number computes a size on the host; nil for operators on tensors.
	number func(args []aten.Value) (aten.Value, error)
	// replacement runs instead of the operator; nil for most nodes.
	replacement func(w *nodeRunner) []aten.Value
	// kernels are the attention kernels that the node may use; nil for all.
	kernels []string
	// trueCount is the number of true elements in the node's mask; nil if it is unknown.
	trueCount *export.MaskCount
	// onHost reports whether the node runs on the CPU, whose memory is not counted.
	onHost bool
	// skip reports whether the node is a check of the graph, which allocates nothing.
	skip bool
	// end is the node that closes the block that this node opens.
	end int
	// module is the module whose code makes the call, with its source line.
	module *modulePath
}

type modulePath struct{ path trace.Path }

func (p *modulePath) ModulePath() *trace.Path { return &p.path }

// newGraph looks up the operators of a program and of the programs of its first forward pass. An unknown operator is
// an [*UnknownOperatorsError]; first forward passes with one are dropped.
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

// blockEnds maps the index of each node that opens a block to the index of the node that closes it.
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

// prepareGraph looks up the operators of p. next is the program of the next forward pass, which reads the values that
// p's modules keep.
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
			if !c.skip && !c.lookUp(n.Target) {
				countUnknown(unknown, n)
			}
		case export.Close:
		default:
			c.end = ends[i]
		}
	}
	g.replaceDataAssignments()
	g.markCalls()
	g.findStates(next)
	g.findLeaves()
	g.functions = map[int]function{}
	for _, f := range p.Functions {
		if f.Begin < 0 || f.Begin >= f.End || f.End > len(p.Nodes) {
			return nil, fmt.Errorf("extra/vprof.json names nodes for the autograd.Function %s (%d to %d) that the "+
				"graph of %d nodes does not have; capture the model again", f.Name, f.Begin, f.End, len(p.Nodes))
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
			return nil, fmt.Errorf("extra/vprof.json names nodes for the kernel %s (%d to %d) that the graph of %d "+
				"nodes does not have; capture the model again", k.Kernel, k.Begin, k.End, len(p.Nodes))
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

// markCalls sets the attention kernels, the counts of masks' true elements, and the nodes that run on the CPU.
func (g *graph) markCalls() {
	if g.Extra == nil {
		return
	}
	kernels, counts := map[int32][]string{}, map[int32]*export.MaskCount{}
	for _, m := range g.Extra.Attention {
		kernels[m.Node] = m.Kernels
	}
	for i := range g.Extra.Counts {
		counts[g.Extra.Counts[i].Node] = &g.Extra.Counts[i]
	}
	host := lists.ToSet(g.Extra.Host.Nodes)
	for i, n := range g.Nodes {
		c := &g.calls[i]
		c.kernels, c.trueCount, c.onHost = kernels[n.Number], counts[n.Number], host[n.Number]
	}
}

// findLeaves sets the values on which forward calls requires_grad_().
func (g *graph) findLeaves() {
	if g.Extra == nil || len(g.Extra.Leaves) == 0 {
		return
	}
	made := resultsByName(g.Program)
	g.leaves = map[int32]bool{}
	for _, name := range g.Extra.Leaves {
		if v, known := made[name[strings.IndexByte(name, '/')+1:]]; known {
			g.leaves[v] = true
		}
	}
}

// itemTarget reads the number in a tensor of one element. A recording does not know such numbers; it can skip the ones
// that only checks use.
const itemTarget = "torch.ops.aten.item.default"

// selectTarget is x[i]. The index i may come from a tensor's value.
const selectTarget = "torch.ops.aten.select.int"

// onlyUsedInChecks reports for each node whether it is a check, or computes numbers that only checks and x[i] use.
func onlyUsedInChecks(p *export.Program) []bool {
	out := make([]bool, len(p.Nodes))
	taken := make([]bool, p.Values) // values that other nodes use
	for _, r := range p.Results {
		if r.Value >= 0 {
			taken[r.Value] = true
		}
	}
	for i := len(p.Nodes) - 1; i >= 0; i-- {
		n := &p.Nodes[i]
		out[i] = strings.HasPrefix(n.Target, "torch.ops.aten._assert_") ||
			strings.HasPrefix(n.Target, "torch.ops.aten.sym_constrain_range")
		if n.Target == itemTarget || sizeFunction(n.Target) != nil {
			out[i] = true
			eachOutput(n, func(v int32) { out[i] = out[i] && !taken[v] })
		}
		index := int32(-1) // the index of x[i] does not affect memory
		if n.Target == selectTarget {
			index = inputOf(n, "index")
		}
		if !out[i] {
			eachInput(n, func(v int32) { taken[v] = taken[v] || v != index })
		}
	}
	return out
}

// lookUp looks up the operator or size function of a target and reports whether it is known.
func (c *plannedCall) lookUp(target string) bool {
	if target == "" {
		c.skip = true
		return true
	}
	if c.number = sizeFunction(target); c.number != nil {
		return true
	}
	var ok bool
	c.op, ok = aten.ByTarget(target)
	return ok
}

// UnknownOperator is an operator that vprof cannot record.
type UnknownOperator struct {
	Target string
	// Count is the number of calls. Module and Line are the first call's.
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

// UnknownOperatorsError lists all operators of a model that vprof cannot record.
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

// Usage reports that the error is the user's (exit code 2).
func (*UnknownOperatorsError) Usage() bool { return true }

// dtypes maps the supported element types of files to the recorder's data types.
var dtypes = map[export.ScalarType]trace.DType{
	export.Byte:     trace.U8,
	export.Char:     trace.U8, // both have one byte
	export.Int:      trace.I32,
	export.Long:     trace.I64,
	export.Half:     trace.F16,
	export.Float:    trace.F32,
	export.Double:   trace.F64,
	export.Complex:  trace.C64,
	export.Bool:     trace.Bool,
	export.BFloat16: trace.BF16,
}

// replaceDataAssignments makes copies that capture wrote for p.data = x do the same: the parameter gets x's memory and
// frees its own.
func (g *graph) replaceDataAssignments() {
	if g.Extra == nil {
		return
	}
	assigned := lists.ToSet(g.Extra.Assigned)
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

// valueUses holds the nodes that compute and use each value.
type valueUses struct {
	producer []int   // the node that computes a value; -1 for inputs
	users    [][]int // the nodes that use a value, in order
}

func findUses(p *export.Program) valueUses {
	u := valueUses{producer: make([]int, p.Values), users: make([][]int, p.Values)}
	for v := range u.producer {
		u.producer[v] = -1
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, a := range n.Inputs {
			if a.Kind == export.Ref {
				u.users[a.Ref] = append(u.users[a.Ref], i)
			}
		}
		for _, o := range n.Outputs {
			if o.Kind == export.Ref {
				u.producer[o.Ref] = i
			}
		}
	}
	return u
}

// eachInput calls f for each value in a node's arguments.
func eachInput(n *export.Node, f func(v int32)) {
	for _, a := range n.Inputs {
		eachValue(a.Argument, f)
	}
}

// eachOutput calls f for each value in a node's results.
func eachOutput(n *export.Node, f func(v int32)) {
	for _, o := range n.Outputs {
		eachValue(o, f)
	}
}

// soleResult returns the value of a node with exactly one result; -1 for other nodes.
func soleResult(n *export.Node) int32 {
	if len(n.Outputs) == 1 && n.Outputs[0].Kind == export.Ref {
		return n.Outputs[0].Ref
	}
	return -1
}

func inputOf(n *export.Node, name string) int32 {
	if a := findArgument(n, name); a != nil && a.Kind == export.Ref {
		return a.Ref
	}
	return -1
}
