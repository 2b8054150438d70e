package recorded

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// Step holds the allocations of set-up, or of one training step: forward, loss, backward and the end of the step.
type Step struct {
	Allocations []Allocation
	// Order lists the events: n is allocation n, ^n its free. Forward and Backward are the phases' ends in Order.
	Order             []int
	Forward, Backward int
	// Returned are the allocations that hold the model's results. If a training loop frees them after the loss, Order
	// has their frees there.
	Returned []int
	// Gradients are the positions of the gradients at the end of the step.
	Gradients []Gradient
	// Convolutions are the step's calls of cuDNN; none before PyTorch 2.11.
	Convolutions []Convolution
	// Held are the positions of parameters and then of buffers at the end of set-up.
	Held []Place

	sites []program.Site
	asked []Convolution // whose workspaces cuDNN is asked about, at a batch size that was not recorded
}

// Allocation is the size of an allocation, and its index in the recording's sites.
type Allocation struct {
	Bytes int64
	Site  uint32
}

// Place is the position of a tensor: an allocation, -1 for none, and an offset in bytes.
type Place struct {
	Allocation int
	Offset     int64
}

// Gradient is the position of a parameter's gradient.
type Gradient struct {
	Place
	Parameter string
}

// Convolution is one direction of a convolution: where its workspace is in a step's order, the workspace's allocation
// (-1 for none), and the description for cuDNN.
type Convolution struct {
	Place, Workspace int
	Question         query.Question
}

// nodeNames returns the compiled graph's nodes whose results an allocation holds one after the other, as "mul_34 >
// gelu_3"; empty if unknown.
func (s *Step) nodeNames(n int) string { return s.sites[s.Allocations[n].Site].Op }

func (s *Step) line(n int) string { return s.sites[s.Allocations[n].Site].Where }

// The phases of recorded steps; a mark ends each. Other phases, such as moving the batch to the GPU, are outside steps.
const (
	modelPhase    = "model"
	forwardPhase  = "forward"
	backwardPhase = "backward"
	endPhase      = "step_end"
)

// stepOf returns the step that a phase belongs to; nil for none.
func (r *Recording) stepOf(phase program.Phase) *Step {
	switch phase.Name {
	case modelPhase:
		return &r.setup
	case forwardPhase, backwardPhase, endPhase:
		if phase.Step == 0 || phase.Step == 1 {
			return &r.steps[phase.Step]
		}
	}
	return nil
}

// home is where a buffer is allocated: a step (nil for none) and the number of the allocation in that step.
type home struct {
	step *Step
	n    int
}

// splitIntoSteps divides a recording into set-up and two steps, and checks its notes. A buffer that the first step
// allocates and the second frees is freed at the end of the first.
func (r *Recording) splitIntoSteps(of *Steps) error {
	p := r.Program
	r.setup, r.steps = Step{sites: p.Sites}, [2]Step{{sites: p.Sites}, {sites: p.Sites}}
	homes, notes, from := make([]home, len(p.Buffers)), r.Notes, 0
	for to, in := range p.Instructions {
		if in.Kind != program.MarkPhase {
			continue
		}
		phase := p.Phases[in.Arg]
		s := r.stepOf(phase)
		for i := from; i <= to; i++ {
			for ; len(notes) > 0 && notes[0].At == i; notes = notes[1:] {
				if err := s.addNote(&notes[0], homes); err != nil {
					return err
				}
			}
			r.addEvent(s, p.Instructions[i], homes)
		}
		if s != nil && phase.Name == forwardPhase {
			s.Forward = len(s.Order)
		}
		if s != nil && phase.Name != endPhase {
			s.Backward = len(s.Order)
		}
		from = to + 1
	}
	return r.checkSteps(of)
}

// addEvent adds an allocation or a free to a step.
func (r *Recording) addEvent(s *Step, in program.Instruction, homes []home) {
	switch {
	case s == nil:
	case in.Kind == program.Alloc:
		b := r.Program.Buffers[in.Arg]
		homes[in.Arg] = home{s, len(s.Allocations)}
		s.Order = append(s.Order, len(s.Allocations))
		s.Allocations = append(s.Allocations, Allocation{b.Bytes, b.Site})
	case in.Kind == program.Free:
		if h := homes[in.Arg]; h.step == s || h.step != nil && h.step == &r.steps[0] && s == &r.steps[1] {
			h.step.Order = append(h.step.Order, ^h.n)
		}
	}
}

