package kernels

import (
	"math"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
)

// Launches for operators that arithmetic limits: matrix products, and operators that are computed as one.

// matmul adds launches for the product of the first two inputs.
func (p *launchPlan) matmul(w *Work) {
	if len(p.reads) == 0 || len(p.writes) == 0 {
		return
	}
	p.multiply(0, min(1, len(p.reads)-1), w.M, w.N, w.K, w.Batch)
}

// suitsTiles reports whether the kernel for products, which works in tiles, suits a product. Products with a vector and
// depthwise convolutions leave most of a tile unused; memory bandwidth limits them. Tensor cores may leave more of a
// tile unused.
func (p *launchPlan) suitsTiles(m, n, k, batch int64) bool {
	if min(m, n, k, batch) <= 0 || max(m, n, k, batch) >= 1<<30 {
		return false
	}
	wasteful := 4.0
	if engineFor(p.t, p.tf32, p.capability) != cudaCoreEngine(p.t) {
		wasteful = 16
	}
	computed := float64(ceil.Multiple(m, tileSide)) * float64(ceil.Multiple(n, tileSide)) * float64(
		ceil.Multiple(k, 32))
	return computed <= wasteful*float64(m)*float64(n)*float64(k)
}

// productScale returns the scale for which the sums of products of random numbers are as large as the numbers.
func productScale(depth int64) float64 { return 1 / math.Sqrt(float64(max(depth, 1))) }

func roundDown(a, unit int64) int64 { return a / unit * unit }

// multiply adds launches for an m by n product of depth k of the inputs with indices a and b into the longest output.
// If the output has another size, so has the product, with as many operations. Rows of inputs of other sizes overlap.
func (p *launchPlan) multiply(a, b int, m, n, k, batch int64) {
	w := largestRange(p.writes)
	out := p.elements(p.writes[w]) / max(batch, 1)
	if out == 0 || batch <= 0 {
		return
	}
	if m*n != out {
		n = min(out, tileSide)
		m = out / n
		k = (p.flops/(2*batch) + m*n/2) / (m * n)
	}
	x, fitsX := p.operand(p.reads[a], m, k, batch)
	y, fitsY := p.operand(p.reads[b], n, k, batch)
	if !p.suitsTiles(m, n, k, batch) || !fitsX || !fitsY {
		return
	}
	g := GEMM{
		Type: p.t, TF32: p.tf32, A: x, B: y, C: Matrix{Addr: p.writes[w].Addr, Row: n, Batch: m * n}, M: m, N: n,
		K: k, Batch: batch, Scale: productScale(k),
	}
	l := g.Launch(p.capability)
	visitedA, visitedB := x.extent(m, k, batch)*p.t.Size(), y.extent(n, k, batch)*p.t.Size()
	l.Reads = visitedA + visitedB
	if a == b {
		l.Reads = max(visitedA, visitedB)
		visitedA, visitedB = l.Reads, 0
	}
	p.add(l)
	consumeRange(p.reads, a, visitedA)
	consumeRange(p.reads, b, visitedB)
	consumeRange(p.writes, w, l.Writes)
}

// operand returns matrices that cover a range from its start without gaps; false if a row does not fit.
func (p *launchPlan) operand(r Range, rows, depth, batch int64) (Matrix, bool) {
	lanes := vectorBytes / p.t.Size()
	whole := p.elements(r)
	m := Matrix{Addr: r.Addr}
	if depth <= 0 || rows <= 0 || batch <= 0 || depth > whole || r.Addr%vectorBytes != 0 {
		return m, false
	}
	m.Row = roundDown(depth, lanes)
	if rows > 1 {
		// The distance between rows is as large as the range allows for all matrices.
		m.Row = min(m.Row, roundDown((max(whole/batch, depth)-depth)/(rows-1), lanes))
	}
	if batch > 1 {
		one := (rows-1)*m.Row + depth
		m.Batch = min(roundDown(one, lanes), roundDown((whole-one)/(batch-1), lanes))
	}
	return m, true
}

