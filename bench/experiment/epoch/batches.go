package epoch

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/vprof/vprof/internal/ceil"
)

// Batching is the way in which samples of different lengths are batched.
type Batching string

// The kinds of batching.
const (
	// Padded takes samples in random order and pads them to the longest of their batch.
	Padded Batching = "padded"
	// Grouped batches samples of similar lengths, as group_by_length of transformers' Trainer does. The batch with the
	// longest sample comes first.
	Grouped Batching = "grouped"
	// Packed fills rows of the model's length with several samples each, so all batches have the same size.
	Packed Batching = "packed"
)

// Batchings returns all values of [Batching].
func Batchings() []Batching { return []Batching{Padded, Grouped, Packed} }

// An epochPlan holds the batches of an epoch to replay, and totals over the whole epoch.
type epochPlan struct {
	// lengths has one element for each batch, in training order: the length in tokens to which sequences are padded.
	lengths []int64
	// batches is the number of batches of the whole epoch, samples the number of its samples.
	batches, samples int
	// tokens is the sum of the batches' sample lengths, positions the same with padding.
	tokens, positions int64
	// longest is the length of the longest sample. truncated is the number of samples that were cut at the limit. total
	// is the sum of all samples' lengths.
	longest, truncated, total int64
	// p95, p99 and p999 are the 95th, 99th and 99.9th percentile of the samples' lengths.
	p95, p99, p999 int64
}

// planEpoch forms the batches of an epoch, of the given size. Samples are cut at limit. At most most batches are
// planned; if an epoch has more, the last planned batch is the one with the longest sample.
func (l *Lengths) planEpoch(r *rand.Rand, size int, limit int64, most int) epochPlan {
	samples := l.samples(r)
	p := epochPlan{samples: len(samples), batches: ceil.Div(len(samples), size)}
	for i, n := range samples {
		if int64(n) > limit {
			p.truncated++
			samples[i] = int32(limit) //nolint:gosec // shorter than n
		}
		p.total += int64(samples[i])
	}
	sorted := slices.Clone(samples)
	slices.Sort(sorted)
	quantile := func(thousandths int) int64 { return int64(sorted[(len(sorted)-1)*thousandths/1000]) }
	p.longest, p.p95, p.p99, p.p999 = quantile(1000), quantile(950), quantile(990), quantile(999)
	if l.Batching == Packed {
		l.packSamples(&p, sorted, size, limit, most)
		return p
	}
	r.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
	if l.Batching == Grouped {
		groupByLength(samples, size)
	}
	for i := 0; i < len(samples) && len(p.lengths) < most; i += size {
		p.add(samples[i:min(i+size, len(samples))], l.Multiple, limit)
	}
	if longest := l.paddedLength(p.longest, limit); len(p.lengths) < p.batches && !slices.Contains(p.lengths, longest) {
		p.lengths[len(p.lengths)-1] = longest
	}
	return p
}

// Representative returns n lengths that represent the samples of an epoch, with the longest, in a fixed random order.
func (l *Lengths) Representative(n int) []int64 {
	r := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // the order of samples is no secret
	samples := l.samples(r)
	slices.Sort(samples)
	all := make([]int64, min(n, len(samples)))
	for i := range all {
		all[i] = int64(samples[len(samples)-1-i*(len(samples)-1)/max(len(all)-1, 1)])
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// add adds a batch of samples to the plan.
func (p *epochPlan) add(batch []int32, multiple, limit int64) {
	length := padLength(int64(slices.Max(batch)), multiple, limit)
	p.lengths = append(p.lengths, length)
	p.positions += length * int64(len(batch))
	for _, n := range batch {
		p.tokens += int64(n)
	}
}

func (l *Lengths) paddedLength(length, limit int64) int64 {
	return padLength(length, l.Multiple, limit)
}

// padLength rounds a length up to a multiple, but not beyond the limit.
func padLength(length, multiple, limit int64) int64 {
	if multiple > 1 {
		length = ceil.Multiple(length, multiple)
	}
	return min(length, limit)
}

// groupByLength orders samples as transformers' get_length_grouped_indices does. In each group of up to fifty batches
// the longest come first. The longest sample of all is at the beginning.
func groupByLength(samples []int32, size int) {
	const batches = 50
	stretch := max(min(len(samples)/(4*size), batches), 1) * size
	at, longest := 0, int32(0)
	for i := 0; i < len(samples); i += stretch {
		part := samples[i:min(i+stretch, len(samples))]
		slices.SortFunc(part, func(a, b int32) int { return cmp.Compare(b, a) })
		if part[0] > longest {
			at, longest = i, part[0]
		}
	}
	samples[0], samples[at] = samples[at], samples[0]
}

// packSamples fills sequences of the limit's length, the longest samples first, each into the fullest sequence that has
// room for it (best fit decreasing, as TRL and axolotl pack).
func (l *Lengths) packSamples(p *epochPlan, sorted []int32, size int, limit int64, most int) {
	room := newFreeSpace(limit)
	rows := 0
	for _, n := range slices.Backward(sorted) {
		left, ok := room.take(int64(n))
		if !ok {
			rows++
			left = limit
		}
		room.change(left-int64(n), 1)
	}
	p.batches = ceil.Div(rows, size)
	p.tokens, p.positions = p.total, int64(rows)*limit
	p.lengths = slices.Repeat([]int64{limit}, min(p.batches, most))
}

// freeSpaceTree counts the sequences being filled, by their free tokens. It is a binary tree: the number of sequences
// in each half of the range of free tokens, in each half of that, and so on.
type freeSpaceTree struct {
	tree []int32
	base int // where the leaves begin, one for each size
}

func newFreeSpace(limit int64) *freeSpaceTree {
	base := 1
	for int64(base) <= limit {
		base *= 2
	}
	return &freeSpaceTree{tree: make([]int32, 2*base), base: base}
}

func (r *freeSpaceTree) change(free int64, by int32) {
	for i := r.base + int(free); i > 0; i /= 2 {
		r.tree[i] += by
	}
}

// take removes the sequence with the fewest free tokens among those with at least n, and returns its free tokens.
func (r *freeSpaceTree) take(n int64) (free int64, ok bool) {
	i := r.base + int(n)
	// Go up until a tree to the right has a sequence, then down to its first.
	for r.tree[i] == 0 {
		for i&1 == 1 {
			i /= 2
		}
		if i == 0 {
			return 0, false
		}
		i++
		if i >= 2*r.base {
			return 0, false
		}
	}
	for i < r.base {
		i *= 2
		if r.tree[i] == 0 {
			i++
		}
	}
	free = int64(i - r.base)
	r.change(free, -1)
	return free, true
}
