package compiled

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// mostUnmatched is the largest share of a step's allocated bytes that may have no counterpart at another batch size,
// such as the buffers of a reduction that Inductor splits at one size and not at the other.
const mostUnmatched = 0.05

// AtBatch returns the recording of a precision at a batch size, interpolated between two recordings where there is none
// of that size. The order of events is taken from the first of [File.neighbors], since what Inductor fuses and
// the order in which it schedules kernels depend on sizes. Each allocation is matched with one of the other
// recording, and its size is interpolated linearly.
func (f *File) AtBatch(amp string, batch int) (*Recording, error) {
	if f.last == nil {
		return f.interpolated(amp, batch)
	}
	p := f.last.Load()
	if p == nil || p.amp != amp || p.batch != batch {
		p = &planned{amp: amp, batch: batch}
		p.Recording, p.err = f.interpolated(amp, batch)
		f.last.Store(p)
	}
	return p.Recording, p.err
}

// planned is what [File.AtBatch] last returned, which a plan asks for several times.
type planned struct {
	*Recording
	amp   string
	batch int
	err   error
}

func (f *File) interpolated(amp string, batch int) (*Recording, error) {
	near, far, err := f.neighbors(amp, batch)
	if err != nil || near == far {
		return near, err
	}
	nodes := f.nodes()
	if f.Budget > 0 && !slices.Equal(near.Steps[1].kept(nodes), far.Steps[1].kept(nodes)) {
		return nil, fmt.Errorf("nothing follows for batch %d: with an activation_memory_budget other tensors are kept "+
			"for backward at batch %d than at %d; record this size with --batch of vprof capture", batch, near.Batch,
			far.Batch)
	}
	return near.interpolate(far, batch, nodes, f.Form == Eager)
}

// reordered returns the same as of [File.AtBatch], in the order of the recording whose batch size is less near. It is
// nil where this size was recorded or is not between the two, and where both have one order.
func (f *File) reordered(amp string, batch int) *Recording {
	near, far, err := f.neighbors(amp, batch)
	nodes := f.nodes()
	if err != nil || (batch-near.Batch)*(batch-far.Batch) >= 0 || near.Steps[1].sameCourse(&far.Steps[1], nodes) {
		return nil
	}
	r, err := far.interpolate(near, batch, nodes, f.Form == Eager)
	if err != nil {
		return nil
	}
	return r
}

// neighbors returns the recordings of a precision whose batch sizes are next to one: first the one where Inductor fuses
// what it fuses at this size, or else the nearer one. If one is of that size, it is both.
func (f *File) neighbors(amp string, batch int) (near, far *Recording, err error) {
	amp = strings.TrimPrefix(amp, "none")
	var all []*Recording
	for i := range f.Recordings {
		switch r := &f.Recordings[i]; {
		case r.AMP != amp:
		case r.Batch == batch:
			return r, r, nil
		default:
			all = append(all, r)
		}
	}
	if len(all) < 2 {
		return nil, nil,
			fmt.Errorf("nothing follows for batch %d: record two batch sizes with --batch of vprof capture", batch)
	}
	slices.SortFunc(all, func(a, b *Recording) int { return a.Batch - b.Batch })
	i := 1
	for i < len(all)-1 && all[i].Batch < batch {
		i++
	}
	near, far = all[i-1], all[i]
	apart := near.otherwise(batch) - far.otherwise(batch)
	if apart > 0 || apart == 0 && float64(batch) > math.Sqrt(float64(near.Batch)*float64(far.Batch)) {
		near, far = far, near
	}
	return near, far, nil
}

// otherwise returns how many of its reductions Inductor fuses at a batch size and not at the recorded one, or the
// reverse.
func (r *Recording) otherwise(batch int) int {
	n := r.splitsOtherwise(batch)
	for _, from := range r.FusesFrom {
		if (r.Batch >= from) != (batch >= from) {
			n++
		}
	}
	return n
}

