package kernels

import "github.com/vprof/vprof/internal/ceil"

// Launches for operators that memory bandwidth limits.

// addCopy adds a fill, a copy or a cast if the sizes of one range, or of a pair of ranges, match.
func (p *launchPlan) addCopy() {
	switch {
	case len(p.reads) == 0 && len(p.writes) == 1:
		p.add(Fill{To: p.writes[0]}.Launch())
		p.writes = p.writes[:0]
	case len(p.reads) == 1 && len(p.writes) == 1:
		p.copyOne(p.reads[0], p.writes[0])
	}
}

func (p *launchPlan) copyOne(from, to Range) {
	narrow := F16
	if p.t == BF16 {
		narrow = BF16
	}
	switch {
	case from.Bytes == to.Bytes:
		p.add(Copy{From: from, To: to}.Launch())
	case from.Bytes == 2*to.Bytes && to.Bytes%2 == 0:
		p.add(Cast{FromType: F32, ToType: narrow, From: from.Addr, To: to.Addr, Elements: to.Bytes / 2}.Launch())
	case 2*from.Bytes == to.Bytes && from.Bytes%2 == 0:
		p.add(Cast{FromType: narrow, ToType: F32, From: from.Addr, To: to.Addr, Elements: from.Bytes / 2}.Launch())
	default:
		return
	}
	p.reads, p.writes = p.reads[:0], p.writes[:0]
}

// addReduction adds a launch that sums the longest input into the longest output.
func (p *launchPlan) addReduction() {
	r, w := largestRange(p.reads), largestRange(p.writes)
	if r < 0 || w < 0 {
		return
	}
	from, to := p.reads[r], p.writes[w]
	rows := p.elements(to)
	if rows == 0 || p.elements(from) < rows {
		return
	}
	k := ReduceRows{Type: p.t, From: from.Addr, To: to.Addr, Rows: rows, Columns: p.elements(from) / rows}
	// For short sums, one thread per sum is fastest if the sums are adjacent in memory.
	const shortest = 1024 // bytes
	if k.Columns*p.t.Size() <= shortest && rows*p.t.Size()%vectorBytes == 0 {
		k.Rows, k.Columns = k.Columns, k.Rows
		p.add(ReduceColumns(k).Launch())
	} else {
		p.add(k.Launch())
	}
	consumeRange(p.reads, r, k.Rows*k.Columns*p.t.Size())
	consumeRange(p.writes, w, rows*p.t.Size())
}

// rowElements is the assumed row length in elements, for operators whose operands do not determine it.
const rowElements = 1024

// softmax adds a launch for the rows of the longest input. If the next input is as long, it is taken for the gradient.
func (p *launchPlan) softmax() {
	r, w := largestRange(p.reads), largestRange(p.writes)
	if r < 0 || w < 0 || p.reads[r].Bytes != p.writes[w].Bytes {
		return
	}
	n := p.elements(p.reads[r])
	columns := min(n, rowElements)
	if columns == 0 {
		return
	}
	rows := n / columns
	bytes := rows * columns * p.t.Size()
	input, output := p.reads[r].Addr, p.writes[w].Addr
	consumeRange(p.writes, w, bytes)
	consumeRange(p.reads, r, bytes)
	if g := countEqual(p.reads, n*p.t.Size(), r); g >= 0 {
		p.add(SoftmaxBackward{
			Type: p.t, Output: input, Gradient: p.reads[g].Addr, Result: output, Rows: rows,
			Columns: columns,
		}.Launch())
		consumeRange(p.reads, g, bytes)
		return
	}
	p.add(Softmax{Type: p.t, Input: input, Output: output, Rows: rows, Columns: columns}.Launch())
}

// countEqual returns the index of the first range of the given size except range but; -1 if there is none.
func countEqual(ranges []Range, bytes int64, but int) int {
	for i, r := range ranges {
		if i != but && r.Bytes == bytes {
			return i
		}
	}
	return -1
}

