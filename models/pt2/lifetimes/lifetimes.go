// Package lifetimes finds when Python releases the values of an exported graph.
//
// A graph has values without names, but each call has a stack trace with source lines. From these the package
// reconstructs the activations of forward methods and their statements: the name that a result is bound to, and when
// the name is rebound. It then counts references as Python does:
//
// - a name holds its value until it is rebound or its activation ends;
//
// Since torch 2.8 traces have the frames of forward methods alone, so that names in functions that forward calls are
// not seen: their values count as having none.
package lifetimes

import (
	"slices"

	"github.com/vprof/vprof/models/pt2/export"
)

// Find sets Dies of a program's nodes from the releases that were observed, or else from the stack traces.
func Find(p *export.Program) error {
	if p.Extra != nil && p.Extra.Dies != nil {
		return findObserved(p)
	}
	t := newTracer(p)
	for i := range p.Nodes {
		if p.Nodes[i].Block == export.Call {
			t.processNode(i)
		}
	}
	t.finish()
	return nil
}

// tracer follows the calls of a program and counts the Python references of its values.
type tracer struct {
	p     *export.Program
	now   int // the node that has run last
	last  []int
	count []int // references that can be seen
	dead  []bool
	fixed []bool // inputs and results, which others hold

	stack []*activation
	prev  *export.Node
	home  []*activation // where a value is an object of Python's
	named []bool        // a name was bound to it
}

func newTracer(p *export.Program) *tracer {
	t := &tracer{
		p: p, last: lastUses(p), count: make([]int, p.Values), dead: make([]bool, p.Values),
		fixed: make([]bool, p.Values), home: make([]*activation, p.Values), named: make([]bool, p.Values),
	}
	for i := range p.Inputs {
		if v := p.Inputs[i].Value; v >= 0 {
			t.fixed[v] = true
		}
	}
	for _, r := range p.Results {
		if r.Value >= 0 {
			t.fixed[r.Value] = true
		}
	}
	return t
}

// inputs returns the values among a node's arguments.
func inputs(n *export.Node) (values []int32) {
	for _, a := range n.Inputs {
		eachValue(a.Argument, func(v int32) { values = append(values, v) })
	}
	return values
}

func outputs(n *export.Node) (values []int32) {
	for _, o := range n.Outputs {
		eachValue(o, func(v int32) { values = append(values, v) })
	}
	return values
}

// eachValue calls f for each of the graph's values in an argument.
func eachValue(a export.Argument, f func(v int32)) {
	if a.Kind == export.Ref {
		f(a.Ref)
	}
	for _, x := range a.List {
		eachValue(x, f)
	}
}

// processNode enters the function of node i, and releases the values that the node was the last to use.
func (t *tracer) processNode(i int) {
	n := &t.p.Nodes[i]
	t.enter(n)
	taken, made := inputs(n), outputs(n)
	for _, v := range taken {
		t.use(v)
	}
	t.now = i
	for _, v := range made {
		if len(t.stack) > 0 {
			t.home[v] = t.stack[len(t.stack)-1]
		}
	}
	var before []int32
	if len(t.stack) > 0 && len(made) > 0 {
		before = t.stack[len(t.stack)-1].setResult(t, made)
	}
	for _, values := range [][]int32{taken, before, made} {
		for _, v := range values {
			t.settle(v)
		}
	}
}

// use records that the innermost activation uses a value. If another activation created it, the function called by that
// one holds it as an argument until it returns.
func (t *tracer) use(v int32) {
	if t.fixed[v] || len(t.stack) == 0 {
		return
	}
	home := t.home[v]
	for home != nil && home.ended {
		home = home.parent // which it was returned to
	}
	t.home[v] = home
	if home == nil {
		return
	}
	if home.depth+1 < len(t.stack) {
		callee := t.stack[home.depth+1]
		if !slices.Contains(callee.arguments, v) {
			callee.arguments = append(callee.arguments, v)
			t.count[v]++
		}
	}
	home.infer(t, v)
}

// hold adds a reference to each value, and release drops one.
func (t *tracer) hold(values ...int32) {
	for _, v := range values {
		t.count[v]++
	}
}

func (t *tracer) release(values ...int32) {
	for _, v := range values {
		t.count[v]--
		t.settle(v)
	}
}

// settle marks a value as released after the current node if it has no reference and no later use.
func (t *tracer) settle(v int32) {
	if t.count[v] > 0 || t.dead[v] || t.fixed[v] || t.last[v] > t.now {
		return
	}
	t.dead[v] = true
	n := &t.p.Nodes[t.now]
	n.Dies = append(n.Dies, v)
}

func (t *tracer) finish() {
	for len(t.stack) > 0 {
		t.leave()
	}
}
