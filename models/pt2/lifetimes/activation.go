package lifetimes

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/pt2/export"
)

// activation is a running call of a Python function whose frame appears in the stack traces.
type activation struct {
	parent *activation
	depth  int
	file   string
	fn     string
	ended  bool
	// arguments are the values that the function received from its callers.
	arguments []int32
	names     []binding
	// kept are values in containers (x.append(y)) that live as long as the activation.
	kept []int32

	// The current statement: its line, its parsed text, and the result of its last call.
	line   int
	text   statement
	result []int32
	// made are the results of all calls of the current statement.
	made []int32
	// calls is the number of calls that the current statement has made.
	calls int
}

// binding is a Python variable name and the values that it is bound to.
type binding struct {
	name   string
	values []int32
	// inferred reports whether the name was guessed, since the binding statement made no call and so left no trace.
	inferred bool
}

// enter updates the stack of activations to a node's stack trace: it ends and begins calls of functions.
func (t *tracer) enter(n *export.Node) {
	if len(n.Trace) == 0 || len(n.Stack) == 0 || n.Module == "" && n.Stack[0] != "" {
		return // a call that export has put in
	}
	shared := t.shared(n)
	for len(t.stack) > shared {
		t.leave()
	}
	if shared > 0 {
		t.stack[shared-1].moveTo(t, n.Trace[shared-1], shared < len(n.Trace))
	}
	for d := shared; d < len(n.Trace); d++ {
		f := n.Trace[d]
		a := &activation{depth: d, file: f.File, fn: f.Func, line: f.Line, text: parse(f.Source)}
		if d > 0 {
			a.parent = t.stack[d-1]
		}
		t.stack = append(t.stack, a)
	}
	t.prev = n
}

// shared returns the number of running activations that a node's call is inside. Frames with the same line are the same
// activation. At the first frame with another line the activation continues, and the functions that it had called have
// returned. Where the modules differ, the frame of the first different module is new.
func (t *tracer) shared(n *export.Node) int {
	s := 0
	for s < len(t.stack) && s < len(n.Trace) {
		a, f := t.stack[s], n.Trace[s]
		if a.file != f.File || a.fn != f.Func {
			break
		}
		s++
		if a.line != f.Line {
			break
		}
	}
	if t.prev == nil {
		return s
	}
	common := 0
	for common < len(n.Stack) && common < len(t.prev.Stack) && n.Stack[common] == t.prev.Stack[common] {
		common++
	}
	if common < len(n.Stack) {
		s = min(s, frameOf(n, common))
	}
	return s
}

// frameOf returns the index of the frame of the m-th module in a node's stack trace: each module has one forward.
func frameOf(n *export.Node, m int) int {
	seen := 0
	for i := range n.Trace {
		if n.Trace[i].Func != "forward" {
			continue
		}
		if seen == m {
			return i
		}
		seen++
	}
	return len(n.Trace)
}

// leave ends the innermost activation. It releases the function's variables in the order of their binding, then its
// arguments, and passes the result to the caller.
func (t *tracer) leave() {
	a := t.stack[len(t.stack)-1]
	t.stack = t.stack[:len(t.stack)-1]
	result := a.result
	t.hold(result...)
	a.endStatement(t)
	a.ended = true
	for _, name := range a.names {
		t.release(name.values...)
	}
	t.release(a.kept...)
	t.release(a.arguments...)
	if a.parent != nil && len(result) > 0 {
		for _, v := range result {
			t.home[v] = a.parent
		}
		for _, v := range a.parent.setResult(t, result) {
			t.settle(v)
		}
	}
	t.release(result...)
}

// moveTo moves the activation to the next call's line. calling reports whether that line calls a function with a frame.
func (a *activation) moveTo(t *tracer, f export.Frame, calling bool) {
	text := parse(f.Source)
	again := a.text.single && calling && a.calls > 0 // of a loop over one line
	switch {
	case a.line == f.Line && !again:
		return
	case a.line != f.Line && text.goesOn:
		a.line = f.Line // the rest of a statement of several lines
		return
	}
	a.endStatement(t)
	a.line, a.text, a.calls = f.Line, text, 0
}

// setResult makes values the statement's current result. It returns the previous result, which has lost a reference and
// must be passed to settle.
func (a *activation) setResult(t *tracer, values []int32) (old []int32) {
	t.hold(values...)
	old = a.result
	a.result = values
	a.made = append(a.made, values...)
	a.calls++
	for _, v := range old {
		t.count[v]--
	}
	return old
}

// endStatement binds the statement's result to its names and drops the statement's own reference.
func (a *activation) endStatement(t *tracer) {
	result := a.result
	a.result = nil
	if len(result) > 0 {
		a.bind(t, result)
	}
	a.made = a.made[:0]
	t.release(result...)
}

// bind binds the statement's names to its result.
func (a *activation) bind(t *tracer, result []int32) {
	names := a.text.names
	switch {
	case a.text.keeps:
		t.hold(result...)
		a.kept = append(a.kept, result...)
	case len(names) == 0:
	case len(names) == len(result):
		for i, name := range names {
			a.set(t, binding{name: name, values: result[i : i+1]})
		}
	default:
		out := lists.Union(nil, lists.Filter(a.made, func(v int32) bool { return t.last[v] > t.now })...)
		if len(names) > 1 && len(out) == len(names) { // one of a function's several results
			for i, name := range names {
				a.set(t, binding{name: name, values: out[i : i+1]})
			}
			return
		}
		a.set(t, binding{name: names[0], values: result})
	}
}

// set binds a name, and releases the values that the name was bound to before.
func (a *activation) set(t *tracer, b binding) {
	for _, v := range b.values {
		t.hold(v)
		t.named[v] = true
	}
	for i := range a.names {
		if a.names[i].name == b.name {
			old := a.names[i].values
			a.names[i] = b
			t.release(old...)
			return
		}
	}
	a.names = append(a.names, b)
}

// infer guesses the name of a value whose binding statement made no call, such as "residual = x". Such a value has no
// name left but is used again, in a statement with exactly one unknown name.
func (a *activation) infer(t *tracer, v int32) {
	if t.count[v] > 0 || !t.named[v] {
		return
	}
	unknown := ""
	for _, name := range a.text.uses {
		if a.bound(name) {
			continue
		}
		if unknown != "" {
			return
		}
		unknown = name
	}
	if unknown != "" {
		a.set(t, binding{name: unknown, values: []int32{v}, inferred: true})
	}
}

func (a *activation) bound(name string) bool {
	return slices.ContainsFunc(a.names, func(b binding) bool { return b.name == name && !b.inferred })
}