// pairOfRanges returns the indices of a normalization's statistics, or -1 and -1: two ranges of equal length, shorter
// than the matrix (n elements, whole bytes), with one F32 number per row.
func pairOfRanges(ranges []Range, n, whole int64) (first, second int) {
	for i, r := range ranges {
		rows := r.Bytes / F32.Size()
		if r.Bytes >= whole || r.Bytes%F32.Size() != 0 || rows == 0 || n%rows != 0 {
			continue
		}
		if j := countEqual(ranges[i+1:], r.Bytes, -1); j >= 0 {
			return i, i + 1 + j
		}
	}
	return -1, -1
}

// maxCachedRow is the longest row in bytes that is still cached when a kernel reads it a second time.
const maxCachedRow = 64 << 10

// normalizeApart adds two launches: one reads all operands to sum them, the other reads them again and writes the
// results. It is for long groups and for groups that are not contiguous, such as the channels of images.
func (p *launchPlan) normalizeApart() {
	first, size := p.reads[largestRange(p.reads)], p.t.Size()
	reads := make([]Range, 0, MaxOperands)
	for _, r := range p.reads {
		if r.Bytes == first.Bytes && len(reads) < MaxOperands {
			reads = append(reads, r)
		}
	}
	k := Elementwise{Type: p.t, Reads: reads, Scale: streamScale, Shift: streamShift}
	k.Rounds = roundsFor(p.flops, ceil.Div(first.Bytes, size), int64(len(reads)))
	l := k.Launch()
	l.RereadBytes = l.Reads
	p.add(l)
}

// normalize adds launches that normalize the rows of the longest input. Two outputs with one number per row are mean
// and deviation. A second input of the same length makes it a backward, whose mean and deviation are inputs.
func (p *launchPlan) normalize(of *Work) {
	r, w := largestRange(p.reads), largestRange(p.writes)
	if r < 0 || w < 0 || p.reads[r].Bytes != p.writes[w].Bytes {
		return
	}
	n := p.elements(p.reads[r])
	known := of.M > 0 && of.M*of.N*of.Batch == n
	if known && (of.Batch > 1 || of.N*p.t.Size() > maxCachedRow) {
		p.normalizeApart()
		return
	}
	whole := n * p.t.Size()
	if g := countEqual(p.reads, whole, r); g >= 0 && whole == p.reads[r].Bytes {
		mean, deviation := pairOfRanges(p.reads, n, whole)
		if mean < 0 && known { // a statistic that is named once stands for both
			mean = countEqual(p.reads, of.M*F32.Size(), r)
			deviation = mean
		}
		if mean >= 0 {
			p.normalizeBackward(r, g, w, mean, deviation)
		}
		return
	}
	k := Normalize{
		Type: p.t, Input: p.reads[r].Addr, Output: p.writes[w].Addr, Columns: min(n, rowElements),
		Epsilon: 1e-5,
	}
	if mean, deviation := pairOfRanges(p.writes, n, whole); mean >= 0 {
		k.Mean, k.Deviation = p.writes[mean].Addr, p.writes[deviation].Addr
		k.Columns = n / (p.writes[mean].Bytes / F32.Size())
		consumeRange(p.writes, mean, p.writes[mean].Bytes)
		consumeRange(p.writes, deviation, p.writes[deviation].Bytes)
	}
	if known {
		k.Columns = of.N
	}
	if k.Columns == 0 {
		return
	}
	k.Rows = n / k.Columns
	consumeRange(p.writes, w, k.Rows*k.Columns*p.t.Size())
	consumeRange(p.reads, r, k.Rows*k.Columns*p.t.Size())
	for _, of := range []*uint64{&k.Weight, &k.Bias} {
		if i := countEqual(p.reads, k.Columns*p.t.Size(), r); i >= 0 {
			*of = p.reads[i].Addr
			consumeRange(p.reads, i, p.reads[i].Bytes)
		}
	}
	p.add(k.Launch())
}