// extent returns the number of elements from the first one to the end of the last matrix.
func (m Matrix) extent(rows, depth, batch int64) int64 {
	return (batch-1)*m.Batch + (rows-1)*m.Row + depth
}

// convolve computes a convolution or one of its gradients. The work's M, N and K
// are the sizes of the equivalent product in each of Batch groups:
//
//	forward             filters by positions, taps deep
//	gradient of input   taps by positions, filters deep
//	gradient of weight  filters by taps, positions deep
//
// Filters are the output channels, positions the output pixels, taps the elements of one filter. Output and weight are
// matrices of these sizes, which distinguishes the three; the input may have any size. Where two would do, as for
// filters of one element, they are the same product.
func (p *launchPlan) convolve(w *Work) {
	if len(p.reads) < 2 || len(p.writes) == 0 {
		p.matmul(w)
		return
	}
	first, second, out := p.reads[0], p.reads[1], p.writes[0]
	mn, mk, kn := p.fits(out, w.M*w.N*w.Batch), p.fits(second, w.M*w.K*w.Batch), p.fits(first, w.K*w.N*w.Batch)
	switch {
	case mn && mk && p.convolveForward(convolution{w.M, w.N, w.K, w.Batch, w.Window, first, second, out}):
	case kn && mk && p.convolveInput(convolution{w.K, w.N, w.M, w.Batch, w.Window, out, second, first}):
	case mn && p.fits(first, w.M*w.K*w.Batch) &&
		p.convolveWeight(convolution{w.M, w.K, w.N, w.Batch, w.Window, second, out, first}):
	case mn && !mk:
		p.multiply(0, 1, w.M, w.N, w.K, w.Batch)
	default:
		p.multiply(0, 1, w.N, w.M, w.K, w.Batch)
	}
}

func (p *launchPlan) fits(r Range, elements int64) bool { return r.Bytes == elements*p.t.Size() }

// A convolution holds the sizes of a convolution per group, and the memory of its operands.
type convolution struct {
	filters, positions, taps, groups int64
	window                           program.Window
	input, weight, output            Range
}

// patchBytes is the largest input of a launch in bytes. The kernel computes offsets in units of 16 bytes as signed
// 32-bit numbers: up to 32 GiB, including windows that start before the input or end after it.
const patchBytes = 16 << 30

// convolveForward adds launches for the output, each for as many images as patchBytes allows.
func (p *launchPlan) convolveForward(c convolution) bool {
	k, ok := p.geometry(c)
	if !ok || k.inputBytes()/k.Images > patchBytes {
		return false
	}
	in, out := k.inputBytes()/k.Images, k.outputBytes()/k.Images
	images := patchBytes / in
	for first := int64(0); first < k.Images; first += images {
		part := k
		part.Images = min(images, k.Images-first)
		part.Input += uint64(first * in)
		part.Output += uint64(first * out)
		p.add(part.Forward(p.capability))
	}
	p.markVisited(k.inputBytes(), c.weight.Bytes, c.output.Bytes)
	return true
}

// convolveInput adds launches for the gradient of the input. With a stride it adds none, because the kernel would
// multiply zeros between the positions, which PyTorch's operator does not do.
func (p *launchPlan) convolveInput(c convolution) bool {
	k, ok := p.geometry(c)
	ok = ok && k.StrideY == 1 && k.StrideX == 1 &&
		p.suitsTiles(k.Images*k.Height*k.Width, k.Channels/k.Groups, k.taps()*c.filters, c.groups)
	if ok {
		p.countVisited(k.InputGradient(p.capability), c.output.Bytes, c.weight.Bytes, k.inputBytes())
	}
	return ok
}

func (p *launchPlan) convolveWeight(c convolution) bool {
	k, ok := p.geometry(c)
	if ok {
		p.countVisited(k.WeightGradient(p.capability), c.output.Bytes, k.inputBytes(), c.weight.Bytes)
	}
	return ok
}

