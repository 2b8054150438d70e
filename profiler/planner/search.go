package planner

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// A BatchSearch finds the largest safe batch: the last size up to which all sizes are safe.
//
// Reserved bytes are not monotone in the batch: if a tensor just outgrows a cached block, a batch may need more than a
// larger one. A batch is therefore safe if the needs of all sizes up to it are within the limit. Then every smaller
// batch is safe, too, wherever the search began. Sizes are all batches up to 32, and 16 for each doubling beyond.
// Another batch is judged as the next size.
type BatchSearch struct {
	// From and To are the smallest and the largest batch.
	From, To int
	Start    Start
	// Limit is the largest allowed need of a batch, in bytes.
	Limit int64
	// Need returns a batch's need in bytes; MaxInt64 if it is unknown and over the limit. It is called once per batch.
	Need func(batch int) (int64, error)
	// NeedIsSlow reports whether Need takes minutes, so that it is never called only to check larger batches.
	NeedIsSlow bool
	// HasJumps reports whether a size may need many times as much as a larger one, so that all sizes must be tested.
	HasJumps bool

	known map[int]int64
}

// Start is the batch with which a search begins. Near reports whether the result is expected near it, as after an
// estimate, so that the search continues with a neighbor and not with a distant size.
type Start struct {
	Batch  int
	IsNear bool
}

// testedOneByOne is the batch up to which every batch is a size; stepsPerDoubling is the number of sizes in each
// doubling beyond it.
const (
	testedOneByOne   = 32
	stepsPerDoubling = 16
)

// ClearShare is the share of the limit below which a need implies that all smaller batches are within the limit too.
// nearShare is the share below which it implies this for batches of at most farBelowShare of its own, or below of it
// where the batch is at least fine. No bound is proven, and docs/lab/internals.md reports why: over all sizes of 556
// cases (32 models in Go, their stages, precisions and checkpointing, up to 20 or 80 GiB, with the spread of perturbed
// replays) no batch needs more than 1.47 times what a larger one does (redimnet-b3, frozen, bf16 on an H100: 3 and 4).
// Such pairs are close. Of 258 random cases on seven GPUs (batches up to 256, PyTorch 2.15) the closest pair of batches
// with a factor above 1.075 is 0.6 apart (vit-h14-224 in fp16 on an H100: 6 and 10), and 0.808 where the larger is at
// least 20 (patch-vqvae-p8 in bf16: 21 and 26). In 33 settings of decoders on 4 and 8 GPUs (four models, sizes up to
// 40, sequences of 128 to 2048, ddp, fsdp2, zero3, tp and pp) the factor is 1.04 so far apart, and 1.12 close.
const (
	ClearShare    = 0.66
	nearShare     = 0.93
	farBelowShare = 0.59
	belowShare    = 0.8
	fineSteps     = 20
)

// sizeStep returns the distance between sizes around a batch.
func sizeStep(batch int) int {
	gap := 1
	for n := 2 * testedOneByOne; batch > testedOneByOne && n/2 < batch; n *= 2 {
		gap = n / 2 / stepsPerDoubling
	}
	return gap
}

// sizeOf returns the size as which a batch is judged: the smallest that is at least as large.
func sizeOf(batch int) int {
	g := sizeStep(batch)
	return (batch + g - 1) / g * g
}

func (s *BatchSearch) check() error {
	if s.From < 1 || s.To < s.From {
		return fmt.Errorf("planner: the range of batch sizes from %d to %d is empty or below 1", s.From, s.To)
	}
	return nil
}

// need returns the need of a batch, and caches it.
func (s *BatchSearch) need(batch int) (int64, error) {
	if n, ok := s.known[batch]; ok {
		return n, nil
	}
	n, err := s.Need(batch)
	if err != nil {
		return 0, err
	}
	if s.known == nil {
		s.known = map[int]int64{}
	}
	s.known[batch] = n
	return n, nil
}

// Safe reports whether a batch is safe. If not, at is the size that exceeds the limit: the batch or a smaller one.
func (s *BatchSearch) Safe(batch int) (safe bool, at int, err error) {
	size := s.stepStart(batch)
	n, err := s.need(size)
	if err != nil || n > s.Limit {
		return false, size, err
	}
	at, err = s.unsafeBelow(size)
	return err == nil && at == 0, at, err
}

func (s *BatchSearch) stepStart(batch int) int {
	if s.NeedIsSlow {
		return batch
	}
	return sizeOf(batch)
}