func (p *launchPlan) normalizeBackward(input, gradient, result, mean, deviation int) {
	rows := p.reads[mean].Bytes / F32.Size()
	k := NormalizeBackward{
		Type: p.t, Input: p.reads[input].Addr, Gradient: p.reads[gradient].Addr, Result: p.writes[result].Addr,
		Mean: p.reads[mean].Addr, Deviation: p.reads[deviation].Addr, Rows: rows,
		Columns: p.elements(p.reads[input]) / rows,
	}
	if i := countEqual(p.reads, k.Columns*p.t.Size(), input); i >= 0 && i != mean && i != deviation {
		k.Weight = p.reads[i].Addr
		consumeRange(p.reads, i, p.reads[i].Bytes)
	}
	p.add(k.Launch())
	consumeRange(p.writes, result, p.writes[result].Bytes)
	for _, i := range []int{input, gradient, mean, deviation} {
		consumeRange(p.reads, i, p.reads[i].Bytes)
	}
}

// addIndex adds a launch that copies rows of the longest input to the longest output in a pseudo-random order. The
// operator's index tensor has no values; it is only read, and its length determines the length of rows.
func (p *launchPlan) addIndex() {
	r, w := largestRange(p.reads), largestRange(p.writes)
	if r < 0 || w < 0 {
		return
	}
	rowBytes := p.indexedRow(r, min(p.reads[r].Bytes, p.writes[w].Bytes))
	rows := min(p.reads[r].Bytes, p.writes[w].Bytes) / rowBytes
	if rows == 0 {
		return
	}
	p.add(Gather{
		From: p.reads[r].Addr, To: p.writes[w].Addr, Step: coprimeStep(rows),
		Rows: rows, TableRows: rows, RowBytes: rowBytes,
	}.Launch())
	consumeRange(p.reads, r, rows*rowBytes)
	consumeRange(p.writes, w, rows*rowBytes)
}

// indexedRow returns the row length for which the given bytes have one 8-byte index per row. If no input can be the
// index tensor, it returns a default.
func (p *launchPlan) indexedRow(table int, bytes int64) int64 {
	const index, guess = 8, 256
	for i, r := range p.reads {
		rows := r.Bytes / index
		if i != table && rows > 0 && r.Bytes%index == 0 && bytes%rows == 0 && bytes/rows >= p.t.Size() {
			return bytes / rows
		}
	}
	return guess
}

// coprimeStep returns a large step without a common divisor with n, so that n steps modulo n reach every row once.
func coprimeStep(n int64) int64 {
	for _, prime := range []int64{1_000_003, 1_000_033, 1_000_037} {
		if n%prime != 0 {
			return prime
		}
	}
	return 1
}

// update adds launches over lists of tensors, as in foreach optimizers: output i is computed from input i of each list.
// Ranges without a counterpart are only read or written.
func (p *launchPlan) update() {
	tensors := len(p.writes)
	if tensors == 0 || len(p.reads)%tensors != 0 {
		return
	}
	lists := len(p.reads) / tensors
	if lists == 0 || lists > 8 {
		return
	}
	parts := make([]Part, tensors)
	addrs := make([]uint64, tensors*(lists+1))
	inPlace := true
	for i, w := range p.writes {
		own := addrs[i*(lists+1) : (i+1)*(lists+1)]
		for l := range lists {
			r := p.reads[l*tensors+i]
			if r.Bytes != w.Bytes {
				return
			}
			own[l] = r.Addr
		}
		own[lists] = w.Addr
		inPlace = inPlace && own[0] == w.Addr
		parts[i] = Part{Bytes: w.Bytes, Addrs: own}
	}
	k := Update{
		Type: p.t, Read: 1<<lists - 1, Written: 1 << lists, Scale: streamScale, Shift: streamShift,
		Settled: true,
	}
	if inPlace {
		k.Written = 1
		for i := range parts {
			parts[i].Addrs = parts[i].Addrs[:lists]
		}
	}
	elements := int64(0)
	for _, w := range p.writes {
		elements += w.Bytes / p.t.Size()
	}
	k.Rounds = roundsFor(p.flops, elements, int64(lists))
	p.updates(k, parts)
	p.reads, p.writes = p.reads[:0], p.writes[:0]
}
