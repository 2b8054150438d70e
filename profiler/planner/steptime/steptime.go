// Package steptime estimates the time of a training step on a GPU from the work of its program: the expected time of
// every op, by a table of kernel parameters, and a fixed time for each launch; or, if longer, the time in which the
// host can launch the kernels. Runs on a real device correct the expected times by class of kernel.
package steptime

import (
	"cmp"
	"math"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
)

// NumWorks is the number of classes of work on one GPU: all except collectives.
const NumWorks = int(program.OptimizerUpdate) + 1

// Load is the work of one training step on one GPU.
type Load struct {
	// Seconds is the roofline by class of work: the time if every kernel ran at the GPU's peak.
	Seconds [NumWorks]float64
	// Expected is the time of the kernels by class of work, by the table of kernel parameters, excluding launches.
	Expected [NumWorks]float64
	// Spread is the relative half width of the interval of Expected.
	Spread float64 `json:",omitempty"`
	// Launches is the number of kernels. Modules is the number of products, convolutions, attention calls and norms
	// among them, for which libraries choose a kernel, unless code of torch.compile launches them.
	Launches, Modules int
	// Schedule is the order of the work if it uses several streams.
	Schedule Schedule `json:",omitempty"`
	// Host is the time of a step's work in host memory, in seconds, at assumed speeds of the machine.
	Host float64 `json:",omitempty"`
	// Stretch is the step's duration relative to its work if it waits for other pipeline stages; zero without waiting.
	Stretch float64 `json:",omitempty"`
	// Compiled reports whether torch.compile runs the step, although it has the work of the eager kernels.
	Compiled bool `json:",omitempty"`
}

// KernelLoad returns the work of one step of a program on a GPU. It is zero for a GPU of unknown speed.
func KernelLoad(p *program.Program, gpu device.GPU, step int) Load {
	return DefaultKernels().Load(p, gpu, step)
}

// Load returns the work of one step by these parameters, like [KernelLoad].
func (k Kernels) Load(p *program.Program, gpu device.GPU, step int) Load {
	b := k.limitsFor(&gpu)
	total := Load{Spread: b.spread}
	from := 0
	for i, in := range p.Instructions {
		if in.Kind != program.MarkPhase {
			continue
		}
		if p.Phases[in.Arg].Step == step { // the phase that ends here is what the ops were for
			total = total.Plus(loadBetween(p, b, from, i), 1)
		}
		from = i + 1
	}
	return total
}

// loadBetween returns the work of a range of instructions.
func loadBetween(p *program.Program, b *kernelLimits, from, to int) (l Load) {
	for _, in := range p.Instructions[from:to] {
		if len(p.Streams) > 1 {
			l.Schedule.add(p, in, b)
		}
		if in.Kind == program.Launch {
			l.add(p, &p.Ops[in.Arg], b)
		}
	}
	return l
}

func (l *Load) add(p *program.Program, op *program.Op, b *kernelLimits) {
	if op.Work.IsCollective() {
		return
	}
	bytes := p.MovedBytes(op)
	// GPU.Roofline would round to nanoseconds, but some steps have ten thousand kernels of one nanosecond each.
	if rate := b.gpu.Peak.ForPrecision(op.Precision); rate > 0 && b.gpu.Bandwidth > 0 {
		roofline := max(float64(op.FLOPs)/rate, float64(bytes)/b.gpu.Bandwidth)
		l.Seconds[op.Work] += roofline
		l.Expected[op.Work] += max(roofline, b.seconds(p, op, bytes))
	}
	l.Launches++
	switch op.Work {
	case program.Matmul, program.Convolution, program.Attention, program.Normalization:
		l.Modules++
	}
}

// Steps of programs recorded under torch.compile that have the kernels of a micro-batch: those launched by generated
// code, and the others.
const generatedStep, otherStep = 2, 3

// CompiledLoad returns the work of the kernels of a micro-batch in a program recorded under torch.compile. Generated
// code needs as much host time for any kernel as a pointwise operator: 7 to 9 µs (tritonbench 1017, GB200).
func CompiledLoad(p *program.Program, gpu device.GPU) Load {
	l := KernelLoad(p, gpu, generatedStep)
	l.Modules, l.Spread = 0, max(l.Spread, DefaultKernels().parameter("compiled-spread", &gpu, program.FP32))
	return l.Plus(KernelLoad(p, gpu, otherStep), 1)
}

// Plus returns the load plus n times another load; n may be a fraction.
func (l Load) Plus(m Load, n float64) Load {
	for w := range l.Seconds {
		l.Seconds[w] += n * m.Seconds[w]
		l.Expected[w] += n * m.Expected[w]
	}
	l.Launches += int(math.Round(n * float64(m.Launches)))
	l.Modules += int(math.Round(n * float64(m.Modules)))
	l.Host += n * m.Host
	l.Spread = max(l.Spread, m.Spread)
	l.Schedule = append(l.Schedule, m.Schedule...)
	return l
}

