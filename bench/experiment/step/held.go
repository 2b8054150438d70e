package step

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models/recorded"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// MaxBuffers is the number of torch.compile's buffers that reports show.
const MaxBuffers = 8

// LiveBuffers lists the allocations that are alive when the requested bytes of a program reach their maximum.
type LiveBuffers struct {
	p       *program.Program
	buffers []uint32 // in the order in which they were allocated
}

// LiveAtPeak returns the buffers that are alive when a program's requested bytes reach their maximum.
func LiveAtPeak(p *program.Program) LiveBuffers { return LiveAtPeakOf(p, nil) }

// LiveAtPeakOf returns the buffers that are alive when a program's requested bytes reach their maximum within the
// selected phases, and that these phases allocated. A nil function selects all phases.
func LiveAtPeakOf(p *program.Program, within func(*program.Phase) bool) LiveBuffers {
	most, peak, n := int64(0), 0, 0
	phases, now := allocatedIn(p), (*program.Phase)(nil)
	counts := func(phase *program.Phase) bool { return within == nil || phase != nil && within(phase) }
	for _, live := range p.Live() {
		if in := p.Instructions[n]; in.Kind == program.Alloc {
			now = phases[in.Arg]
		}
		if n++; live > most && counts(now) {
			most, peak = live, n
		}
	}
	return liveAt(p, peak, func(i uint32) bool { return counts(phases[i]) })
}

// liveAt returns the selected buffers that are alive after n instructions, in the order of their allocation.
func liveAt(p *program.Program, n int, selected func(buffer uint32) bool) LiveBuffers {
	h, freed := LiveBuffers{p: p}, make([]bool, len(p.Buffers))
	for _, in := range p.Instructions[:n] {
		switch {
		case in.Kind == program.Free:
			freed[in.Arg] = true
		case in.Kind == program.Alloc && selected(in.Arg):
			h.buffers = append(h.buffers, in.Arg)
		}
	}
	h.buffers = slices.DeleteFunc(h.buffers, func(buffer uint32) bool { return freed[buffer] })
	return h
}

// RepeatedLine finds source lines that allocated at least least buffers of one size and freed few of them in the same
// phase. It returns the line with the most bytes, and the buffers of this line, or of every such line, in all phases of
// this name, without the last of each phase. Modules count separately: a cache of each layer repeats no line.
func (h LiveBuffers) RepeatedLine(least int, every bool) (kept LiveBuffers, line string) {
	type key struct {
		program.Site
		phase string
		bytes int64
	}
	phases, now, most := allocatedIn(h.p), map[*program.Phase]bool{}, int64(0)
	keyOf := func(i uint32) key { return key{h.site(i), nameOf(phases[i]), h.p.Buffers[i].Bytes} }
	counts, made := map[key]int{}, map[key]int{}
	for _, i := range h.buffers {
		counts[keyOf(i)]++
		now[phases[i]] = true
	}
	for i, phase := range phases {
		if now[phase] {
			made[keyOf(uint32(i))]++
		}
	}
	maps.DeleteFunc(counts, func(k key, n int) bool { return n < least || 2*n < made[k] || k.Where == "" })
	for k, n := range counts {
		if sum := k.bytes * int64(n-1); sum > most || sum == most && k.Where < line {
			most, line = sum, k.Where
		}
	}
	last, in := map[[2]any]uint32{}, func(i uint32) [2]any { return [2]any{keyOf(i), phases[i]} }
	kept = selectBuffers(h.p, func(i uint32) bool {
		last[in(i)] = i
		return counts[keyOf(i)] > 0 && (every || h.site(i).Where == line)
	})
	kept.buffers = slices.DeleteFunc(kept.buffers, func(i uint32) bool { return last[in(i)] == i })
	return kept, line
}

// CheckpointCopies returns the buffers that saving a checkpoint allocates, and all buffers from source lines that
// mainly allocate during saves.
func CheckpointCopies(p *program.Program) LiveBuffers {
	phases, sums := allocatedIn(p), map[string]int64{}
	saves := func(i uint32) bool { return nameOf(phases[i]) == "saving" }
	for i, b := range p.Buffers {
		more := -b.Bytes
		if saves(uint32(i)) {
			more = b.Bytes
		}
		sums[p.Sites[b.Site].Where] += more
	}
	delete(sums, "") // the lines that are not known are not one
	return selectBuffers(p, func(i uint32) bool { return saves(i) || sums[p.Sites[p.Buffers[i].Site].Where] > 0 })
}

func selectBuffers(p *program.Program, which func(buffer uint32) bool) LiveBuffers {
	h := LiveBuffers{p: p}
	for i := range uint32(len(p.Buffers)) {
		if which(i) {
			h.buffers = append(h.buffers, i)
		}
	}
	return h
}

