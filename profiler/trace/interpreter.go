package trace

import (
	"iter"

	"github.com/vprof/vprof/profiler/program"
)

// interpreter is the part of a tape that tracks the running code: operator calls, Python frames, and the module, class
// and stream of new buffers.
type interpreter struct {
	*codeScope
	calls  []*Call // the stack of activations, of which depth are running
	depth  int
	temps  []*Tensor // temporaries of the activations that run
	locals []*Tensor // their C++ locals
	frames []*Frame  // ended frames, for reuse
	// activations counts the operator calls so far, except casts.
	activations int

	fromPython bool   // Python called op
	node       string // the running autograd node, "" in forward
	place      *place // the module that runs
	at         uint32 // index of the last event's site
	// siteFoundAt is the value of activations when the site was looked up. If that has changed, the site is looked up
	// again.
	siteFoundAt int

	step   int            // the training step, -1 in set-up
	class  program.Class  // of new buffers
	stream program.Stream // the current stream
	casts  autocast

	// wrappers are called around the forward passes of modules; nil if there are none.
	wrappers map[*Path]Wrapper
	// linear replaces PyTorch's operator for linear layers; nil for PyTorch's.
	linear func(f *Frame, x, weight, bias *Tensor) *Tensor
	// keepOutputs binds a model's outputs to variables, see [Tape.KeepOutputs].
	keepOutputs func(xs []*Tensor)
}

// codeScope describes the running code.
type codeScope struct {
	op     string         // operator called from Python or by the autograd node
	native string         // innermost operator
	point  recordingPoint // innermost activation, except casts
	python bool           // the innermost activation is Python, not C++
}

// recordingPoint is a position in a recording: the number of the innermost operator call, and the number of buffers
// when it began to compute.
type recordingPoint struct{ ordinal, buffers int }

// codeLocation is the state that other code, such as a hook, changes and that is restored afterwards.
type codeLocation struct {
	op, native, node string
	place            *place
	python           bool
}

func (in *interpreter) location() codeLocation {
	return codeLocation{in.op, in.native, in.node, in.place, in.python}
}

func (in *interpreter) resume(p codeLocation) {
	in.op, in.native, in.node, in.place, in.python = p.op, p.native, p.node, p.place, p.python
}

// withOp runs f as part of an operator with these names, with new buffers in class c.
func (in *interpreter) withOp(op, native string, c program.Class, f func()) {
	wasOp, wasNative, class := in.op, in.native, in.class
	in.op, in.native, in.class = op, native, c
	f()
	in.op, in.native, in.class = wasOp, wasNative, class
}

// withValue sets a variable to a value while f runs.
func withValue[T any](variable *T, value T, f func()) {
	before := *variable
	*variable = value
	f()
	*variable = before
}

// SetStep sets the training step of everything that is recorded from now on; -1 is set-up.
func (t *Tape) SetStep(step int) { t.step = step }

// Steps iterates over the numbers of n training steps, and of further ones while [Options.Further] returns true. Phases
// in the loop belong to that step.
func (t *Tape) Steps(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := 0; i < n || t.opts.Further != nil && t.opts.Further(t.soFar()); i++ {
			if t.step = i; !yield(i) {
				return
			}
		}
	}
}

// Step returns the number of the current step.
func (t *Tape) Step() int { return t.step }

// soFar returns the program recorded so far for the tape's own GPU. It is valid until recording continues.
func (t *Tape) soFar() *program.Program {
	p := t.prog
	t.gpus.programs(&p)
	return &p
}

// WithClass runs f with new buffers in class c.
func (t *Tape) WithClass(c program.Class, f func()) { withValue(&t.class, c, f) }

// OnStream runs f on a stream, as torch.cuda.stream does: allocations use the stream's pool, and kernels its queue.
func (t *Tape) OnStream(s program.Stream, f func()) { withValue(&t.stream, s, f) }