// Roofline returns a lower bound of the step's time on the GPU, in seconds.
func (l Load) Roofline() float64 {
	sum := 0.0
	for _, s := range l.Seconds {
		sum += s
	}
	return sum
}

// Efficiency describes the speed of kernels by class of work.
type Efficiency struct {
	// Share is the expected time of the kernels of a class divided by their actual time: one by the table. Calibration
	// replaces it.
	Share [NumWorks]planner.Coefficient
	// RelativeToPeak reports whether Share is relative to the GPU's peak rates, as in calibrations made before the
	// table of kernel parameters.
	RelativeToPeak bool
	// Launch is the additional time of every kernel, in seconds.
	Launch planner.Coefficient
	// Dispatch is the time in seconds that Python, PyTorch's dispatcher and autograd take for every kernel, while the
	// GPU runs earlier kernels. Module is this time for the kernels that [Load.Modules] counts.
	Dispatch, Module planner.Coefficient
}

// fittedSource is the source of times that no calibration has corrected.
const fittedSource = "fitted to measured kernels and steps of other machines; intervals hold 145 of 156 measured " +
	"steps of model families left out; corrected by vprof calibrate"

// DefaultEfficiency returns the efficiency by the table of kernel parameters. Its error is the spread of the load.
func DefaultEfficiency() Efficiency { return DefaultKernels().Efficiency() }

// Efficiency returns the efficiency by these parameters.
func (k Kernels) Efficiency() Efficiency {
	var e Efficiency
	for w := range e.Share {
		e.Share[w] = planner.Coefficient{Name: "speed:" + program.Work(w).String(), Value: 1, Source: fittedSource}
	}
	number := func(name string, spread float64) planner.Coefficient {
		v := k.parameter(name, &device.GPU{}, program.FP32)
		return planner.Coefficient{Name: "speed:" + name, Value: v, StdErr: v * spread, Source: fittedSource}
	}
	e.Launch, e.Dispatch, e.Module = number("launch", 0), number("operator", hostStdErr), number("module", hostStdErr)
	e.Dispatch.Name = "speed:dispatch"
	return e
}

// WithHostTime returns the efficiency with the host's time per kernel launch multiplied by times.Value. The interval
// still includes the differences between models.
func (e Efficiency) WithHostTime(times planner.Coefficient) Efficiency {
	for _, c := range []*planner.Coefficient{&e.Dispatch, &e.Module} {
		c.Value *= times.Value
		c.StdErr, c.Source = c.Value*math.Hypot(hostStdErr, times.StdErr/times.Value), times.Source
	}
	return e
}

// hostStdErr is the relative standard error of the host's time per kernel: 90 % of the steps that waited for the host
// were within 39 % (one machine, PyTorch 2.11, eager, each family of models held out).
const hostStdErr = 0.2

// Estimate is a time in seconds and its 95 % interval.
type Estimate struct{ Seconds, Low, High float64 }

// Time estimates the time of a load. Errors of the shares are assumed to be fully correlated, since slow clocks or a
// shared GPU make all kernels slower; this gives the widest interval. The interval of a compiled step is even wider: it
// has fewer kernels, which read and write less and are called by generated code, and no measurement shows by how much.
func (e Efficiency) Time(l Load) Estimate {
	sum := float64(l.Launches) * e.Launch.Value
	spread := float64(l.Launches) * e.Launch.StdErr
	for w, s := range e.baseSeconds(&l) {
		k := e.Share[w]
		sum += s / k.Value
		relative := k.StdErr / k.Value
		relative = cmp.Or(relative, l.Spread/1.96)
		spread += s / k.Value * relative
	}
	if len(l.Schedule) > 0 {
		// Communication adds the time that is not overlapped with kernels.
		sum += max(0, l.Schedule.seconds(&e)-sum)
	}
	dispatch := e.Host(&l)
	unsure := 1.96 * dispatch * e.Dispatch.StdErr / max(e.Dispatch.Value, math.SmallestNonzeroFloat64)
	// A step takes at least the roofline's time, and at least the host's time to launch its kernels.
	t := Estimate{
		max(sum, dispatch), max(l.Roofline(), sum-1.96*spread, dispatch-unsure), max(sum+1.96*spread, dispatch+unsure),
	}
	t.Low = min(t.Low, t.Seconds) // a measured step may be faster, as caches spare traffic
	if l.Compiled {               // compiled code does not spare products
		t.Seconds, t.Low = sum, l.Seconds[program.Matmul]+l.Seconds[program.Convolution]+l.Seconds[program.Attention]
	}
	t = t.Plus(Estimate{l.Host, l.Host / hostSpreadFactor, l.Host * hostSpreadFactor})
	return t.Times(max(1, l.Stretch))
}

