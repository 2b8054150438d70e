package compiled

import (
	"fmt"
	"math"
	"slices"
)

// At is the step in a precision at a batch size: a recording, or what follows from two. Sizes are affine in the batch
// as long as Inductor decides alike, which it did at two batch sizes if their events are the same; of several such
// pairs the nearest counts. Where no two are alike, other batch sizes than the recorded ones are an error.
func (f *File) At(amp string, batch int) (*Recording, error) {
	amp = noneless(amp)
	var all []*Recording
	for i := range f.Recordings {
		switch r := &f.Recordings[i]; {
		case r.AMP != amp:
		case r.Batch == batch:
			return r, nil
		default:
			all = append(all, r)
		}
	}
	var a, b *Recording
	nearest := math.MaxInt
	for i, x := range all {
		for _, y := range all[i+1:] {
			if far := outside(batch, x.Batch, y.Batch); far < nearest && x.Batch != y.Batch && x.like(y) {
				a, b, nearest = x, y, far
			}
		}
	}
	if a == nil {
		return nil,
			fmt.Errorf("nothing follows for batch %d: Inductor decided otherwise at each recorded one; record more with vprof capture --compile --batch", batch)
	}
	return between(a, b, batch), nil
}

func noneless(amp string) string {
	if amp == "none" {
		return ""
	}
	return amp
}

// outside is how far a batch lies from what two others enclose, in sizes of the interval, and then how wide that is.
func outside(batch, x, y int) int {
	low, high := min(x, y), max(x, y)
	return max(low-batch, batch-high, 0)<<20 + high - low
}

// like tells whether two recordings have the same events.
func (r *Recording) like(o *Recording) bool {
	return slices.Equal(r.Order,
		o.Order) && r.Forward == o.Forward && r.Backward == o.Backward && len(r.Kept) == len(o.Kept)
}

// between is a recording on the line through two.
func between(a, b *Recording, batch int) *Recording {
	share := float64(batch-a.Batch) / float64(b.Batch-a.Batch)
	at := func(x, y int64) int64 { return max(0, x+int64(math.Round(share*float64(y-x)))) }
	out := *a
	out.Batch = batch
	out.Kept = make([]int64, len(a.Kept))
	for i := range a.Kept {
		out.Kept[i] = at(a.Kept[i], b.Kept[i])
	}
	out.Allocations = make([][2]int64, len(a.Allocations))
	for i := range a.Allocations {
		out.Allocations[i] = [2]int64{at(a.Allocations[i][0], b.Allocations[i][0]), a.Allocations[i][1]}
	}
	return &out
}

// reach are the smallest and the largest batch recorded in a precision.
func (f *File) reach(amp string) (from, to int) {
	from = math.MaxInt
	for i := range f.Recordings {
		if r := &f.Recordings[i]; r.AMP == amp {
			from, to = min(from, r.Batch), max(to, r.Batch)
		}
	}
	return from, to
}
