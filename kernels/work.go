package kernels

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// Work is the work of one operator: its operations, and the memory that it reads and writes. [Work.Append] returns
// launches with the same operations and the same traffic over that memory. Their results are meaningless, but they take
// the time of PyTorch's kernels.
type Work struct {
	Kind      program.Work
	Precision program.Precision
	// FLOPs is the number of operations; a multiply-add counts as two.
	FLOPs int64
	// M, N, K and Batch are the sizes of the matrix product to which a product, a convolution or attention is
	// equivalent. A normalization has M groups, each with its own mean, and each consists of Batch ranges of N
	// elements. Zero means unknown.
	M, N, K, Batch int64
	// Window is the geometry of a two-dimensional convolution; zero for other operators.
	Window        program.Window
	Reads, Writes []Range
}

// elementType returns the element type of the kernels for a precision. FP64 has no kernels; F32 replaces it, with as
// many operations at a higher speed.
func elementType(p program.Precision) Type {
	switch p {
	case program.FP16:
		return F16
	case program.BF16:
		return BF16
	}
	return F32
}

// Append appends launches for the work on a GPU of a compute capability times ten. Together they read and write every
// byte of the work's ranges. Their operations equal the work's FLOPs for a product whose output has the size that M, N
// and Batch give, and are nearly as many for other work.
func (w *Work) Append(launches []Launch, capability int) []Launch {
	var buffers [2][8]Range
	p := launchPlan{
		launches: launches, before: len(launches), capability: capability, t: elementType(w.Precision),
		tf32:  w.Precision == program.TF32,
		reads: nonEmpty(buffers[0][:0], w.Reads), writes: nonEmpty(buffers[1][:0], w.Writes), flops: w.FLOPs,
	}
	for i, r := range p.reads[:min(len(p.reads), len(p.visited))] {
		p.visited[i].Addr = r.Addr
	}
	switch w.Kind {
	case program.Copy, program.AllGather, program.ReduceScatter, program.AllReduce, program.Broadcast, program.Send,
		program.Receive:
		// On a single GPU, a copy replaces the exchange between ranks.
		p.addCopy()
	case program.Reduction:
		p.addReduction()
	case program.Normalization:
		p.normalize(w)
	case program.Softmax:
		p.softmax()
	case program.Index:
		p.addIndex()
	case program.Matmul:
		p.matmul(w)
	case program.Convolution:
		p.convolve(w)
	case program.Attention:
		p.addAttention(w)
	case program.OptimizerUpdate:
		p.update()
	}
	// Elementwise work, and the ranges that the launches above do not read or write.
	p.streamRanges()
	return p.launches
}

// nonEmpty appends the ranges that have bytes to a list.
func nonEmpty(to, ranges []Range) []Range {
	return append(to, lists.Filter(ranges, func(r Range) bool { return r.Bytes > 0 })...)
}

// A launchPlan is the part of an operator's work that has no launches yet. Each launch reduces reads and writes by the
// memory that it reads and writes, and flops by its operations.
type launchPlan struct {
	launches      []Launch
	before        int // the number of launches that were there before the work
	capability    int
	t             Type
	tf32          bool
	reads, writes []Range
	flops         int64
	// visited holds the addresses of the inputs and the number of bytes that launches have read of each.
	visited [8]Range
}

func (p *launchPlan) add(l Launch) {
	p.launches = append(p.launches, l)
	p.flops = max(0, p.flops-l.FLOPs)
}

// consumeRange removes the first bytes of a range.
func consumeRange(ranges []Range, i int, bytes int64) {
	ranges[i].Addr += uint64(bytes)
	ranges[i].Bytes -= bytes
}

func (p *launchPlan) elements(r Range) int64 { return r.Bytes / p.t.Size() }

// largestRange returns the index of the range with the most bytes; -1 if there is none.
func largestRange(ranges []Range) int {
	at := -1
	for i, r := range ranges {
		if at < 0 || r.Bytes > ranges[at].Bytes {
			at = i
		}
	}
	return at
}

// The values of scale and shift for which a round, x*scale + shift, leaves x unchanged.
const (
	streamScale = 1
	streamShift = 0
)

// hasLaunches reports whether the work has a launch already. The remaining memory is then read and written without
// arithmetic, because it may be too small for the remaining operations.
func (p *launchPlan) hasLaunches() bool { return len(p.launches) > p.before }

// streamRanges adds launches that read and write the rest of all ranges: one launch for a few ranges. If the work has
// no other launch, they also do its arithmetic.
func (p *launchPlan) streamRanges() {
	p.reads, p.writes = nonEmpty(p.reads[:0], p.reads), nonEmpty(p.writes[:0], p.writes)
	if len(p.reads)+len(p.writes) == 0 {
		return
	}
	if len(p.reads) > MaxOperands || len(p.writes) > MaxOperands {
		p.streamMany()
		return
	}
	k := Elementwise{Type: p.t, Reads: p.reads, Writes: p.writes, Scale: streamScale, Shift: streamShift, Settled: true}
	longest := int64(0)
	for _, r := range p.reads {
		longest = max(longest, r.Bytes)
	}
	for _, r := range p.writes {
		longest = max(longest, r.Bytes)
	}
	if !p.hasLaunches() {
		k.Rounds = roundsFor(p.flops, ceil.Div(longest, p.t.Size()), int64(len(p.reads)))
	}
	p.add(k.Launch())
	p.reads, p.writes = p.reads[:0], p.writes[:0]
}

// roundsFor returns the multiply-adds per element that, with the additions of the inputs, make flops operations.
func roundsFor(flops, elements, inputs int64) int64 {
	missing := flops - elements*max(inputs-1, 0)
	if elements == 0 || missing <= 0 {
		return 0
	}
	return (missing + elements) / (2 * elements)
}

// streamMany adds launches that read and write many ranges each.
func (p *launchPlan) streamMany() {
	of := func(r Range) int64 { return r.Bytes }
	bytes := lists.Sum(p.reads, of) + lists.Sum(p.writes, of)
	k := Update{Type: p.t, Scale: streamScale, Shift: streamShift, Settled: true}
	if !p.hasLaunches() {
		k.Rounds = roundsFor(p.flops, bytes/p.t.Size(), 1)
	}
	for _, side := range []struct {
		ranges       []Range
		read, writes uint64
	}{{p.reads, 1, 0}, {p.writes, 0, 1}} {
		k.Read, k.Written = side.read, side.writes
		addrs := make([]uint64, len(side.ranges))
		parts := make([]Part, len(side.ranges))
		for i, r := range side.ranges {
			addrs[i] = r.Addr
			parts[i] = Part{Bytes: r.Bytes, Addrs: addrs[i : i+1]}
		}
		p.updates(k, parts)
	}
	p.reads, p.writes = p.reads[:0], p.writes[:0]
}

// updates adds as many launches of k as the parts need.
func (p *launchPlan) updates(k Update, parts []Part) {
	for len(parts) > 0 {
		n := min(len(parts), MaxParts(len(parts[0].Addrs)))
		k.Parts = parts[:n]
		p.add(k.Launch())
		parts = parts[n:]
	}
}
