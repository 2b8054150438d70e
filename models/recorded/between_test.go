package recorded

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
)

// Sizes that are affine in the batch are exact between recordings and beyond them.
func TestSizesFollowTheBatch(t *testing.T) {
	f := file(step(4), step(16))
	rapid.Check(t, func(t *rapid.T) {
		batch := rapid.IntRange(1, 4096).Draw(t, "batch")
		r, err := f.AtBatch("bf16", batch)
		require.NoError(t, err)
		require.Equal(t, step(batch), r)
	})
}

// Of the orders of events in two recordings, the one that needs less memory is taken, and sizes follow from both,
// whatever the other's order; buffers that one of them alone has stay as they are. Between the two the other order is
// possible, too.
func TestOrderWithTheLowerPeak(t *testing.T) {
	last := step(64)
	far := &last.steps[1]
	far.Allocations = append(slices.Clone(far.Allocations), Allocation{16, 1})
	far.Order = []int{0, 1, 2, 3, 4, 5, ^5, ^1, ^4, ^2, ^0}
	far.Backward = 9
	f := file(step(4), last)
	for _, batch := range []int{10, 40} {
		r, other, err := f.inBothOrders("bf16", batch)
		require.NoError(t, err)
		require.Equal(t, step(batch), r)
		require.Equal(t, far.Order, other.steps[1].Order)
		require.Equal(t, append(step(batch).steps[1].Allocations, Allocation{16, 1}), other.steps[1].Allocations)
		require.Equal(t, step(batch).steps[0], other.steps[0])
		require.Less(t, r.steps[1].peak(), other.steps[1].peak())
	}
	orders := func(f *File, batch int) (r, other *Recording) {
		r, other, err := f.inBothOrders("bf16", batch)
		require.NoError(t, err)
		return r, other
	}
	for _, batch := range []int{2, 4, 64, 100} {
		_, other := orders(f, batch)
		require.Nil(t, other, "no doubt at %d", batch)
	}
	_, other := orders(file(step(4), step(64)), 10)
	require.Nil(t, other, "one order")
	f.Steps.Form = Eager
	r, _ := orders(f, 40)
	require.Equal(t, far.Order, r.steps[1].Order, "nothing reorders eager steps: the nearer recording's")
	f.Steps.Form = ""
	var err error

	f.Recordings[0].FusesFrom, f.Recordings[1].FusesFrom = []int{8, 9, 300}, []int{8, 9}
	for batch, order := range map[int][]int{7: step(4).steps[1].Order, 8: step(4).steps[1].Order, 10: far.Order} {
		r, err = f.AtBatch("bf16", batch)
		require.NoError(t, err)
		require.Equal(t, order, r.steps[1].Order, "what is fused goes before what is nearer, at %d", batch)
	}
	for i := range f.Recordings { // which are of batch 4 and 64
		f.Recordings[i].FusesFrom, f.Recordings[i].SplitsAt = nil, [][]int{{7, 8, 9, 20, 64}}
	}
	for batch, order := range map[int][]int{
		6: step(4).steps[1].Order, 7: far.Order, 20: far.Order, 63: step(4).steps[1].Order,
	} {
		r, err = f.AtBatch("bf16", batch)
		require.NoError(t, err)
		require.Equal(t, order, r.steps[1].Order, "how sums are split goes before what is nearer, at %d", batch)
	}
	for i := range f.Recordings {
		f.Recordings[i].SplitsAt = [][]int{{7, 8, 9, 20}}
	}
	require.Contains(t, f.caveats(toyCase(8))[1], "at batch 8 Inductor splits sums over samples otherwise than at")
	require.Len(t, f.caveats(toyCase(10)), 1)
}

