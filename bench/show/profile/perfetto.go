package profile

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"

	"github.com/vprof/vprof/profiler/program"
)

// traceEvent is an entry of the Trace Event Format, which Perfetto and chrome://tracing read. Times are microseconds.
type traceEvent struct {
	Phase     string         `json:"ph"`
	Name      string         `json:"name"`
	Process   int            `json:"pid"`
	Thread    int            `json:"tid"`
	Time      float64        `json:"ts"`
	Duration  *float64       `json:"dur,omitempty"`
	Arguments map[string]any `json:"args,omitempty"`
}

// The threads of the trace: phases and kernels.
const (
	phaseThread  = 1
	kernelThread = 2
)

// WritePerfetto writes the steps as a JSON trace of the Trace Event Format: counters of the allocated bytes by class
// and of the reserved bytes, and a slice for each phase and kernel. Times are from [Profile.Clock].
func (p *Profile) WritePerfetto(w io.Writer) error {
	buffered := bufio.NewWriter(w)
	out := &eventWriter{json: json.NewEncoder(buffered), to: buffered}
	out.writeText(`{"displayTimeUnit":"ms","otherData":`)
	out.value(map[string]string{
		"case": p.String(), "tool": strings.TrimSpace("vprof " + p.Tool.Version),
		"time": "lower bounds of the kernels' times on " + p.GPU.Product + "; not measured",
	})
	out.writeText(`,"traceEvents":[`)
	name := func(what string, thread int, name string) {
		arguments := map[string]any{"name": name}
		out.event(traceEvent{Phase: "M", Name: what, Process: 1, Thread: thread, Arguments: arguments})
	}
	name("process_name", 0, p.String())
	name("thread_name", phaseThread, "phases")
	name("thread_name", kernelThread, "kernels (simulated)")
	for _, s := range p.Spans() {
		out.event(p.phaseEvent(s.String(), phaseThread, s.From, s.To))
	}
	p.kernels(out)
	p.counters(out)
	out.writeText("]}\n")
	if out.err != nil {
		return out.err
	}
	return buffered.Flush()
}

func (p *Profile) microsAt(instruction int) float64 {
	return float64(p.Clock[instruction].Nanoseconds()) / 1000
}

func (p *Profile) phaseEvent(name string, thread, from, to int) traceEvent {
	return traceEvent{
		Phase: "X", Name: name, Process: 1, Thread: thread, Time: p.microsAt(from),
		Duration: new(p.microsAt(to) - p.microsAt(from)),
	}
}

func (p *Profile) kernels(out *eventWriter) {
	for i, in := range p.Program.Instructions[:p.End()] {
		if in.Kind != program.Launch {
			continue
		}
		op := &p.Program.Ops[in.Arg]
		e := p.phaseEvent(op.Work.String(), kernelThread, i, i+1)
		if int(op.Site) < len(p.Program.Sites) {
			site := p.Program.Sites[op.Site]
			e.Name = Operator(site)
			e.Arguments = map[string]any{"work": op.Work.String(), "flops": op.FLOPs, "bytes": traffic(p.Program, op)}
			if site.Module != "" {
				e.Arguments["module"] = site.Module
			}
			if site.Where != "" {
				e.Arguments["line"] = site.Where
			}
		}
		out.event(e)
	}
}

func (p *Profile) counters(out *eventWriter) {
	for i, classes := range p.ByClass() {
		at := p.Run.Timeline[i]
		args, reserved := map[string]any{}, map[string]any{"reserved": at.Usage.Reserved}
		classes.EachVisible(func(c program.Class, bytes int64) { args[c.String()] = bytes })
		ts := p.microsAt(at.Instruction)
		out.event(traceEvent{Phase: "C", Name: "allocated bytes", Process: 1, Time: ts, Arguments: args})
		out.event(traceEvent{Phase: "C", Name: "reserved bytes", Process: 1, Time: ts, Arguments: reserved})
	}
}

// eventWriter writes JSON and keeps the first error.
type eventWriter struct {
	json  *json.Encoder
	to    io.Writer
	wrote bool
	err   error
}

func (e *eventWriter) writeText(s string) {
	if e.err == nil {
		_, e.err = io.WriteString(e.to, s)
	}
}

func (e *eventWriter) value(v any) {
	if e.err == nil {
		e.err = e.json.Encode(v)
	}
}

func (e *eventWriter) event(t traceEvent) {
	if e.wrote {
		e.writeText(",")
	}
	e.wrote = true
	e.value(t)
}