// splitsOtherwise returns the same of sums that are split into samples.
func (r *Recording) splitsOtherwise(batch int) (n int) {
	for _, at := range r.SplitsAt {
		if slices.Contains(at, r.Batch) != slices.Contains(at, batch) {
			n++
		}
	}
	return n
}

// kept returns the nodes of the graph whose results a step keeps for backward, in ascending order.
func (s *Step) kept(nodes []int64) []int64 {
	var all []int64
	for n, class := range s.classes(false) {
		if class == program.Activations {
			all = append(all, nodes[s.Allocations[n][2]])
		}
	}
	slices.Sort(all)
	return all
}

// nodes are by number of a name the node of the graph whose result an allocation is made for, numbered from 1: of
// "mul_34 > gelu_3" the first. Zero is none, or a buffer that Inductor numbers ("buf28"), which has another number
// where sizes have it order its kernels otherwise.
func (f *File) nodes() []int64 {
	nodes, known := make([]int64, max(len(f.Names), 1)), map[string]int64{"": 0}
	for i, name := range f.Names {
		node, _, _ := strings.Cut(name, " > ")
		if strings.HasPrefix(node, "buf") {
			continue
		}
		if _, seen := known[node]; !seen {
			known[node] = int64(len(known))
		}
		nodes[i] = known[node]
	}
	return nodes
}

// interpolate returns the recording at a batch size between, or beyond, this one and another. It is an error if more
// than [mostUnmatched] of a step has no counterpart in the other one. Eager steps run their lines in the same order.
func (r *Recording) interpolate(far *Recording, batch int, nodes []int64, eager bool) (*Recording, error) {
	out := *r
	out.Batch = batch
	share := float64(batch-r.Batch) / float64(far.Batch-r.Batch)
	var bytes, unmatched int64
	for i := range out.Steps { // the last step decides: the first also holds the memory of Inductor's tuning
		bytes, unmatched = 0, 0
		s, other := &out.Steps[i], &far.Steps[i]
		s.asked = s.convolutionsAt(int64(r.Batch), int64(batch))
		found := s.counterparts(other, int64(r.Batch), int64(far.Batch), nodes, eager)
		s.Allocations = slices.Clone(s.Allocations)
		used := s.used()
		for n, a := range s.Allocations {
			if m := found[n]; m >= 0 {
				s.Allocations[n][0] = max(0, a[0]+int64(math.Round(share*float64(other.Allocations[m][0]-a[0]))))
			} else if used[n] {
				unmatched += a[0]
			}
			if used[n] {
				bytes += a[0]
			}
		}
	}
	if float64(unmatched) > mostUnmatched*float64(bytes) {
		return nil,
			fmt.Errorf("nothing follows for batch %d: the steps at batch %d and %d have too little in common; record "+
				"more sizes with --batch of vprof capture", batch, r.Batch, far.Batch)
	}
	return &out, nil
}

// convolutionsAt returns the convolutions of a step of a batch size at another one: those of so many samples for each
// of the batch.
func (s *Step) convolutionsAt(batch, other int64) []Convolution {
	var all []Convolution
	for _, c := range s.Convolutions {
		if n := &c.Question.Config.N; *n*other%batch == 0 {
			*n = *n * other / batch
			all = append(all, c)
		}
	}
	return all
}

// used tells of each allocation whether another event comes between it and its free. None does for the workspaces of
// libraries, which depend on the algorithm that a library picks for the batch size and need no counterpart.
func (s *Step) used() []bool {
	used := make([]bool, len(s.Allocations))
	for i, n := range s.Order {
		if n >= 0 {
			used[n] = i+1 == len(s.Order) || s.Order[i+1] != ^n
		}
	}
	return used
}

// A matchKey is what two allocations at different batch sizes must share to be counterparts: the line of code, and the
// phases (0 forward, 1 backward, 2 the rest) in which they are allocated and freed; -1 for never.
type matchKey struct {
	site                 int64
	allocatedIn, freedIn int
}