// PeaksWithout returns the peaks of the program replayed without these buffers; nil if there are no buffers.
func (h LiveBuffers) PeaksWithout(ctx context.Context, gpu device.GPU, conf allocator.Config) (*report.Peaks, error) {
	if len(h.buffers) == 0 {
		return nil, nil
	}
	again := *h.p
	again.Instructions = slices.DeleteFunc(slices.Clone(h.p.Instructions), func(in program.Instruction) bool {
		_, left := slices.BinarySearch(h.buffers, in.Arg)
		return left && (in.Kind == program.Alloc || in.Kind == program.Free)
	})
	return replayPeaks(ctx, &again, gpu, conf)
}

// KeptAfterStep returns the buffers that the step made allocated and that are alive at the program's end.
func KeptAfterStep(p *program.Program, made int) LiveBuffers {
	phases := allocatedIn(p)
	return liveAt(p, len(p.Instructions), func(i uint32) bool { return phases[i] != nil && phases[i].Step == made })
}

// Bytes returns the requested bytes of all these buffers.
func (h LiveBuffers) Bytes() (sum int64) {
	for _, i := range h.buffers {
		sum += h.p.Buffers[i].Bytes
	}
	return sum
}

// allocatedIn returns the phase in which each buffer was allocated, by the buffer's number; nil for buffers after the
// last mark, which ends the last phase.
func allocatedIn(p *program.Program) []*program.Phase {
	phases, pending := make([]*program.Phase, len(p.Buffers)), []uint32{}
	for _, in := range p.Instructions {
		switch in.Kind {
		case program.Alloc:
			pending = append(pending, in.Arg)
		case program.MarkPhase:
			for _, buffer := range pending {
				phases[buffer] = &p.Phases[in.Arg]
			}
			pending = pending[:0]
		}
	}
	return phases
}

// nameOf returns the name of a phase; empty for no phase.
func nameOf(phase *program.Phase) string { return cmp.Or(phase, new(program.Phase)).Name }

func (h LiveBuffers) site(buffer uint32) program.Site { return h.p.Sites[h.p.Buffers[buffer].Site] }

// Lines returns the n lines of the user's source with the most live bytes.
func (h LiveBuffers) Lines(n int) []report.Component {
	return h.sumByName(n, func(s program.Site) string { return s.Where })
}

// CallersBelow returns the n library lines (with module paths) with the most live bytes, among the allocations made
// through one line of the user's source.
func (h LiveBuffers) CallersBelow(line string, n int) []report.Component {
	return h.sumByName(n, func(s program.Site) string {
		if s.Where != line || s.Native == "" {
			return ""
		}
		return strings.TrimSpace(s.Module + " " + s.Native)
	})
}

// sumByName sums bytes by the name of their site and returns the n largest sums; sites with an empty name are left out.
func (h LiveBuffers) sumByName(n int, name func(program.Site) string) []report.Component {
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

// Holders returns the bytes by allocating line and phase, largest first, except lines below a thousandth of all.
func (h LiveBuffers) Holders() []report.Holder {
	phases := allocatedIn(h.p)
	sums, total := map[report.Holder]int64{}, int64(0)
	for _, i := range h.buffers {
		holder, bytes := report.Holder{Line: h.site(i).Where, Phase: nameOf(phases[i])}, h.p.Buffers[i].Bytes
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

// CompiledBuffers returns the n largest buffers of compiled graphs. Buffers of the same name are summed.
func (h LiveBuffers) CompiledBuffers(n int) []report.Buffer {
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

// tuningOp is the operator name of allocations made by Inductor's autotuning.
const tuningOp = "autotuning"

// PeaksWithoutTuning returns the peaks of a program without the allocations of Inductor's autotuning, which later runs
// skip by its cache. It returns nil if nothing is autotuned.
func PeaksWithoutTuning(
	ctx context.Context, p *program.Program, gpu device.GPU, conf allocator.Config,
) (*report.Peaks, error) {
	tunes := func(i uint32) bool { return p.Sites[p.Buffers[i].Site].Op == tuningOp }
	return selectBuffers(p, tunes).PeaksWithout(ctx, gpu, conf)
}

func replayPeaks(
	ctx context.Context, p *program.Program, gpu device.GPU, conf allocator.Config,
) (*report.Peaks, error) {
	run, err := Simulate(ctx, p, gpu, conf, 0)
	if err != nil {
		return nil, err
	}
	return &report.Peaks{Allocated: run.Max.Allocated, Reserved: run.Max.Reserved}, nil
}
