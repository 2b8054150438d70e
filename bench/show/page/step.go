package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
)

// step is the data of a step in the templates.
type step struct {
	// ID is the suffix of HTML ids, if a page shows two steps.
	ID          string
	Batch, Step int
	// On is the name of the GPU, if the page shows several.
	On  string
	OOM string
	// Note describes a difference from the step of the runs.
	Note    string
	Peak    string
	Phase   string
	Largest []tensor
	Rest    string
	Heap    heapSums
	// Lanes are the streams of the step; nil if there is only one.
	Lanes []streamLane
	Data  stepData
}

// tensor is a row of the table of the largest tensors.
type tensor struct {
	Bytes                  int64
	Class, Key, Op, Module string
	Share                  float64
}

// heapSums divides the reserved memory at the peak.
type heapSums struct {
	Reserved, Tensors, Rounding, Holes, LargestHole int64
	Segments, Blocks                                int
}

// stepData is the data that page.js draws. It consists of parallel lists with an entry for each event or buffer, since
// objects would need far more space.
type stepData struct {
	Classes []string `json:"classes"`
	// Start are the allocated bytes by class before the first event.
	Start []int64 `json:"start"`
	// Events are numbers: b is the allocation of buffer b, and -1-b its free.
	Events []int `json:"events"`
	// Reserved holds pairs: an event, and the reserved bytes from that event on.
	Reserved [][2]int64 `json:"reserved"`
	// Bytes, Class and Site hold the size, class and site of each buffer.
	Bytes []int64 `json:"bytes"`
	Class []int   `json:"class"`
	Site  []int   `json:"site"`
	// Sites are pairs of operator and module.
	Sites  [][2]string `json:"sites"`
	Phases []phaseData `json:"phases"`
	// Peak is the index of the event with the most allocated bytes.
	Peak int `json:"peak"`
	// Top describes the largest tensor at the peak.
	Top   string `json:"top,omitempty"`
	Limit int64  `json:"limit"`
	// Scale is the smallest end of the memory axis, in bytes.
	Scale int64      `json:"scale,omitempty"`
	Flame *flameNode `json:"flame"`
	// Segments are lists of blocks, each with size, class (-1 for free memory) and site.
	Segments [][][3]int64 `json:"segments"`
}

type phaseData struct {
	Name string `json:"name"`
	From int    `json:"from"`
	To   int    `json:"to"`
}

// flameNode is a model, module or operator with the bytes that it holds at the peak.
type flameNode struct {
	Name  string       `json:"n"`
	Bytes int64        `json:"b"`
	Class int          `json:"c"`
	Kids  []*flameNode `json:"k,omitempty"`

	classes program.Breakdown
	index   map[string]*flameNode
}

// largestTensors is the number of rows of the table of the largest tensors.
const largestTensors = 20

func newStep(p *profile.Profile) *step {
	number, from, to := p.PeakStep()
	s := &step{
		Batch: p.Batch, Step: number, Peak: bytesize.Format(p.Run.Peak.Usage.Allocated),
		Phase: p.Run.Peak.Phase.Name,
	}
	if p.Run.OOM != nil {
		s.OOM = fmt.Sprintf("%s asked for %s and did not get it", profile.Operator(p.Run.OOM.Site),
			bytesize.Format(p.Run.OOM.Requested))
	}
	total := p.Run.Peak.Usage.Allocated
	for _, h := range p.Run.Peak.Largest(largestTensors) {
		site := p.Site(h.Buffer)
		s.Largest = append(s.Largest, tensor{
			h.Allocated, h.Class.String(), cssKey(h.Class.String()),
			profile.Operator(site), siteText(site), float64(h.Allocated) / float64(max(1, total)),
		})
	}
	if more := len(p.Run.Peak.Live) - len(s.Largest); more > 0 {
		var rest int64
		for _, h := range p.Run.Peak.Largest(len(p.Run.Peak.Live))[len(s.Largest):] {
			rest += h.Allocated
		}
		s.Rest = fmt.Sprintf("and %d smaller ones with %s together", more, bytesize.Format(rest))
	}
	s.Data = timeline(p, from, to)
	if len(s.Largest) > 0 {
		t := s.Largest[0]
		s.Data.Top = fmt.Sprintf("%s of %s, %s", bytesize.Format(t.Bytes), t.Class,
			strings.TrimSpace(t.Op+" "+t.Module))
	}
	s.Lanes = newLanes(p, from, to)
	s.Data.Flame = flameGraph(p)
	s.Data.Segments, s.Heap = heapMap(p, &s.Data)
	return s
}

// siteText returns the module of a site, with the source line if it is known.
func siteText(s program.Site) string {
	if s.Where == "" {
		return s.Module
	}
	return strings.TrimSpace(s.Module + " " + s.Where)
}

// siteIndices assigns indices to allocation sites, by which the page's data refers to them.
type siteIndices struct {
	data  *stepData
	index map[[2]string]int
}

func (s *siteIndices) indexOf(p *profile.Profile, buffer uint32) int {
	site := p.Site(buffer)
	key := [2]string{profile.Operator(site), siteText(site)}
	i, seen := s.index[key]
	if !seen {
		i = len(s.data.Sites)
		s.index[key] = i
		s.data.Sites = append(s.data.Sites, key)
	}
	return i
}

