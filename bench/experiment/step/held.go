package step

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models/recorded"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// MostBuffers are shown of compiled graphs.
const MostBuffers = 8

// Held lists the allocations that are alive when the requested bytes of a program reach their maximum.
type Held struct {
	p       *program.Program
	buffers []uint32 // in the order in which they were allocated
}

// AtPeak finds what a program holds when its requested bytes are highest.
func AtPeak(p *program.Program) Held { return PeakOf(p, nil) }

// PeakOf returns what a program holds at the peak of its requested bytes within the selected phases, of what these
// phases allocated. A nil function selects all phases.
func PeakOf(p *program.Program, within func(*program.Phase) bool) Held {
	most, peak, n := int64(0), 0, 0
	phases, now := []*program.Phase(nil), (*program.Phase)(nil)
	if within != nil {
		phases = allocatedIn(p)
	}
	counts := func(phase *program.Phase) bool { return within == nil || phase != nil && within(phase) }
	for _, live := range p.Live() {
		if in := p.Instructions[n]; in.Kind == program.Alloc && within != nil {
			now = phases[in.Arg]
		}
		if n++; live > most && counts(now) {
			most, peak = live, n
		}
	}
	h, freed := Held{p: p}, make([]bool, len(p.Buffers))
	for _, in := range p.Instructions[:peak] {
		if in.Kind == program.Free {
			freed[in.Arg] = true
		}
	}
	for _, in := range p.Instructions[:peak] {
		if in.Kind == program.Alloc && !freed[in.Arg] && (within == nil || counts(phases[in.Arg])) {
			h.buffers = append(h.buffers, in.Arg)
		}
	}
	return h
}

// Repeated returns the line that holds most in buffers of one size, of which there are at least so many, and their bytes
// without the last buffer; and the bytes of all such lines. Lines of libraries are told apart, too.
func (h Held) Repeated(least int) (most int64, line string, all int64) {
	type key struct {
		line, below string
		bytes       int64
	}
	counts := map[key]int{}
	for _, i := range h.buffers {
		counts[key{h.site(i).Where, h.site(i).Native, h.p.Buffers[i].Bytes}]++
	}
	for k, n := range counts {
		sum := k.bytes * int64(n-1)
		if n < least || k.line == "" {
			continue
		}
		if all += sum; sum > most || sum == most && k.line < line {
			most, line = sum, k.line
		}
	}
	return most, line, all
}

// KeptOf finds what a program holds at its end of the buffers that it made in a step.
func KeptOf(p *program.Program, made int) Held {
	h, phases, freed := Held{p: p}, allocatedIn(p), make([]bool, len(p.Buffers))
	for _, in := range p.Instructions {
		switch in.Kind {
		case program.Free:
			freed[in.Arg] = true
		case program.Alloc:
			if phase := phases[in.Arg]; phase != nil && phase.Step == made {
				h.buffers = append(h.buffers, in.Arg)
			}
		}
	}
	h.buffers = slices.DeleteFunc(h.buffers, func(buffer uint32) bool { return freed[buffer] })
	return h
}

// Bytes returns the requested bytes of all that is held.
func (h Held) Bytes() (sum int64) {
	for _, i := range h.buffers {
		sum += h.p.Buffers[i].Bytes
	}
	return sum
}

// allocatedIn returns the phases in which buffers were allocated, by the number of the buffer; nil behind the last mark,
// each of which ends a phase.
func allocatedIn(p *program.Program) []*program.Phase {
	phases, pending := make([]*program.Phase, len(p.Buffers)), []uint32{}
	for _, in := range p.Instructions {
		switch in.Kind {
		case program.Alloc:
			pending = append(pending, in.Arg)
		case program.Mark:
			for _, buffer := range pending {
				phases[buffer] = &p.Phases[in.Arg]
			}
			pending = pending[:0]
		}
	}
	return phases
}

// site returns where a buffer was allocated.
func (h Held) site(buffer uint32) program.Site { return h.p.Sites[h.p.Buffers[buffer].Site] }