// baseSeconds returns the times to which the shares are relative.
func (e *Efficiency) baseSeconds(l *Load) *[NumWorks]float64 {
	if e.RelativeToPeak {
		return &l.Seconds
	}
	return &l.Expected
}

// Host returns the time that the host needs to launch the kernels, in seconds.
func (e *Efficiency) Host(l *Load) float64 {
	return float64(l.Launches-l.Modules)*e.Dispatch.Value + float64(l.Modules)*e.Module.Value
}

// HostBound reports whether the GPU waits for the host to launch its kernels.
func (e Efficiency) HostBound(l Load) bool { return !l.Compiled && e.Host(&l) > e.kernels(&l) }

// hostSpreadFactor is the factor by which machines may be faster or slower than assumed: PCIe 3.0 x8 to 5.0 x16, memory
// with two channels for all GPUs to three for each, and optimizers that read their state once or six times.
const hostSpreadFactor = 4

// kernels returns the time of a load's kernels, one after another.
func (e *Efficiency) kernels(l *Load) float64 {
	if l.Launches == 0 {
		return 0
	}
	sum := float64(l.Launches) * e.Launch.Value
	for w, s := range e.baseSeconds(l) {
		sum += s / e.Share[w].Value
	}
	return sum
}

// Times returns the estimate multiplied by n.
func (t Estimate) Times(n float64) Estimate { return Estimate{t.Seconds * n, t.Low * n, t.High * n} }

// Plus adds estimates whose errors are fully correlated.
func (t Estimate) Plus(u Estimate) Estimate {
	return Estimate{t.Seconds + u.Seconds, t.Low + u.Low, t.High + u.High}
}

// IsKnown reports whether the GPU's speed is known; otherwise the load is zero.
func (l Load) IsKnown() bool { return l.Roofline() > 0 && !math.IsInf(l.Roofline(), 0) }

// A Schedule is the work of a step on several streams, in launch order: kernels, collectives, events and waits.
type Schedule []ScheduleEntry

// ScheduleEntry is a part of a schedule: the work of a stream up to an event or a wait.
type ScheduleEntry struct {
	Stream program.Stream `json:",omitempty"`
	// Work is the load of consecutive kernels of the stream.
	Work Load `json:",omitzero"`
	// Sent is the time of a collective's bytes on the links, in seconds.
	Sent float64 `json:",omitempty"`
	// Event is the number of the event recorded after the work, Wait of the event awaited before it; zero is none.
	Event uint32 `json:",omitempty"`
	Wait  uint32 `json:",omitempty"`
}

func (s *Schedule) add(p *program.Program, in program.Instruction, b *kernelLimits) {
	switch in.Kind {
	case program.Launch:
		op := &p.Ops[in.Arg]
		if op.Work.IsCollective() {
			seconds := 0.0
			if b.gpu.LinkBandwidth > 0 {
				seconds = float64(p.SentBytes(op))/b.gpu.LinkBandwidth/b.link + b.collective
			}
			*s = append(*s, ScheduleEntry{Stream: op.Stream, Sent: seconds})
			return
		}
		if n := len(*s); n == 0 || (*s)[n-1].Stream != op.Stream || (*s)[n-1].Event != 0 || (*s)[n-1].Sent > 0 {
			*s = append(*s, ScheduleEntry{Stream: op.Stream})
		}
		(*s)[len(*s)-1].Work.add(p, op, b)
	case program.RecordEvent:
		*s = append(*s, ScheduleEntry{Stream: p.Events[in.Arg].Stream, Event: in.Arg + 1})
	case program.AwaitEvent:
		w := p.Waits[in.Arg]
		*s = append(*s, ScheduleEntry{Stream: w.Stream, Wait: w.Event + 1})
	}
}

// seconds returns the time of the schedule with kernels at the speed of e and collectives at the full speed of the
// links, concurrent with kernels of other streams.
func (s Schedule) seconds(e *Efficiency) float64 {
	clocks := map[program.Stream]float64{}
	events := map[uint32]float64{}
	end := 0.0
	for i := range s {
		x := &s[i]
		now := clocks[x.Stream]
		if x.Wait != 0 { // one of an earlier step is over
			now = max(now, events[x.Wait])
		}
		now += e.kernels(&x.Work) + x.Sent
		clocks[x.Stream] = now
		if x.Event != 0 {
			events[x.Event] = now
		}
		end = max(end, now)
	}
	return end
}