// timeline returns the events of a range of instructions.
func timeline(p *profile.Profile, from, to int) stepData {
	d := stepData{Start: make([]int64, program.NumClasses), Limit: p.GPU.Memory - p.GPU.Context, Reserved: [][2]int64{}}
	for c := range program.NumClasses {
		d.Classes = append(d.Classes, program.Class(c).String())
	}
	known := map[uint32]int{}
	numbered := siteIndices{&d, map[[2]string]int{}}
	at := map[int]int{} // instruction to event
	var before, reserved int64
	sizes := map[uint32]int64{}
	for i, classes := range p.ByClass() {
		point := p.Run.Timeline[i]
		in := p.Program.Instructions[point.Instruction]
		delta := point.Usage.Allocated - before
		before = point.Usage.Allocated
		if in.Kind == program.Alloc {
			sizes[in.Arg] = delta
		}
		switch {
		case point.Instruction < from:
			copy(d.Start, classes[:])
			continue
		case point.Instruction >= to || in.Kind != program.Alloc && in.Kind != program.Free:
			continue
		}
		b, seen := known[in.Arg]
		if !seen {
			b = len(d.Bytes)
			known[in.Arg] = b
			d.Bytes = append(d.Bytes, sizes[in.Arg])
			d.Class = append(d.Class, int(p.Program.Buffers[in.Arg].Class))
			d.Site = append(d.Site, numbered.indexOf(p, in.Arg))
		}
		at[point.Instruction] = len(d.Events)
		if point.Usage.Reserved != reserved {
			reserved = point.Usage.Reserved
			d.Reserved = append(d.Reserved, [2]int64{int64(len(d.Events)), reserved})
		}
		if in.Kind == program.Free {
			b = -1 - b
		}
		d.Events = append(d.Events, b)
	}
	d.Peak = at[p.Run.Peak.Instruction]
	d.Phases = phases(p, from, to)
	return d
}

func countEvents(list []program.Instruction) int {
	return len(lists.Filter(list, func(in program.Instruction) bool {
		return in.Kind == program.Alloc || in.Kind == program.Free
	}))
}

// phases returns the phases within a range of instructions, which count events.
func phases(p *profile.Profile, from, to int) []phaseData {
	event := func(instruction int) int { return countEvents(p.Program.Instructions[from:instruction]) }
	var out []phaseData
	for _, s := range p.Spans() {
		if s.From >= from && s.To <= to {
			if d := (phaseData{s.Name, event(s.From), event(s.To)}); d.To > d.From {
				out = append(out, d)
			}
		}
	}
	return out
}

// flameGraph sums the bytes of the live buffers at the peak by module and operator.
func flameGraph(p *profile.Profile) *flameNode {
	root := &flameNode{Name: p.Case.Model}
	for _, h := range p.Run.Peak.Live {
		node := root
		stack := p.Stack(h.Buffer)
		node.add(h.Class, h.Allocated)
		prefix := 0
		for i, frame := range stack[1:] {
			name := frame
			if site := p.Site(h.Buffer); site.Module != "" && i < len(stack)-2 {
				name = frame[prefix:]
				prefix = len(frame) + 1
			}
			node = node.child(name)
			node.add(h.Class, h.Allocated)
		}
	}
	root.sort()
	return root
}

func (n *flameNode) add(c program.Class, bytes int64) {
	n.Bytes += bytes
	n.classes[c] += bytes
}

func (n *flameNode) child(name string) *flameNode {
	if k := n.index[name]; k != nil {
		return k
	}
	k := &flameNode{Name: name}
	if n.index == nil {
		n.index = map[string]*flameNode{}
	}
	n.index[name] = k
	n.Kids = append(n.Kids, k)
	return k
}

// sort sorts children by bytes, the largest first, and sets the class with the most bytes in each node.
func (n *flameNode) sort() {
	for c, bytes := range n.classes {
		if bytes > n.classes[n.Class] {
			n.Class = c
		}
	}
	slices.SortStableFunc(n.Kids, func(a, b *flameNode) int { return cmp.Compare(b.Bytes, a.Bytes) })
	for _, k := range n.Kids {
		k.sort()
	}
}

// heapMap returns the blocks of the segments at the peak, the largest segment first.
func heapMap(p *profile.Profile, d *stepData) ([][][3]int64, heapSums) {
	numbered := siteIndices{d, map[[2]string]int{}}
	for i, s := range d.Sites {
		numbered.index[s] = i
	}
	var sums heapSums
	segments := [][][3]int64{}
	layout := slices.Clone(p.AtPeak.Segments)
	slices.SortStableFunc(layout, func(a, b allocator.SegmentInfo) int { return cmp.Compare(b.Size, a.Size) })
	for _, g := range layout {
		sums.Segments++
		sums.Reserved += g.Size
		var blocks [][3]int64
		for _, b := range g.Blocks {
			buffer, held := p.AtPeak.Buffers[b.Address]
			if !held || b.State == allocator.Free {
				sums.Holes += b.Size
				sums.LargestHole = max(sums.LargestHole, b.Size)
				blocks = append(blocks, [3]int64{b.Size, -1, 0})
				continue
			}
			sums.Blocks++
			sums.Tensors += b.Requested
			sums.Rounding += b.Size - b.Requested
			blocks = append(blocks, [3]int64{
				b.Size, int64(p.Program.Buffers[buffer].Class),
				int64(numbered.indexOf(p, buffer)),
			})
		}
		segments = append(segments, blocks)
	}
	return segments, sums
}
