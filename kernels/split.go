package kernels

import (
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
)

// Split divides a product, a convolution or attention into consecutive works with at most that many operations each,
// because a GPU with a display stops kernels that run longer than a second or two. Each part has an equal number of
// matrices, images or rows. Work that cannot be divided this way, or is of another kind, stays whole.
func (w *Work) Split(most int64) []Work {
	whole := []Work{*w}
	if most <= 0 || w.FLOPs <= most || len(w.Reads) < 2 || len(w.Writes) == 0 {
		return whole
	}
	s := workShare{work: w, least: ceil.Div(w.FLOPs, most), size: elementType(w.Precision).Size()}
	switch w.Kind {
	case program.Matmul:
		return s.matmul()
	case program.Convolution:
		return s.convolution()
	case program.Attention:
		return s.attention()
	}
	return whole
}

// workShare is work that is divided into at least a given number of parts.
type workShare struct {
	work        *Work
	least, size int64
}

// parts returns the smallest number of parts, not far above the minimum, that divides all sizes; one if there is none.
func (s *workShare) parts(sizes ...int64) int64 {
	for n := s.least; n <= min(sizes[0], 8*s.least); n++ {
		if !slices.ContainsFunc(sizes, func(size int64) bool { return size%n != 0 }) {
			return n
		}
	}
	return 1
}

// matmul divides the matrices of a batch, or the rows of a single matrix.
func (s *workShare) matmul() []Work {
	w := s.work
	if w.Batch > 1 {
		n := s.parts(w.Batch)
		return s.divide(n, func(part *Work) { part.Batch /= n }, true)
	}
	// Rows start at multiples of 16 bytes, so the parts do, too.
	n := s.parts(w.M)
	if w.Reads[0].Bytes != w.M*w.K*s.size || w.M/n*w.K*s.size%vectorBytes != 0 {
		n = 1
	}
	return s.divide(n, func(part *Work) { part.M /= n }, false)
}

// convolution divides the images. If the second input is the weight, every part reads the whole weight.
func (s *workShare) convolution() []Work {
	w := s.work
	n := s.parts(max(w.Window.Images, 1))
	toWeight := w.Writes[0].Bytes == w.M*w.N*w.Batch*s.size && w.Reads[1].Bytes != w.M*w.K*w.Batch*s.size
	parts := s.divide(n, func(part *Work) {
		part.Window.Images /= n
		if toWeight {
			part.K /= n
		} else {
			part.N /= n
		}
	}, toWeight)
	if toWeight {
		for i := range parts { // each adds to the same weight
			parts[i].Writes = w.Writes
		}
	}
	return parts
}

// attention divides the heads; heads that share keys stay together.
func (s *workShare) attention() []Work {
	w := s.work
	keys := max(w.N*w.K*s.size, 1)
	n := s.parts(w.Batch, w.Reads[1].Bytes/keys)
	return s.divide(n, func(part *Work) { part.Batch /= n }, true)
}

// divide returns n parts, made by smaller, which reduces one size. With all set, all ranges are divided; otherwise only
// the first input and the output, and every part reads the whole second input. The first part includes the remainder.
func (s *workShare) divide(n int64, smaller func(*Work), all bool) []Work {
	w := s.work
	even := func(r Range) bool { return r.Bytes%(n*vectorBytes) == 0 }
	if n <= 1 || !even(w.Reads[0]) || !even(w.Writes[0]) || all && !even(w.Reads[1]) {
		return []Work{*w}
	}
	parts := make([]Work, n)
	for i := range parts {
		p := *w
		p.FLOPs /= n
		smaller(&p)
		p.Reads, p.Writes = slices.Clone(w.Reads), slices.Clone(w.Writes)
		for _, ranges := range [][]Range{p.Reads, p.Writes} {
			for j, r := range ranges {
				switch {
				case j == 0 || all && even(r):
					ranges[j] = Range{Addr: r.Addr + uint64(int64(i)*(r.Bytes/n)), Bytes: r.Bytes / n}
				case i > 0:
					ranges[j].Bytes = 0
				}
			}
		}
		if !all {
			p.Reads[1] = w.Reads[1]
		}
		parts[i] = p
	}
	return parts
}
