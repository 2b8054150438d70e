package compiled

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// mostAlone is the share of a step's bytes that may have no counterpart at another batch size: buffers of reductions
// that Inductor splits at one of them, for instance.
const mostAlone = 0.05

// At is the step in a precision at a batch size: a recording, or what follows from two. The events are those of the
// recording whose batch is nearer, since the order in which Inductor schedules kernels depends on sizes. Each
// allocation has a counterpart in the other recording, and its size lies on a line through both.
func (f *File) At(amp string, batch int) (*Recording, error) {
	amp = strings.TrimPrefix(amp, "none")
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
	if len(all) < 2 {
		return nil,
			fmt.Errorf("nothing follows for batch %d: record two batch sizes with vprof capture --compile --batch",
				batch)
	}
	slices.SortFunc(all, func(a, b *Recording) int { return a.Batch - b.Batch })
	i := 1
	for i < len(all)-1 && all[i].Batch < batch {
		i++
	}
	near, far := all[i-1], all[i]
	if float64(batch) > math.Sqrt(float64(near.Batch)*float64(far.Batch)) {
		near, far = far, near
	}
	return near.toward(far, batch)
}

// toward is a recording on the line from this one through another. It is an error if much of a step has no
// counterpart there.
func (r *Recording) toward(far *Recording, batch int) (*Recording, error) {
	out := *r
	out.Batch = batch
	share := float64(batch-r.Batch) / float64(far.Batch-r.Batch)
	var bytes, alone int64
	for i := range out.Steps { // the last decides: what tuning takes in the first differs more
		bytes, alone = 0, 0
		s, other := &out.Steps[i], &far.Steps[i]
		found := s.counterparts(other, int64(r.Batch), int64(far.Batch))
		s.Allocations = slices.Clone(s.Allocations)
		lasts := s.lasting()
		for n, a := range s.Allocations {
			if m := found[n]; m >= 0 {
				s.Allocations[n][0] = max(0, a[0]+int64(math.Round(share*float64(other.Allocations[m][0]-a[0]))))
			} else if lasts[n] {
				alone += a[0]
			}
			if lasts[n] {
				bytes += a[0]
			}
		}
	}
	if float64(alone) > mostAlone*float64(bytes) {
		return nil,
			fmt.Errorf("nothing follows for batch %d: Inductor decided otherwise at batch %d than at %d; record "+
				"more with vprof capture --compile --batch",
				batch, r.Batch, far.Batch)
	}
	return &out, nil
}

// lasting tells of each allocation whether anything happens before it is freed. Nothing does to workspaces of
// libraries, which choose among algorithms by the batch.
func (s *Step) lasting() []bool {
	lasts := make([]bool, len(s.Allocations))
	for i, n := range s.Order {
		if n >= 0 {
			lasts[n] = i+1 == len(s.Order) || s.Order[i+1] != ^n
		}
	}
	return lasts
}

// place is what an allocation has in common with its counterpart: the line that it comes from, and the phases in
// which it comes and goes.
type place struct {
	site     int64
	from, to int
}

// places are the allocations of a step by their places.
func (r *Step) places() map[place][]int {
	all := make([]place, len(r.Allocations))
	for n, a := range r.Allocations {
		all[n] = place{site: a[1], to: -1}
	}
	for i, n := range r.Order {
		phase := 0
		for _, end := range []int{r.Forward, r.Backward} {
			if i >= end {
				phase++
			}
		}
		if n >= 0 {
			all[n].from = phase
		} else {
			all[^n].to = phase
		}
	}
	of := map[place][]int{}
	for n, p := range all {
		of[p] = append(of[p], n)
	}
	return of
}

// counterparts are the allocations of a step at another batch size that stand for those of this one, -1 for those
// without. Of a place those whose size grows with the batch find theirs first, then those of a fixed size; what is left
// goes by size.
func (r *Step) counterparts(far *Step, batch, farBatch int64) []int {
	found := make([]int, len(r.Allocations))
	others := far.places()
	for p, own := range r.places() {
		free := map[int64][]int{}
		for _, m := range others[p] {
			free[far.Allocations[m][0]] = append(free[far.Allocations[m][0]], m)
		}
		take := func(n int, size int64) bool {
			list := free[size]
			if len(list) > 0 {
				found[n], free[size] = list[0], list[1:]
			}
			return len(list) > 0
		}
		var rest []int
		for _, n := range own {
			size := r.Allocations[n][0]
			grown := size * farBatch
			if grown%batch != 0 || !take(n, grown/batch) {
				rest = append(rest, n)
			}
		}
		rest = slices.DeleteFunc(rest, func(n int) bool { return take(n, r.Allocations[n][0]) })
		match(found, rest, r.Allocations, free)
	}
	return found
}

// match has allocations find those of the same rank by size, if there are as many.
func match(found, own []int, allocations [][2]int64, free map[int64][]int) {
	slices.SortStableFunc(own, func(a, b int) int { return int(allocations[a][0] - allocations[b][0]) })
	sizes := make([]int64, 0, len(free))
	for size := range free {
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	var left []int
	for _, size := range sizes {
		left = append(left, free[size]...)
	}
	for i, n := range own {
		if found[n] = -1; len(left) == len(own) {
			found[n] = left[i]
		}
	}
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
