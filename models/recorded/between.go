package recorded

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// mostUnmatched is the largest share of a step's allocated bytes without a counterpart at another batch size. An
// example is the buffer of a reduction that Inductor splits at only one of the two sizes.
const mostUnmatched = 0.05

// AtBatch returns the recording of a precision at a batch size, interpolated from two recordings if there is none. The
// order of events comes from the recording in which Inductor fuses as at this batch size. If it fuses alike in both, it
// comes from the one whose order needs less memory at this size: Inductor estimates the peaks of several orders and
// takes the lowest. Each allocation is matched with one of the other recording, and its size is interpolated linearly.
func (f *File) AtBatch(amp string, batch int) (*Recording, error) {
	r, _, err := f.inBothOrders(amp, batch)
	return r, err
}

// inBothOrders returns the recording of [File.AtBatch], and other in the event order of the other recording. other is
// nil if this size was recorded or is not between two recordings, or if both have the same order.
func (f *File) inBothOrders(amp string, batch int) (r, other *Recording, err error) {
	if f.last == nil {
		return f.interpolated(amp, batch)
	}
	p := f.last.Load()
	if p == nil || p.amp != amp || p.batch != batch {
		p = &cachedRecording{amp: amp, batch: batch}
		p.Recording, p.other, p.err = f.interpolated(amp, batch)
		f.last.Store(p)
	}
	return p.Recording, p.other, p.err
}

// cachedRecording is the last result of [File.inBothOrders], kept since a plan needs it several times.
type cachedRecording struct {
	*Recording
	other *Recording
	amp   string
	batch int
	err   error
}

func (f *File) interpolated(amp string, batch int) (r, other *Recording, err error) {
	near, far, err := f.neighbors(amp, batch)
	if err != nil || near == far {
		return near, nil, err
	}
	if f.Steps.Budget > 0 && !slices.Equal(near.steps[1].keptNodes(), far.steps[1].keptNodes()) {
		return nil, nil, fmt.Errorf("cannot interpolate to batch size %d: with activation_memory_budget, "+
			"torch.compile keeps different tensors at batch size %d than at %d; record this size, too, with --batch "+
			"of vprof capture", batch, near.Batch, far.Batch)
	}
	eager := f.Steps.Form == Eager
	r, err = near.interpolate(far, batch, eager)
	if err != nil || (batch-near.Batch)*(batch-far.Batch) >= 0 || near.steps[1].hasSameEvents(&far.steps[1]) {
		return r, nil, err
	}
	other, err = far.interpolate(near, batch, eager)
	if err != nil {
		return r, nil, nil
	}
	alike := !eager && near.fusionDifferences(batch) == far.fusionDifferences(batch)
	if alike && other.steps[1].peak() < r.steps[1].peak() {
		r, other = other, r
	}
	return r, other, nil
}

// recordings returns the recordings of a precision in ascending order of batch sizes.
func (f *File) recordings(amp string) []*Recording {
	amp = strings.TrimPrefix(amp, "none")
	all := slices.DeleteFunc(slices.Clone(f.Recordings), func(r *Recording) bool { return r.AMP != amp })
	slices.SortStableFunc(all, func(a, b *Recording) int { return cmp.Compare(a.Batch, b.Batch) })
	return all
}

// neighbors returns the recordings of a precision at the nearest batch sizes. near is the one in which Inductor fuses
// as at this batch size, or else the nearer one. A recording of this very batch size is returned as both.
func (f *File) neighbors(amp string, batch int) (near, far *Recording, err error) {
	all := f.recordings(amp)
	if i := slices.IndexFunc(all, func(r *Recording) bool { return r.Batch == batch }); i >= 0 {
		return all[i], all[i], nil
	}
	if len(all) < 2 {
		return nil, nil,
			fmt.Errorf("cannot interpolate to batch size %d: the file has one recorded size; record two with --batch "+
				"of vprof capture", batch)
	}
	i := 1
	for i < len(all)-1 && all[i].Batch < batch {
		i++
	}
	near, far = all[i-1], all[i]
	apart := near.fusionDifferences(batch) - far.fusionDifferences(batch)
	if apart > 0 || apart == 0 && float64(batch) > math.Sqrt(float64(near.Batch)*float64(far.Batch)) {
		near, far = far, near
	}
	return near, far, nil
}