// Results of the same node, and gradients of the same parameter, are counterparts, whatever their sizes and order.
func TestNamesGoBeforeSizes(t *testing.T) {
	at := func(n int64, order ...int) *Recording {
		s := Step{
			Order: []int{0, 1, 2, 3, 4, ^0, ^1, ^3}, Forward: 2, Backward: 8,
			Gradients: []Gradient{{Place{2, 0}, "w"}},
		}
		all := []Allocation{{900 + n, 1}, {100 + 50*n, 2}, {128, 0}, {7 + 3*n, 3}, {10 * n, 0}}
		for _, i := range order {
			s.Allocations = append(s.Allocations, all[i])
		}
		s.sites = []program.Site{{}, {Op: "mul > gelu"}, {Op: "addmm"}, {Op: "sum"}}
		return &Recording{AMP: "bf16", Batch: int(n), steps: [2]Step{s, s}}
	}
	near, far := at(8, 0, 1, 2, 3, 4), at(64, 1, 0, 2, 3, 4)
	f := file(near, far)
	r, err := f.AtBatch("bf16", 16)
	require.NoError(t, err)
	require.Equal(t, at(16, 0, 1, 2, 3, 4).steps[1].Allocations, r.steps[1].Allocations)
	f.Steps.Budget = 0.5
	_, err = f.AtBatch("bf16", 16)
	require.NoError(t, err, "the same are kept")
	f.Recordings[1].steps[1].Allocations[1].Site = 3
	_, err = f.AtBatch("bf16", 16)
	require.ErrorContains(t, err, "different tensors at batch size 8 than at 64; record this size, too, with --batch of vprof capture")
}

// What Inductor fuses, and the line that it names, may be other ones at another batch size.
func TestBuffersOfOtherLinesAreCounterparts(t *testing.T) {
	far := step(16)
	last := &far.steps[1]
	last.Allocations[0].Site, last.Allocations[1].Site = 1, 0
	r, err := file(step(4), far).AtBatch("bf16", 6)
	require.NoError(t, err)
	require.Equal(t, step(6), r)
}

// Nothing follows from one recording, nor from two steps that have little in common.
func TestWhereNothingFollows(t *testing.T) {
	_, err := file(step(4)).AtBatch("bf16", 5)
	require.ErrorContains(t, err, "record two with --batch of vprof capture")
	other := step(8)
	for i := range other.steps[1].Allocations {
		a := &other.steps[1].Allocations[i]
		a.Bytes, a.Site = 3*a.Bytes+7, 1-a.Site
	}
	_, err = file(step(4), other).AtBatch("bf16", 5)
	require.ErrorContains(t, err, "cannot interpolate to batch size 5: the recorded steps at 4 and 8 differ too much; record more sizes with --batch of vprof capture")
}

// Of eager steps, what one batch size has more of is left out, and the rest is matched in its order.
func TestEagerStepsKeepTheirOrder(t *testing.T) {
	sized := func(batch int, sizes ...int64) *Recording {
		r := step(batch)
		s := &r.steps[1]
		for i, size := range sizes {
			n := len(s.Allocations)
			s.Allocations = append(s.Allocations, Allocation{size, 1})
			s.Order = slices.Insert(s.Order, s.Forward+2*i, n, ^n)
		}
		s.Forward, s.Backward = s.Forward+2*len(sizes), s.Backward+2*len(sizes)
		s.renumber()
		return r
	}
	f := file(sized(4, 1000, 100), sized(8, 40, 1500, 30, 150))
	f.Steps.Form = Eager
	r, err := f.AtBatch("bf16", 5)
	require.NoError(t, err)
	want := sized(5, 1125, 113)
	require.Equal(t, want.steps[1], r.steps[1])
	larger := file(step(4), sized(8, 1<<20), step(16))
	require.Positive(t, larger.deviation("bf16"), "a step that needs more than its neighbors")
}

// renumber numbers the allocations in the order in which they happen.
func (s *Step) renumber() {
	numbers, allocations := map[int]int{}, make([]Allocation, 0, len(s.Allocations))
	for i, n := range s.Order {
		if n >= 0 {
			numbers[n] = len(allocations)
			allocations = append(allocations, s.Allocations[n])
			s.Order[i] = numbers[n]
		} else {
			s.Order[i] = ^numbers[^n]
		}
	}
	for i := range s.Gradients {
		s.Gradients[i].Allocation = numbers[s.Gradients[i].Allocation]
	}
	s.Allocations = allocations
}

// Between recorded sizes at which Inductor splits sums, the largest of each other way to split them is missing.
func TestMissingBatches(t *testing.T) {
	at := func(batches ...int) *File {
		f := file()
		for _, b := range batches {
			r := step(b)
			r.SplitsAt = [][]int{{14, 15, 16}, {16, 31, 32}, {200}}
			f.Recordings = append(f.Recordings, r)
		}
		return f
	}
	require.Equal(t, []int{15, 16, 32}, at(8, 64).Missing("bf16"))
	require.Equal(t, []int{32}, at(8, 14, 16, 64).Missing("bf16"))
	require.Empty(t, at(8).Missing("bf16"))
}