// countVisited adds a launch that reads the first bytes of two inputs and writes the first bytes of the first output.
func (p *launchPlan) countVisited(l Launch, first, second, out int64) {
	p.add(l)
	p.markVisited(first, second, out)
}

// markVisited marks the first bytes of the first two inputs and of the first output as visited.
func (p *launchPlan) markVisited(first, second, out int64) {
	consumeRange(p.reads, 0, first)
	consumeRange(p.reads, 1, second)
	consumeRange(p.writes, 0, out)
}

// geometry returns a convolution that a kernel can compute: the given one or, if its windows skip pixels or its
// geometry is unknown, one over a single row of pixels. ok is false if channels are not multiples of 16 bytes, or if
// most of a tile would be unused.
func (p *launchPlan) geometry(c convolution) (Conv, bool) {
	lanes := vectorBytes / p.t.Size()
	if !p.suitsTiles(c.positions, c.filters, c.taps, c.groups) || c.filters%lanes != 0 ||
		(c.input.Addr|c.weight.Addr|c.output.Addr)%vectorBytes != 0 {
		return Conv{}, false
	}
	if k, ok := p.overImages(c); ok {
		return k, true
	}
	return p.overRow(c)
}

// overImages returns the convolution over images, channels last, if every window contains a pixel and every pixel is in
// a window, so that all memory is read.
func (p *launchPlan) overImages(c convolution) (k Conv, ok bool) {
	w := c.window
	if w.Images == 0 || c.taps%(w.TapsY*w.TapsX) != 0 {
		return k, false
	}
	k = Conv{
		Type: p.t, TF32: p.tf32, Input: c.input.Addr, Weight: c.weight.Addr, Output: c.output.Addr,
		Images: w.Images, Height: w.Height, Width: w.Width,
		Channels: c.taps / (w.TapsY * w.TapsX) * c.groups, OutChannels: c.filters * c.groups, Groups: c.groups,
		TapsY: w.TapsY, TapsX: w.TapsX, StrideY: w.StrideY, StrideX: w.StrideX, PadY: w.PadY, PadX: w.PadX,
		DilationY: w.DilationY, DilationX: w.DilationX, Scale: productScale(c.taps),
	}
	lanes := vectorBytes / p.t.Size()
	return k, k.Channels/k.Groups%lanes == 0 && k.positions() == c.positions && w.Images*w.Height*w.Width < 1<<30 &&
		k.inputBytes() == c.input.Bytes && k.visitedInput() == c.input.Bytes && k.visitedOutput() == k.outputBytes()
}

// overRow returns a convolution over a single row of pixels with the same sizes, and thus the same traffic and
// arithmetic. It reads the first pixels of the input, as many as a filter covers. ok is false if no number of taps
// matches.
func (p *launchPlan) overRow(c convolution) (k Conv, ok bool) {
	size := p.t.Size()
	lanes := vectorBytes / size
	for taps := int64(1); taps <= 49; taps += 2 {
		if c.taps%taps != 0 || c.taps/taps%lanes != 0 {
			continue
		}
		channels := c.taps / taps * c.groups
		pixels := c.input.Bytes / (channels * size)
		if pixels == 0 || pixels*channels*size != c.input.Bytes {
			continue
		}
		stride := max(pixels/c.positions, 1)
		reach := (c.positions-1)*stride + taps // of all windows, one after the other
		used := min(pixels, reach)
		pad := (reach - used + 1) / 2
		k = Conv{
			Type: p.t, TF32: p.tf32, Input: c.input.Addr, Weight: c.weight.Addr, Output: c.output.Addr,
			Images: 1, Height: 1, Width: used, Channels: channels, OutChannels: c.filters * c.groups, Groups: c.groups,
			TapsY: 1, TapsX: taps, StrideY: 1, StrideX: stride, PadX: pad, DilationY: 1, DilationX: 1,
			Scale: productScale(c.taps),
		}
		if taps >= stride && pad < taps && k.OutWidth() == c.positions {
			return k, true
		}
	}
	return k, false
}