// fusionDifferences counts the reductions that Inductor fuses at only one of two batch sizes: batch and the recorded
// one.
func (r *Recording) fusionDifferences(batch int) int {
	return r.splitDifferences(batch) +
		len(lists.Filter(r.FusesFrom, func(from int) bool { return (r.Batch >= from) != (batch >= from) }))
}

// splitDifferences counts the reductions that Inductor splits at only one of two batch sizes: batch and the recorded
// one.
func (r *Recording) splitDifferences(batch int) int {
	return len(lists.Filter(r.SplitsAt, func(at []int) bool {
		return slices.Contains(at, r.Batch) != slices.Contains(at, batch)
	}))
}

// Missing returns the batch sizes that should be recorded, too: between the recorded ones, the largest of each range in
// which Inductor splits reductions like in no recording.
func (f *File) Missing(amp string) []int {
	all := f.recordings(amp)
	largest, known := map[string]int{}, map[string]bool{}
	kind := func(batch int) string {
		return fmt.Sprint(lists.Map(all[0].SplitsAt, func(at []int) bool { return slices.Contains(at, batch) }))
	}
	for _, r := range all {
		known[kind(r.Batch)] = true
	}
	for b := all[0].Batch; b <= all[len(all)-1].Batch; b++ {
		if k := kind(b); !known[k] {
			largest[k] = b
		}
	}
	return slices.Sorted(maps.Values(largest))
}

// keptNodes returns the graph nodes whose results a step keeps for backward, in ascending order.
func (s *Step) keptNodes() []string {
	var all []string
	for n, class := range s.classes(false) {
		if class == program.Activations {
			all = append(all, s.nodeOf(n))
		}
	}
	return slices.Sorted(slices.Values(all))
}

// nodeOf returns the graph node whose result an allocation holds: the first in "mul_34 > gelu_3". It is empty for a
// buffer that Inductor numbers ("buf28"), since that number depends on the order of kernels.
func (s *Step) nodeOf(n int) string {
	node, _, _ := strings.Cut(s.nodeNames(n), " > ")
	if strings.HasPrefix(node, "buf") {
		return ""
	}
	return node
}

// interpolate returns the recording at a batch size between, or beyond, the ones of r and far. The error says that more
// than [mostUnmatched] of a step has no counterpart. Eager steps run their source lines in the same order.
func (r *Recording) interpolate(far *Recording, batch int, eager bool) (*Recording, error) {
	out := *r
	out.Batch = batch
	share := float64(batch-r.Batch) / float64(far.Batch-r.Batch)
	var bytes, unmatched int64
	for i := range out.steps { // the last step decides: the first also holds the memory of Inductor's tuning
		bytes, unmatched = 0, 0
		s, other := &out.steps[i], &far.steps[i]
		s.asked = s.convolutionsAt(int64(r.Batch), int64(batch))
		found := s.counterparts(other, int64(r.Batch), int64(far.Batch), eager)
		s.Allocations = slices.Clone(s.Allocations)
		used := s.used()
		for n, a := range s.Allocations {
			if m := found[n]; m >= 0 {
				grown := share * float64(other.Allocations[m].Bytes-a.Bytes)
				s.Allocations[n].Bytes = max(0, a.Bytes+int64(math.Round(grown)))
			} else if used[n] {
				unmatched += a.Bytes
			}
			if used[n] {
				bytes += a.Bytes
			}
		}
	}
	if float64(unmatched) > mostUnmatched*float64(bytes) {
		return nil,
			fmt.Errorf("cannot interpolate to batch size %d: the recorded steps at %d and %d differ too much; record "+
				"more sizes with --batch of vprof capture", batch, r.Batch, far.Batch)
	}
	return &out, nil
}

