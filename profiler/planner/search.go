package planner

import (
	"fmt"
	"math"
	"slices"

	"github.com/vprof/vprof/internal/ceil"
)

// Budget is the limit that a search for a batch size keeps to: a board's memory with a
// margin or a risk.
type Budget struct {
	// Memory is what there is to take, context included: the board's total
	// less what other processes hold, in bytes.
	Memory int64
	// Margin is the share of Memory that the estimate may fill, in (0, 1].
	Margin float64
	// Risk, if not zero, replaces Margin: the probability, below a half, with
	// which a run may need more than Memory.
	Risk float64
}

// Need is the number of bytes of an estimate that must not exceed [Budget.Limit]: its
// device bytes or, with a risk, their upper quantile.
func (b Budget) Need(e Estimate) int64 {
	if b.Risk == 0 {
		return e.Device.Value
	}
	// Half the interval of 95 % is z95 standard errors.
	z := math.Sqrt2 * math.Erfinv(1-2*b.Risk)
	return e.Device.Value + int64(math.Ceil(float64(e.Device.High-e.Device.Value)*z/z95))
}

// Limit is the largest [Budget.Need] that is allowed, in bytes.
func (b Budget) Limit() int64 {
	if b.Risk == 0 {
		return int64(float64(b.Memory) * b.Margin)
	}
	return b.Memory
}

// Check returns an error if the margin or the risk is out of range, or no memory is left.
func (b Budget) Check() error {
	switch {
	case b.Memory <= 0:
		return fmt.Errorf("there are %d bytes of memory to fill", b.Memory)
	case b.Risk == 0 && (b.Margin <= 0 || b.Margin > 1 || math.IsNaN(b.Margin)):
		return fmt.Errorf("a margin of %v is not a share of the memory above 0 and up to 1", b.Margin)
	case b.Risk != 0 && (b.Risk < 0 || b.Risk >= 0.5 || math.IsNaN(b.Risk)):
		return fmt.Errorf("a risk of %v is not a probability above 0 and below 0.5", b.Risk)
	}
	return nil
}

// Largest finds a batch size whose need is within limit while that of the next
// is not, among from..to; 0 if not even from is within, and to if that is. Where
// need grows with the batch, which it does but for the allocator's slack, this
// is the largest. It asks for the need of few sizes: memory is nearly linear in
// the batch, so the line through two of them points to the edge.
func Largest(from int, begin Start, to int, limit int64, need func(batch int) (int64, error)) (int, error) {
	if from < 1 || to < from {
		return 0, fmt.Errorf("planner: no batch sizes from %d to %d", from, to)
	}
	s := edge{need: need, known: map[int]int64{}, limit: limit, fits: from - 1, fails: to + 1, near: begin.Near}
	next := min(max(begin.Batch, from), to)
	for step := 0; s.fails-s.fits > 1; step++ {
		if err := s.try(next); err != nil {
			return 0, err
		}
		next = s.guess(step)
	}
	if s.fits < from {
		return 0, nil
	}
	return s.fits, nil
}

// Start is where a search for a batch size looks first. Near says that the edge is
// expected there, as of an estimate, so that the neighbor comes next and not a size as far
// off again.
type Start struct {
	Batch int
	Near  bool
}

// edge is a search for the last batch size that fits: fits is one that does, or below
// all, and fails one that does not, or above all.
type edge struct {
	need        func(int) (int64, error)
	known       map[int]int64
	limit       int64
	fits, fails int
	near        bool
}

func (s *edge) try(batch int) error {
	n, err := s.need(batch)
	if err != nil {
		return err
	}
	s.known[batch] = n
	if n <= s.limit {
		s.fits = batch
	} else {
		s.fails = batch
	}
	return nil
}

// guess is the next batch to try, strictly between fits and fails.
func (s *edge) guess(step int) int {
	low, high := s.fits+1, s.fails-1
	middle := low + (high-low)/2
	if len(s.known) == 1 { // a second point for the line
		for batch := range s.known {
			if s.near {
				return min(max(s.beside(batch), low), high)
			}
			if s.fits == batch {
				return min(2*batch, high)
			}
			return max(batch/2, low)
		}
	}
	if step%4 == 3 { // whatever the line says, the range halves now and then
		return middle
	}
	a, b := s.nearest()
	na, nb := s.known[a], s.known[b]
	if nb <= na {
		return middle
	}
	at := float64(a) + float64(s.limit-na)/float64(nb-na)*float64(b-a)
	switch {
	case at >= float64(high):
		return high
	case at <= float64(low):
		return low
	}
	return int(at)
}

// beside is the batch to try after one near the edge: where the line through nothing at
// batch zero meets the limit. What does not grow with the batch makes the true edge lie
// beyond that, so the next is the neighbor unless the first was off by more.
func (s *edge) beside(batch int) int {
	at := float64(batch) * float64(s.limit) / float64(max(1, s.known[batch]))
	return int(min(at, 2*float64(batch)))
}

// nearest returns the two known batch sizes through which the next guess is interpolated,
// ascending: the two around the edge, or the two next to it.
func (s *edge) nearest() (a, b int) {
	var sizes []int
	for batch := range s.known {
		sizes = append(sizes, batch)
	}
	slices.Sort(sizes)
	at, _ := slices.BinarySearch(sizes, s.fails)
	at = min(max(at, 1), len(sizes)-1)
	return sizes[at-1], sizes[at]
}

// Split divides an effective batch among micro-batches of at most largest
// samples on each of gpus boards: the fewest micro-batches that come within 2 %
// of it, and of those sizes the nearest. If none does, it is the nearest of all.
func Split(effective, largest, gpus int) (batch, accumulate int) {
	share := max(1, (effective+gpus/2)/gpus) // samples of one board
	fewest := ceil.Div(share, largest)
	best := math.Inf(1)
	for n := fewest; n <= 2*fewest; n++ {
		size := min(max((share+n/2)/n, 1), largest)
		off := math.Abs(float64(size*n*gpus-effective)) / float64(effective)
		if off < best {
			best, batch, accumulate = off, size, n
		}
		if best <= 0.02 {
			break
		}
	}
	return batch, accumulate
}