// matchKeys returns the keys of a step's allocations.
func (r *Step) matchKeys() []matchKey {
	keys := lists.Map(r.Allocations, func(a [3]int64) matchKey { return matchKey{site: a[1], freedIn: -1} })
	for i, n := range r.Order {
		phase := 0
		for _, end := range []int{r.Forward, r.Backward} {
			if i >= end {
				phase++
			}
		}
		if n >= 0 {
			keys[n].allocatedIn = phase
		} else {
			keys[^n].freedIn = phase
		}
	}
	return keys
}

// A matching pairs the allocations of two steps.
type matching struct {
	found []int  // by allocations of one step that of the other which stands for it, -1 for none
	taken []bool // by allocations of the other
}

// left returns what is not matched yet of both steps, by its keys and in the order in which it comes.
func left[K comparable](m *matching, own, far func(n int) K) map[K]*[2][]int {
	groups := map[K]*[2][]int{}
	add := func(side, n int, k K) {
		if groups[k] == nil {
			groups[k] = new([2][]int)
		}
		groups[k][side] = append(groups[k][side], n)
	}
	for n, at := range m.found {
		if at < 0 {
			add(0, n, own(n))
		}
	}
	for n, taken := range m.taken {
		if !taken {
			add(1, n, far(n))
		}
	}
	return groups
}

// pair matches allocations with others, in their order.
func (m *matching) pair(own, far []int) {
	for i := range min(len(own), len(far)) {
		m.found[own[i]], m.taken[far[i]] = far[i], true
	}
}

// pairEqual matches what has equal keys.
func pairEqual[K comparable](m *matching, own, far func(n int) K) {
	for _, l := range left(m, own, far) {
		m.pair(l[0], l[1])
	}
}

// parameters are by allocation the parameter whose gradient lies there.
func (s *Step) parameters() []string {
	names := make([]string, len(s.Allocations))
	for _, g := range slices.Backward(s.Gradients) {
		names[g.Allocation] = g.Parameter
	}
	return names
}

// matchByName matches gradients of the same parameter, and allocations for results of the same node of the graph, whose
// sizes are those of one expression. Where a graph runs several times, as that of a block does, they are matched in
// their order.
func (m *matching) matchByName(r, far *Step, nodes []int64) {
	gradients, others := r.parameters(), far.parameters()
	for name, l := range left(m, func(n int) string { return gradients[n] }, func(n int) string { return others[n] }) {
		if name != "" {
			m.pair(l[0], l[1])
		}
	}
	of := func(s *Step) func(int) [2]int64 {
		return func(n int) [2]int64 { return [2]int64{nodes[s.Allocations[n][2]], s.Allocations[n][1]} }
	}
	for k, l := range left(m, of(r), of(far)) {
		if k[0] != 0 && len(l[0]) == len(l[1]) {
			m.pair(l[0], l[1])
		}
	}
}

// counterparts returns for each allocation the one of the step at another batch size that stands for it, -1 for none.
// Steps of the same course match event by event, others by name first. Of the rest, among allocations of one key, those
// whose size is proportional to the batch are matched first, then those of equal size; the rest are matched in the
// order of their sizes, or, if one step has more of them and both are eager, in the order in which they come. What
// Inductor fuses depends on sizes, and with it the line that it names, so that what is left may have its counterpart at
// another line.
func (r *Step) counterparts(far *Step, batch, farBatch int64, nodes []int64, eager bool) []int {
	m := &matching{make([]int, len(r.Allocations)), make([]bool, len(far.Allocations))}
	same := r.sameCourse(far, nodes)
	for n := range m.found {
		if m.found[n] = -1; same {
			m.found[n] = n
		}
	}
	if same {
		return m.found
	}
	m.matchByName(r, far, nodes)
	keys, farKeys := r.matchKeys(), far.matchKeys()
	m.matchBySize(keys, farKeys, r, far, batch, farBatch)
	for _, l := range left(m, func(n int) matchKey { return keys[n] }, func(n int) matchKey { return farKeys[n] }) {
		switch own, others := l[0], l[1]; {
		case len(own) == len(others):
			r.sortBySize(own)
			far.sortBySize(others)
			m.pair(own, others)
		case eager && len(own)*len(others) <= mostPairs:
			matchInOrder(m.found, own, others, r, far, batch, farBatch)
		}
	}
	if !eager {
		for _, all := range [][]matchKey{keys, farKeys} {
			for n := range all {
				all[n].site = 0
			}
		}
		m.matchBySize(keys, farKeys, r, far, batch, farBatch)
	}
	return m.found
}

