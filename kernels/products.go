package kernels

// The work that arithmetic bounds: products of matrices and what amounts to one.

// matmul multiplies the first two inputs.
func (p *plan) matmul(w *Work) {
	if len(p.reads) == 0 || len(p.writes) == 0 {
		return
	}
	p.multiply(0, min(1, len(p.reads)-1), w.M, w.N, w.K, w.Batch)
}

// tiled tells whether a product is worth its tiles. They are computed as wholes;
// where most of one would be for nothing, it is no kernel for the work: products
// with a vector, and convolutions of each channel by itself, are bound by memory.
// Tensor cores are so fast that more may be for nothing.
func (p *plan) tiled(m, n, k, batch int64) bool {
	if min(m, n, k, batch) <= 0 || max(m, n, k, batch) >= 1<<30 {
		return false
	}
	wasteful := 4.0
	if engineFor(p.t, p.tf32, p.capability) != cores {
		wasteful = 16
	}
	computed := float64(roundUp(m, tileSide)) * float64(roundUp(n, tileSide)) * float64(roundUp(k, 32))
	return computed <= wasteful*float64(m)*float64(n)*float64(k)
}

func roundUp(a, unit int64) int64   { return divUp(a, unit) * unit }
func roundDown(a, unit int64) int64 { return a / unit * unit }

// multiply multiplies inputs a and b to the longest output, by a product of m by
// n, k deep, if the output is of that size, and else by one of its own with as
// many operations. Inputs may have any size: rows that lie closer than they
// are long overlap.
func (p *plan) multiply(a, b int, m, n, k, batch int64) {
	w := largest(p.writes)
	out := p.elements(p.writes[w]) / max(batch, 1)
	if out == 0 || batch <= 0 {
		return
	}
	if m*n != out {
		n = min(out, tileSide)
		m = out / n
		k = (p.flops/(2*batch) + m*n/2) / (m * n)
	}
	x, y := p.operand(p.reads[a], m, k, batch), p.operand(p.reads[b], n, k, batch)
	if !p.tiled(m, n, k, batch) || x.Depth == 0 || y.Depth == 0 {
		return
	}
	g := GEMM{Type: p.t, TF32: p.tf32, A: x, B: y, C: Matrix{Addr: p.writes[w].Addr, Row: n, Depth: 1, Batch: m * n}, M: m, N: n, K: k, Batch: batch}
	l := g.Launch(p.capability)
	visitedA, visitedB := x.extent(m, k, batch)*p.t.Size(), y.extent(n, k, batch)*p.t.Size()
	l.Reads = visitedA + visitedB
	if a == b {
		l.Reads = max(visitedA, visitedB)
		visitedA, visitedB = l.Reads, 0
	}
	p.add(l)
	take(p.reads, a, visitedA)
	take(p.reads, b, visitedB)
	take(p.writes, w, l.Writes)
}

// operand lays matrices over a range so that they cover it from its beginning
// without a gap, as far as they reach. Depth is 0 if a row does not fit.
func (p *plan) operand(r Range, rows, depth, batch int64) Matrix {
	lanes := vectorBytes / p.t.Size()
	whole := p.elements(r)
	m := Matrix{Addr: r.Addr, Depth: 1}
	if depth <= 0 || rows <= 0 || batch <= 0 || depth > whole || r.Addr%vectorBytes != 0 {
		return Matrix{}
	}
	m.Row = roundDown(depth, lanes)
	if rows > 1 {
		// As far apart as the range allows for all matrices, beside each other.
		m.Row = min(m.Row, roundDown((max(whole/batch, depth)-depth)/(rows-1), lanes))
	}
	if batch > 1 {
		one := (rows-1)*m.Row + depth
		m.Batch = min(roundDown(one, lanes), roundDown((whole-one)/(batch-1), lanes))
	}
	return m
}

// extent is the number of elements from the first to past the last of all
// matrices, which is as many as are visited if they leave no gaps.
func (m Matrix) extent(rows, depth, batch int64) int64 {
	return (batch-1)*m.Batch + (rows-1)*m.Row + depth
}

// attend computes attention, if the sizes of its ranges are those of queries,
// keys, values and output, and else a product with as many operations.
func (p *plan) attend(w *Work) {
	size := p.t.Size()
	queries, keys := w.Batch*w.M*w.K*size, w.Batch*w.N*w.K*size
	if len(p.reads) < 3 || len(p.writes) == 0 {
		p.matmul(w)
		return
	}
	if p.reads[0].Bytes != queries || p.reads[1].Bytes != keys || p.reads[2].Bytes != keys || p.writes[0].Bytes != queries || w.K > MaxAttentionDepth {
		p.matmul(w)
		return
	}
	l := Attention{
		Type: p.t, Query: p.reads[0].Addr, Key: p.reads[1].Addr, Value: p.reads[2].Addr, Output: p.writes[0].Addr,
		Queries: w.M, Keys: w.N, Depth: w.K, Heads: w.Batch, Scale: 1,
	}.Launch(p.capability)
	p.add(l)
	for i := range 3 {
		take(p.reads, i, p.reads[i].Bytes)
	}
	take(p.writes, 0, p.writes[0].Bytes)
}

