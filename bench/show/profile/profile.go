// Package profile computes the contents of memory during training steps of one case at one batch size, and writes them
// in formats of other tools: pprof, PyTorch's memory_viz, Perfetto.
//
// A profile is computed from the case whenever it is needed. Result files need not hold it, because recording and
// replaying a case always gives the same result.
package profile

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models/recorded"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// Profile holds the recorded steps of a case and their replay on a simulated GPU. Nothing in it is measured.
type Profile struct {
	Tool  report.Tool
	Case  report.Case
	Batch int
	GPU   device.GPU

	Program *program.Program
	// Run is the replay, with its timeline.
	Run *replay.Run
	// Events are the events of the allocator, in order.
	Events []Event
	// AtPeak and AtEnd are the layouts of the heap at the first moment with the most allocated bytes, and at the end of
	// the steps or when memory ran out.
	AtPeak, AtEnd *replay.Layout
	// Clock is the start time of each instruction: the sum of the lower bounds of all earlier kernels' times (see
	// [device.GPU.Roofline]).
	Clock []time.Duration
}

// Event is an event of the allocator.
type Event struct {
	// Instruction is the index of the program's instruction that caused it.
	Instruction int
	allocator.TraceEvent
}

// NewProfile replays a program with allocator settings on a GPU and keeps timeline, events and
// layouts. The caller fills in tool, case and batch.
func NewProfile(ctx context.Context, p *program.Program, gpu device.GPU, conf allocator.Config) (*Profile, error) {
	pr := &Profile{GPU: gpu, Program: p, Clock: instructionTimes(p, gpu)}
	o := replay.Options{
		Config: &conf, Total: gpu.Memory, Available: gpu.Memory - gpu.Context, Rising: gpu.Rising, Timeline: true,
	}
	o.Hooks.Trace = func(instruction int, e allocator.TraceEvent) {
		pr.Events = append(pr.Events, Event{instruction, e})
	}
	var err error
	if pr.Run, err = replay.Replay(ctx, p, o); err != nil {
		return nil, err
	}
	last := len(p.Instructions) - 1
	if pr.AtEnd, err = replay.SnapshotAt(ctx, p, o, last); err != nil {
		return nil, err
	}
	if pr.AtPeak, err = replay.SnapshotAt(ctx, p, o, max(0, pr.Run.Peak.Instruction)); err != nil {
		return nil, err
	}
	return pr, nil
}

// instructionTimes returns the start time of each instruction, from the kernels' times.
func instructionTimes(p *program.Program, gpu device.GPU) []time.Duration {
	times := make([]time.Duration, len(p.Instructions)+1)
	for i, in := range p.Instructions {
		times[i+1] = times[i]
		if in.Kind != program.Launch {
			continue
		}
		op := &p.Ops[in.Arg]
		times[i+1] += gpu.Roofline(op.FLOPs, traffic(p, op), op.Precision)
	}
	return times
}

// traffic returns the bytes that an op reads and writes.
func traffic(p *program.Program, op *program.Op) (bytes int64) {
	for _, span := range [...]program.Span{op.Reads, op.Writes} {
		for _, operand := range p.Operands[span.From:span.To] {
			bytes += operand.Bytes
		}
	}
	return bytes
}

// Site returns the site of a buffer's allocation.
func (p *Profile) Site(buffer uint32) program.Site {
	if s := p.Program.Buffers[buffer].Site; int(s) < len(p.Program.Sites) {
		return p.Program.Sites[s]
	}
	return program.Site{}
}

// Operator returns the operator of a site, with its autograd node in backward: "conv2d", "mm (AddmmBackward0)".
func Operator(s program.Site) string {
	if s.Op == "" {
		return cmp.Or(s.Node, "unknown")
	}
	return s.Op + phrase.If(s.Node != "", " (%s)", s.Node)
}

// End returns the number of executed instructions: all, unless memory ran out.
func (p *Profile) End() int {
	if p.Run.OOM != nil {
		return p.Run.OOM.Instruction
	}
	return len(p.Program.Instructions)
}

// Span is a phase and the half-open range of its instructions.
type Span struct {
	program.Phase
	From, To int
}

// Spans returns the phases that ran. The last one may be incomplete because memory ran out.
func (p *Profile) Spans() []Span {
	var spans []Span
	from := 0
	for i, in := range p.Program.Instructions[:p.End()] {
		if in.Kind == program.MarkPhase {
			spans = append(spans, Span{p.Program.Phases[in.Arg], from, i + 1})
			from = i + 1
		}
	}
	if o := p.Run.OOM; o != nil && from < p.End() {
		spans = append(spans, Span{o.Phase, from, p.End()})
	}
	return spans
}

// PeakStep returns the step of the peak and the half-open range of its instructions.
func (p *Profile) PeakStep() (step, from, to int) {
	step = p.Run.Peak.Phase.Step
	from = -1
	for _, s := range p.Spans() {
		if s.Step != step {
			continue
		}
		if from < 0 {
			from = s.From
		}
		to = s.To
	}
	if from < 0 { // a program without marks is one step
		from, to = 0, p.End()
	}
	return step, from, to
}

// ByClass returns the allocated bytes of each class at each point of the run's timeline. They sum to the point's.
func (p *Profile) ByClass() []program.Breakdown {
	series := make([]program.Breakdown, len(p.Run.Timeline))
	var now program.Breakdown
	var allocated int64
	for i, at := range p.Run.Timeline {
		in := p.Program.Instructions[at.Instruction]
		if in.Kind == program.Alloc || in.Kind == program.Free {
			now[p.Program.Buffers[in.Arg].Class] += at.Usage.Allocated - allocated
		}
		allocated = at.Usage.Allocated
		series[i] = now
	}
	return series
}

// String describes the profile in a line.
func (p *Profile) String() string {
	return fmt.Sprintf("%s, batch %d; simulated %s", p.Case, p.Batch, p.GPU.Product)
}

// WriteProgram writes the steps as a recorded program, which vprof reads as a model (run.vprof).
func (p *Profile) WriteProgram(w io.Writer) error {
	f := recorded.File{
		Header: recorded.Header{
			Name: p.Case.Model, GPU: p.GPU.Name, Torch: p.Case.ReleaseName(), AllocConf: p.Case.AllocConf,
		},
		Recordings: []*recorded.Recording{{Batch: p.Batch, Program: p.Program}},
	}
	return f.Write(w)
}
