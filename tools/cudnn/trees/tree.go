package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/trace/cudnn/forest"
)

// table holds the features of samples as ranks: the number of thresholds (cuts) that are at most the value.
type table struct {
	cuts  [][]float32 // by feature, ascending
	ranks [][]uint16  // by feature, then sample
}

// mostCuts is the most thresholds a feature may have.
const mostCuts = 8000

// tabulate ranks the features of the cases.
func tabulate(cases []labeled) *table {
	t := &table{}
	x := make([][]float32, len(cases))
	for i := range cases {
		x[i] = cases[i].study.Features()
	}
	values := make([]float32, len(cases))
	for f := range x[0] {
		for i := range x {
			values[i] = x[i][f]
		}
		cuts := cutsOf(values)
		ranks := make([]uint16, len(cases))
		for i, v := range values {
			at, found := slices.BinarySearch(cuts, v)
			if found {
				at++ // an equal cut counts
			}
			ranks[i] = uint16(at)
		}
		t.cuts, t.ranks = append(t.cuts, cuts), append(t.ranks, ranks)
	}
	return t
}

// cutsOf returns thresholds between the distinct values, thinned out evenly to mostCuts.
func cutsOf(values []float32) []float32 {
	distinct := slices.Clone(values)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	step := max(1, ceil.Div(len(distinct), mostCuts))
	var cuts []float32
	for i := step; i < len(distinct); i += step {
		cuts = append(cuts, between(distinct[i-1], distinct[i]))
	}
	return cuts
}

// grower grows one tree.
type grower struct {
	*table
	class   []int32 // by sample of the table
	support int32
	// random draws the features to consider; nil considers all of them.
	random *rand.PCG
	// Buffers of find.
	count               []int32
	order               []int32
	total, below, above []int32
}

// plant grows trees over samples of a table, each with one of so many classes. A node splits by the threshold with the
// largest information gain, until a leaf has one class. The first tree considers all features, the others a random half
// of them at each node.
func (t *table) plant(trees, support int, samples, class []int32, classes int) []*forest.Branch {
	grown := make([]*forest.Branch, trees)
	for i := range grown {
		g := &grower{
			table: t, class: class, support: int32(support),
			count: make([]int32, mostCuts+2), order: make([]int32, len(samples)),
			total: make([]int32, classes), below: make([]int32, classes), above: make([]int32, classes),
		}
		if i > 0 {
			g.random = rand.NewPCG(uint64(i), 0)
		}
		grown[i] = g.grow(slices.Clone(samples))
	}
	return grown
}

func (g *grower) grow(samples []int32) *forest.Branch {
	b := &forest.Branch{}
	cut := g.find(b, samples)
	if cut < 0 {
		return b
	}
	ranks := g.ranks[b.Feature]
	at := 0
	for i, s := range samples {
		if int(ranks[s]) <= cut {
			samples[i], samples[at] = samples[at], s
			at++
		}
	}
	b.Less, b.Other = g.grow(samples[:at]), g.grow(samples[at:])
	if b.Less.Leaf() && b.Other.Leaf() && b.Less.Class == b.Other.Class {
		return b.Less
	}
	return b
}

// find sets the feature and threshold with the least remaining entropy, or b's class if no split helps. It returns the
// rank of the cut, or a negative number.
func (g *grower) find(b *forest.Branch, samples []int32) (cut int) {
	clear(g.total)
	for _, s := range samples {
		g.total[g.class[s]]++
	}
	var whole float64
	for c, n := range g.total {
		whole += xlogx(n)
		if n > g.total[b.Class] {
			b.Class = c
		}
	}
	n := int32(len(samples))
	least := xlogx(n) - whole - 1e-6
	if least <= 0 {
		return -1
	}
	cut = -1
	order := g.order[:n]
	for f := range g.ranks {
		if g.random != nil && g.random.Uint64()%2 == 0 || len(g.cuts[f]) == 0 {
			continue
		}
		ranks := g.ranks[f]
		g.sort(order, samples, ranks, len(g.cuts[f])+1)
		first, last := ranks[order[0]], ranks[order[n-1]]
		if first == last {
			continue
		}
		clear(g.below)
		copy(g.above, g.total)
		low, high := 0.0, whole // sums of n*log(n) over the classes
		for i := int32(1); i < n; i++ {
			s := order[i-1]
			c := g.class[s]
			x, y := g.below[c], g.above[c]
			low += xlogx(x+1) - xlogx(x)
			high += xlogx(y-1) - xlogx(y)
			g.below[c], g.above[c] = x+1, y-1
			if ranks[s] == ranks[order[i]] || i < g.support || n-i < g.support {
				continue
			}
			if rest := xlogx(i) - low + xlogx(n-i) - high; rest < least-1e-9 {
				least, b.Feature, b.Threshold, cut = rest, f, g.cuts[f][ranks[s]], int(ranks[s])
			}
		}
	}
	return cut
}

// sort sorts the samples by rank.
func (g *grower) sort(order, samples []int32, ranks []uint16, kinds int) {
	if len(samples) < kinds {
		copy(order, samples)
		slices.SortFunc(order, func(i, j int32) int { return int(ranks[i]) - int(ranks[j]) })
		return
	}
	count := g.count[:kinds]
	clear(count)
	for _, s := range samples {
		count[ranks[s]]++
	}
	var at int32
	for i, n := range count {
		count[i] = at
		at += n
	}
	for _, s := range samples {
		r := ranks[s]
		order[count[r]] = s
		count[r]++
	}
}

// xlogx returns x log x. Small counts are looked up in a table.
func xlogx(x int32) float64 {
	if int(x) < len(logTable) {
		return logTable[x]
	}
	return float64(x) * math.Log(float64(x))
}

var logTable = func() (t [1 << 17]float64) {
	for i := range t[1:] {
		x := float64(i + 1)
		t[i+1] = x * math.Log(x)
	}
	return t
}()

// between returns the roundest number in the interval (x, y].
func between(x, y float32) float32 {
	middle := (float64(x) + float64(y)) / 2
	if x > 0 && y > 8*x {
		middle = math.Sqrt(float64(x) * float64(y))
	}
	for digits := 1; digits < 9; digits++ {
		unit := math.Pow(10, math.Floor(math.Log10(math.Abs(middle)))-float64(digits-1))
		if r := float32(math.Round(middle/unit) * unit); r > x && r <= y {
			return r
		}
	}
	return y
}