// Lines returns the lines of the user's source that hold most, at most n of them.
func (h Held) Lines(n int) []report.Component {
	return h.named(n, func(s program.Site) string { return s.Where })
}

// Below returns the lines of libraries, with the paths of their modules, that hold most of what a line of the user's
// source calls, at most n of them.
func (h Held) Below(line string, n int) []report.Component {
	return h.named(n, func(s program.Site) string {
		if s.Where != line || s.Native == "" {
			return ""
		}
		return strings.TrimSpace(s.Module + " " + s.Native)
	})
}

// named returns the names that hold most, at most n of them. name names the site of a buffer; "" leaves it out.
func (h Held) named(n int, name func(program.Site) string) []report.Component {
	byLine := map[string]int64{}
	for _, i := range h.buffers {
		if line := name(h.site(i)); line != "" {
			byLine[line] += h.p.Buffers[i].Bytes
		}
	}
	all := make([]report.Component, 0, len(byLine))
	for line, bytes := range byLine {
		all = append(all, report.Component{Name: line, Bytes: bytes})
	}
	slices.SortFunc(all, func(a, b report.Component) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	return all[:min(n, len(all))]
}

// Holders returns what each line holds, by the phase in which it was allocated, the largest first, without lines that
// hold less than a thousandth of all.
func (h Held) Holders() []report.Holder {
	phases := allocatedIn(h.p)
	sums, total := map[report.Holder]int64{}, int64(0)
	for _, i := range h.buffers {
		holder, bytes := report.Holder{Line: h.site(i).Where}, h.p.Buffers[i].Bytes
		if phase := phases[i]; phase != nil {
			holder.Phase = phase.Name
		}
		sums[holder] += bytes
		total += bytes
	}
	all := []report.Holder{}
	for holder, bytes := range sums {
		if holder.Bytes = bytes; bytes*1000 >= total {
			all = append(all, holder)
		}
	}
	slices.SortFunc(all, func(a, b report.Holder) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Phase, b.Phase))
	})
	return all
}

// Compiled returns the buffers of compiled graphs that hold most, at most n of them; buffers of one name count as one.
func (h Held) Compiled(n int) []report.Buffer {
	type key struct {
		program.Site
		program.Class
	}
	var all []report.Buffer
	at := map[key]int{}
	for _, i := range h.buffers {
		b, site := h.p.Buffers[i], h.site(i)
		if site.Op == "" || site.Op == recorded.Unnamed || site.Where == "" {
			continue
		}
		k := key{site, b.Class}
		if _, known := at[k]; !known {
			names := strings.Split(site.Op, " > ")
			at[k] = len(all)
			all = append(all, report.Buffer{
				Name: names[0], Line: site.Where, Saved: b.Class == program.Activations, Reused: names[1:],
			})
		}
		all[at[k]].Count++
		all[at[k]].Bytes += b.Bytes
	}
	slices.SortStableFunc(all, func(a, b report.Buffer) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all[:min(n, len(all))]
}

// tuning is the operator of what Inductor allocates to tune.
const tuning = "autotuning"

// Tuned returns the peaks of a program without what Inductor allocates to tune, which it does once for code that it
// finds in its cache later on. It is nil if nothing is tuned.
func Tuned(ctx context.Context, p *program.Program, gpu device.GPU, conf allocator.Config) (*report.Peaks, error) {
	again := *p
	again.Instructions = slices.DeleteFunc(slices.Clone(p.Instructions), func(in program.Instruction) bool {
		return (in.Kind == program.Alloc || in.Kind == program.Free) && p.Sites[p.Buffers[in.Arg].Site].Op == tuning
	})
	if len(again.Instructions) == len(p.Instructions) {
		return nil, nil
	}
	return peaks(ctx, &again, gpu, conf)
}

// peaks returns the peaks of a program on a simulated GPU.
func peaks(ctx context.Context, p *program.Program, gpu device.GPU, conf allocator.Config) (*report.Peaks, error) {
	run, err := Simulate(ctx, p, gpu, conf, 0)
	if err != nil {
		return nil, err
	}
	return &report.Peaks{Allocated: run.Max.Allocated, Reserved: run.Max.Reserved}, nil
}