// matchBySize matches allocations of equal keys whose sizes are proportional to the batch, then those of equal size.
func (m *matching) matchBySize(keys, farKeys []matchKey, r, far *Step, batch, farBatch int64) {
	type sized struct {
		matchKey
		bytes, remainder int64
	}
	at := func(n int) sized { return sized{farKeys[n], far.Allocations[n][0], 0} }
	pairEqual(m, func(n int) sized {
		grown := r.Allocations[n][0] * farBatch
		return sized{keys[n], grown / batch, grown % batch}
	}, at)
	pairEqual(m, func(n int) sized { return sized{keys[n], r.Allocations[n][0], 0} }, at)
}

// sortBySize sorts allocations by their sizes, smaller ones first.
func (r *Step) sortBySize(all []int) {
	slices.SortStableFunc(all, func(a, b int) int { return int(r.Allocations[a][0] - r.Allocations[b][0]) })
}

// sameCourse reports whether two steps differ in nothing but sizes.
func (r *Step) sameCourse(other *Step, nodes []int64) bool {
	return slices.Equal(r.Order, other.Order) && r.Forward == other.Forward && r.Backward == other.Backward &&
		slices.EqualFunc(r.Allocations, other.Allocations, func(a, b [3]int64) bool {
			return a[1] == b[1] && nodes[a[2]] == nodes[b[2]]
		})
}

// mostPairs bounds the table of [matchInOrder]: 64 MiB.
const mostPairs = 1 << 24

// matchInOrder matches as many allocations of a step as can be with such of the other step that come in the same order,
// and whose size is between an equal one and a proportional one.
func matchInOrder(found, own, left []int, r, far *Step, batch, farBatch int64) {
	slices.Sort(own)
	slices.Sort(left)
	fits := func(n, m int) bool {
		size := r.Allocations[n][0]
		low, high := min(size, size*farBatch/batch), max(size, size*farBatch/batch+1)
		return low <= far.Allocations[m][0] && far.Allocations[m][0] <= high
	}
	// most[i][j] is the number of pairs among own[i:] and left[j:].
	most := make([][]int32, len(own)+1)
	for i := range most {
		most[i] = make([]int32, len(left)+1)
	}
	for i, n := range slices.Backward(own) {
		for j, m := range slices.Backward(left) {
			most[i][j] = max(most[i+1][j], most[i][j+1])
			if fits(n, m) {
				most[i][j] = max(most[i][j], most[i+1][j+1]+1)
			}
		}
	}
	for i, j := 0, 0; i < len(own); {
		switch found[own[i]] = -1; {
		case j == len(left) || most[i][j] == most[i+1][j]:
			i++
		case most[i][j] == most[i][j+1]:
			j++
		default:
			found[own[i]] = left[j]
			i, j = i+1, j+1
		}
	}
}

// batchRange returns the smallest and the largest batch size recorded in a precision.
func (f *File) batchRange(amp string) (from, to int) {
	from = math.MaxInt
	for i := range f.Recordings {
		if r := &f.Recordings[i]; r.AMP == amp {
			from, to = min(from, r.Batch), max(to, r.Batch)
		}
	}
	return from, to
}