// addNote adds a note to a step. It drops notes about buffers of other steps.
func (s *Step) addNote(n *Note, homes []home) error {
	if s == nil {
		return nil
	}
	own := Place{Allocation: -1, Offset: n.Offset}
	if n.Buffer >= 0 && homes[n.Buffer].step == s {
		own.Allocation = homes[n.Buffer].n
	}
	switch n.Kind {
	case heldNote:
		s.Held = append(s.Held, own)
	case convolutionNote:
		question, err := query.ParseQuestion(n.Text)
		if err != nil {
			return err
		}
		c := Convolution{len(s.Order), -1, question}
		if n.Buffer >= 0 {
			c.Workspace = len(s.Allocations)
		}
		s.Convolutions = append(s.Convolutions, c)
	case returnedNote:
		if own.Allocation >= 0 {
			s.Returned = append(s.Returned, own.Allocation)
		}
	case gradientNote:
		if own.Allocation >= 0 {
			s.Gradients = append(s.Gradients, Gradient{own, n.Text})
		}
	default:
		return fmt.Errorf("unknown note %q; record again", n.Kind)
	}
	return nil
}

func (r *Recording) checkSteps(of *Steps) error {
	sizes := map[string]int64{}
	held := slices.Concat(of.Parameters, of.Buffers)
	if len(r.setup.Held) != len(held) {
		return fmt.Errorf("set-up allocates %d of the model's tensors: need all %d; record again",
			len(r.setup.Held), len(held))
	}
	for i, t := range held {
		n, err := t.bytes(1)
		if err != nil || r.setup.Held[i].Allocation >= 0 && !r.setup.hasRoom(r.setup.Held[i], n) {
			return fmt.Errorf("set-up does not allocate %q, or too few bytes for it; record again", t.Name)
		}
		sizes[t.Name] = n
	}
	if len(r.steps[1].Order) == 0 {
		return errors.New("the recording has one step: need two or more; record again")
	}
	for k := range r.steps {
		s := &r.steps[k]
		for _, c := range s.Convolutions {
			if c.Workspace >= 0 && (c.Place >= len(s.Order) || s.Order[c.Place] != c.Workspace) {
				return fmt.Errorf("step %d does not allocate the workspace of a convolution at event %d; record again",
					k, c.Place)
			}
		}
		for _, g := range s.Gradients {
			if n, known := sizes[g.Parameter]; !known || !s.hasRoom(g.Place, n) {
				return fmt.Errorf("step %d does not allocate the gradient of %q, or too few bytes for it; record again",
					k, g.Parameter)
			}
		}
	}
	return nil
}

// hasRoom reports whether a tensor fits at a position in an allocation that the step does not free.
func (s *Step) hasRoom(at Place, bytes int64) bool {
	size := s.Allocations[at.Allocation].Bytes
	return at.Offset >= 0 && size <= mostSize && bytes <= size-at.Offset && !slices.Contains(s.Order, ^at.Allocation)
}

// peak returns the largest number of bytes that a step's allocations hold at one time.
func (s *Step) peak() int64 {
	var now, most int64
	for _, n := range s.Order {
		if n >= 0 {
			now += s.Allocations[n].Bytes
			most = max(most, now)
		} else {
			now -= s.Allocations[^n].Bytes
		}
	}
	return most
}

// classes returns the class of each allocation of a step: buffers allocated in forward and freed in backward are
// activations, buffers freed earlier are temporary, and buffers never freed, except gradients, are workspaces of
// libraries. The model's results are activations if the loop keeps them.
func (s *Step) classes(keeps bool) []program.Class {
	classes := make([]program.Class, len(s.Allocations))
	forward := 0 // allocations of the forward pass
	for i, n := range s.Order {
		switch {
		case n >= 0:
			classes[n] = program.Workspace // unless it is freed
			if i < s.Forward {
				forward = n + 1
			}
		case i >= s.Forward && ^n < forward:
			classes[^n] = program.Activations
		default:
			classes[^n] = program.Temporaries
		}
	}
	for _, n := range s.Returned {
		if keeps {
			classes[n] = program.Activations
		}
	}
	for _, g := range s.Gradients {
		classes[g.Allocation] = program.Gradients
	}
	return classes
}