// unsafeBelow returns the smallest unsafe size below a size that is within the limit; zero if there is none.
func (s *BatchSearch) unsafeBelow(size int) (at int, err error) {
	clear := s.From - 1 // up to where sizes are safe
	for b := size; b > clear && !s.NeedIsSlow; b = max(clear, b-sizeStep(b)) {
		n, err := s.need(b)
		share := float64(n) / float64(s.Limit)
		switch {
		case err != nil:
			return 0, err
		case share > 1:
			at = b
		case s.HasJumps:
		case share <= ClearShare:
			return at, nil
		case share <= nearShare && b >= fineSteps:
			clear = max(clear, int(belowShare*float64(b)))
		case share <= nearShare:
			clear = max(clear, int(farBelowShare*float64(b)))
		}
	}
	return at, nil
}

// Largest returns the largest safe batch; zero if there is none, and To if all are safe. It computes few needs: memory
// is nearly linear in the batch, so it interpolates between two of them.
func (s *BatchSearch) Largest() (int, error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	fits, err := s.findEdge()
	if err != nil || fits < s.From {
		return 0, err
	}
	at, err := s.unsafeBelow(fits)
	if err != nil {
		return 0, err
	}
	if at > 0 {
		fits = at - sizeStep(at)
	}
	if fits < s.From {
		return 0, nil
	}
	return min(fits, s.To), nil
}

// findEdge returns a size that is within the limit while the next size is not; below From if none is.
func (s *BatchSearch) findEdge() (int, error) {
	e := searchBounds{BatchSearch: s, fits: s.From - 1, fails: s.stepStart(s.To) + 1}
	next := e.clampToBounds(s.Start.Batch)
	for step := 0; ; step++ {
		n, err := s.need(next)
		if err != nil {
			return 0, err
		}
		if n <= s.Limit {
			e.fits = next
		} else {
			e.fails = next
		}
		if e.areAdjacent() {
			return e.fits, nil
		}
		next = e.clampToBounds(e.nextGuess(next, step))
	}
}

// searchBounds is the state of a search for the last size that fits. fits is a size that fits, or one below all sizes.
// fails is a size that does not fit, or one above all sizes.
type searchBounds struct {
	*BatchSearch
	fits, fails int
}

// areAdjacent reports whether there is no size between fits and fails.
func (e *searchBounds) areAdjacent() bool { return e.stepStart(e.fits+1) >= e.fails }

// interpolateLimit returns the batch at which the line through the two nearest needs reaches the limit; known is false
// if there is none.
func (e *searchBounds) interpolateLimit() (at float64, known bool) {
	a, b := e.nearestKnown()
	na, nb := e.known[a], e.known[b]
	if nb <= na || nb == math.MaxInt64 {
		return 0, false
	}
	return float64(a) + float64(e.Limit-na)/float64(nb-na)*float64(b-a), true
}

// clampToBounds returns the size nearest to a guess that is between fits and fails.
func (e *searchBounds) clampToBounds(batch int) int {
	low := e.stepStart(e.fits + 1)
	high := e.fails - 1
	if !e.NeedIsSlow && sizeOf(high) > high {
		high -= (high % sizeStep(high))
	}
	batch = min(max(batch, low), max(high, low))
	if size := e.stepStart(batch); size <= high {
		return size
	}
	return high
}

// nextGuess returns the next batch to try after the last one.
func (e *searchBounds) nextGuess(last, step int) int {
	middle := e.fits + (e.fails-e.fits)/2
	if len(e.known) == 1 { // a second point for the line
		switch {
		case e.Start.IsNear:
			return e.proportionalGuess(last)
		case e.fits == last:
			return 2 * last
		}
		return last / 2
	}
	at, known := e.interpolateLimit()
	switch {
	case step%4 == 3: // whatever the line says, the range halves now and then
		return middle
	case known:
		return int(min(max(at*(1+roundingError), 0), float64(e.fails)))
	}
	return middle
}

// roundingError is the relative error by which floating-point rounding may decrease a batch on a line through needs.
const roundingError = 1e-9

// proportionalGuess returns the next batch to try: where a line through the origin reaches the limit. The constant part
// of the need puts the true result beyond that.
func (e *searchBounds) proportionalGuess(batch int) int {
	at := float64(batch) * float64(e.Limit) / float64(max(1, e.known[batch]))
	return int(min(at, 2*float64(batch)))
}

// nearestKnown returns the two known batch sizes, ascending, through which the next guess is interpolated: the two
// around the limit, or the two next to it.
func (e *searchBounds) nearestKnown() (a, b int) {
	sizes := slices.Sorted(maps.Keys(e.known))
	at, _ := slices.BinarySearch(sizes, e.fails)
	at = min(max(at, 1), len(sizes)-1)
	return sizes[at-1], sizes[at]
}