// convolve computes a convolution from input and weight, or a gradient from that
// of the output, input and weight. M are the output channels of a group, N the
// output positions, K the taps times input channels, Batch the groups.
func (p *plan) convolve(w *Work) {
	if len(p.reads) < 2 || len(p.writes) == 0 {
		p.matmul(w)
		return
	}
	x, weight := 0, 1
	if len(p.reads) >= 3 {
		x, weight = 1, 2
	}
	k, span, ok := p.geometry(w, p.reads[x], p.reads[weight])
	switch {
	case len(p.reads) == 2 && ok && p.fits(p.writes[0], w.M*w.N*w.Batch):
		k.Output = p.writes[0].Addr
		p.convolution(k.Forward(p.capability), []int64{span, p.reads[1].Bytes}, p.writes[0].Bytes)
	case len(p.reads) == 2:
		p.multiply(0, 1, w.N, w.M, w.K, w.Batch)
	case ok && p.writes[0].Bytes == p.reads[x].Bytes && span == p.reads[x].Bytes && p.fits(p.reads[0], w.M*w.N*w.Batch):
		k.Output, k.Input = p.reads[0].Addr, p.writes[0].Addr
		p.convolution(k.InputGradient(p.capability), []int64{p.reads[0].Bytes, 0, p.reads[weight].Bytes}, p.writes[0].Bytes)
	case ok && p.writes[0].Bytes == p.reads[weight].Bytes && p.fits(p.reads[0], w.M*w.N*w.Batch):
		k.Output, k.Weight = p.reads[0].Addr, p.writes[0].Addr
		p.convolution(k.WeightGradient(p.capability), []int64{p.reads[0].Bytes, span}, p.writes[0].Bytes)
	case p.writes[0].Bytes == p.reads[weight].Bytes:
		p.multiply(0, x, w.M, w.K, w.N, w.Batch)
	default:
		p.multiply(0, weight, w.N, w.K, w.M, w.Batch)
	}
}

// fits tells whether a range holds so many elements.
func (p *plan) fits(r Range, elements int64) bool { return r.Bytes == elements*p.t.Size() }

// convolution adds a launch that visits the first bytes of each input and of the
// output.
func (p *plan) convolution(l Launch, reads []int64, write int64) {
	p.add(l)
	for i, n := range reads {
		take(p.reads, i, n)
	}
	take(p.writes, 0, write)
}

// geometry is a convolution over a single row of pixels with the sizes of the
// work: all that matters of another's for traffic and arithmetic. Span is how
// many bytes of the input it visits, from the beginning. There is none if no
// number of taps fits, if channels do not come by 16 bytes, or if most of a tile
// would be for nothing.
func (p *plan) geometry(w *Work, x, weight Range) (k Conv, span int64, ok bool) {
	size := p.t.Size()
	lanes := vectorBytes / size
	if !p.tiled(w.N, w.M, w.K, w.Batch) || !p.fits(weight, w.M*w.K*w.Batch) || w.M%lanes != 0 || (x.Addr|weight.Addr)%vectorBytes != 0 {
		return k, 0, false
	}
	for taps := int64(1); taps <= 49; taps += 2 {
		if w.K%taps != 0 || w.K/taps%lanes != 0 {
			continue
		}
		channels := w.K / taps * w.Batch
		pixels := x.Bytes / (channels * size)
		if pixels == 0 || pixels*channels*size != x.Bytes {
			continue
		}
		stride := max(pixels/w.N, 1)
		reach := (w.N-1)*stride + taps // of all windows, one after the other
		used := min(pixels, reach)
		pad := (reach - used + 1) / 2
		k = Conv{
			Type: p.t, TF32: p.tf32, Input: x.Addr, Weight: weight.Addr, Images: 1, Height: 1, Width: used,
			Channels: channels, OutChannels: w.M * w.Batch, Groups: w.Batch,
			TapsY: 1, TapsX: taps, StrideY: 1, StrideX: stride, PadX: pad, DilationY: 1, DilationX: 1,
		}
		if taps >= stride && pad < taps && k.OutWidth() == w.N {
			return k, used * channels * size, true
		}
	}
	return k, 0, false
}