// convolutionsAt returns a step's convolutions, scaled from batch size batch to other. A convolution whose number of
// samples would not be an integer is left out.
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

// used reports for each allocation whether any event comes between it and its free. For a library's workspace none
// does. Its size depends on the algorithm chosen for the batch size, so it needs no counterpart.
func (s *Step) used() []bool {
	used := make([]bool, len(s.Allocations))
	for i, n := range s.Order {
		if n >= 0 {
			used[n] = i+1 == len(s.Order) || s.Order[i+1] != ^n
		}
	}
	return used
}

// A matchKey must be equal for counterparts at different batch sizes: the source line, and the phases of allocation and
// free (0 forward, 1 backward, 2 the rest of the step, -1 never).
type matchKey struct {
	line                 string
	allocatedIn, freedIn int
}

func (s *Step) matchKeys() []matchKey {
	keys := lists.Make(len(s.Allocations), func(n int) matchKey { return matchKey{line: s.line(n), freedIn: -1} })
	for i, n := range s.Order {
		phase := 0
		for _, end := range []int{s.Forward, s.Backward} {
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
	own, far *Step
	found    []int  // the counterpart of each allocation, -1 for none
	taken    []bool // whether each allocation of the other step is one
}

// unmatched returns the allocations of both steps that have no counterpart yet, by key and in order.
func unmatched[K comparable](m *matching, key func(s *Step, n int) K) map[K]*[2][]int {
	groups := map[K]*[2][]int{}
	add := func(side int, s *Step, n int) {
		k := key(s, n)
		if groups[k] == nil {
			groups[k] = new([2][]int)
		}
		groups[k][side] = append(groups[k][side], n)
	}
	for n, at := range m.found {
		if at < 0 {
			add(0, m.own, n)
		}
	}
	for n, taken := range m.taken {
		if !taken {
			add(1, m.far, n)
		}
	}
	return groups
}

// pair makes the allocations of one step, in order, counterparts of the other step's.
func (m *matching) pair(both *[2][]int) {
	for i := range min(len(both[0]), len(both[1])) {
		m.found[both[0][i]], m.taken[both[1][i]] = both[1][i], true
	}
}

// matchByName matches gradients of the same parameter, and results of the same graph node if their sizes scale alike.
// If a graph runs several times, as compiled blocks do, results match in order.
func (m *matching) matchByName() {
	gradients := map[*Step]map[int]string{m.own: m.own.parameters(), m.far: m.far.parameters()}
	for name, both := range unmatched(m, func(s *Step, n int) string { return gradients[s][n] }) {
		if name != "" {
			m.pair(both)
		}
	}
	type named struct{ node, line string }
	for k, both := range unmatched(m, func(s *Step, n int) named { return named{s.nodeOf(n), s.line(n)} }) {
		if k.node != "" && len(both[0]) == len(both[1]) {
			m.pair(both)
		}
	}
}

// parameters maps an allocation to the name of the parameter whose gradient it holds.
func (s *Step) parameters() map[int]string {
	names := map[int]string{}
	for _, g := range slices.Backward(s.Gradients) {
		names[g.Allocation] = g.Parameter
	}
	return names
}

// counterparts returns for each allocation its counterpart in the step at another batch size, -1 for none. Steps with
// the same course match event by event, others by name first. Of the remaining allocations with equal keys, sizes
// proportional to the batch match first, then equal sizes; then the order of sizes decides, or the order in time if one
// step has more of them and both are eager. Inductor's fusions, and the lines it names, depend on sizes, so the last
// ones may match across lines.
func (s *Step) counterparts(far *Step, batch, farBatch int64, eager bool) []int {
	m := &matching{s, far, make([]int, len(s.Allocations)), make([]bool, len(far.Allocations))}
	same := s.hasSameEvents(far)
	for n := range m.found {
		if m.found[n] = -1; same {
			m.found[n] = n
		}
	}
	if same {
		return m.found
	}
	m.matchByName()
	keys := map[*Step][]matchKey{s: s.matchKeys(), far: far.matchKeys()}
	key := func(s *Step, n int) matchKey { return keys[s][n] }
	m.matchBySize(key, batch, farBatch)
	for _, both := range unmatched(m, key) {
		switch own, others := both[0], both[1]; {
		case len(own) == len(others):
			s.sortBySize(own)
			far.sortBySize(others)
			m.pair(both)
		case eager && len(own)*len(others) <= mostPairs:
			m.matchInOrder(own, others, batch, farBatch)
		}
	}
	if !eager {
		m.matchBySize(func(s *Step, n int) matchKey {
			return matchKey{"", keys[s][n].allocatedIn, keys[s][n].freedIn}
		}, batch, farBatch)
	}
	return m.found
}

// matchBySize matches allocations of equal keys with sizes proportional to the batch, then allocations of one size.
func (m *matching) matchBySize(key func(s *Step, n int) matchKey, batch, farBatch int64) {
	type sized struct {
		matchKey
		bytes, remainder int64
	}
	for _, ratio := range [][2]int64{{farBatch, batch}, {1, 1}} {
		for _, both := range unmatched(m, func(s *Step, n int) sized {
			bytes := s.Allocations[n].Bytes
			if s == m.far {
				return sized{key(s, n), bytes, 0}
			}
			return sized{key(s, n), bytes * ratio[0] / ratio[1], bytes * ratio[0] % ratio[1]}
		}) {
			m.pair(both)
		}
	}
}

// sortBySize sorts allocations by their sizes, smaller ones first.
func (s *Step) sortBySize(all []int) {
	slices.SortStableFunc(all, func(a, b int) int {
		return cmp.Compare(s.Allocations[a].Bytes, s.Allocations[b].Bytes)
	})
}

// hasSameEvents reports whether two steps have the same events except for sizes.
func (s *Step) hasSameEvents(other *Step) bool {
	if !slices.Equal(s.Order, other.Order) || s.Forward != other.Forward || s.Backward != other.Backward {
		return false
	}
	for n := range s.Allocations {
		if s.line(n) != other.line(n) || s.nodeOf(n) != other.nodeOf(n) {
			return false
		}
	}
	return true
}

// mostPairs limits the table in [matching.matchInOrder] to 64 MiB.
const mostPairs = 1 << 24

// matchInOrder matches as many allocations as possible with allocations of the other step in the same order. A pair's
// sizes must be equal, proportional to the batch, or in between.
func (m *matching) matchInOrder(own, others []int, batch, farBatch int64) {
	fits := func(n, o int) bool {
		size := m.own.Allocations[n].Bytes
		low, high := min(size, size*farBatch/batch), max(size, size*farBatch/batch+1)
		return low <= m.far.Allocations[o].Bytes && m.far.Allocations[o].Bytes <= high
	}
	// most[i][j] is the number of pairs among own[i:] and others[j:].
	most := lists.Make(len(own)+1, func(int) []int32 { return make([]int32, len(others)+1) })
	for i, n := range slices.Backward(own) {
		for j, o := range slices.Backward(others) {
			most[i][j] = max(most[i+1][j], most[i][j+1])
			if fits(n, o) {
				most[i][j] = max(most[i][j], most[i+1][j+1]+1)
			}
		}
	}
	for i, j := 0, 0; i < len(own) && j < len(others); {
		switch most[i][j] {
		case most[i+1][j]:
			i++
		case most[i][j+1]:
			j++
		default:
			m.found[own[i]] = others[j]
			i, j = i+1, j+1
		}
	}
}
