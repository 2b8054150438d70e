package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// sample is one case: its features and what was chosen.
type sample struct {
	x      []float32
	answer cudnn.Choice
	class  int32
}

// branch is a node of a tree; without less and other it is a leaf.
type branch struct {
	feature     int
	threshold   float32
	less, other *branch
	answer      cudnn.Choice
}

// grower grows one tree.
type grower struct {
	support int
	classes int
	// random draws features; nil considers them all.
	random *rand.PCG
	// scratch of find.
	order        []int32
	below, above []float64
}

// grow builds a tree, splitting by the question that tells most (in bits) until
// a leaf has one answer. Seed 0 asks about all features, others about half.
func grow(samples []sample, support int, seed uint64) *branch {
	classes := map[cudnn.Choice]int32{}
	for i := range samples {
		c, ok := classes[samples[i].answer]
		if !ok {
			c = int32(len(classes))
			classes[samples[i].answer] = c
		}
		samples[i].class = c
	}
	g := &grower{
		support: support, classes: len(classes), order: make([]int32, len(samples)),
		below: make([]float64, len(classes)), above: make([]float64, len(classes)),
	}
	if seed > 0 {
		g.random = rand.NewPCG(seed, 0)
	}
	return g.grow(samples)
}

func (g *grower) grow(samples []sample) *branch {
	b := &branch{feature: -1, answer: commonest(samples)}
	g.find(b, samples)
	if b.feature < 0 {
		return b
	}
	var less, other []sample
	for _, s := range samples {
		if s.x[b.feature] < b.threshold {
			less = append(less, s)
		} else {
			other = append(other, s)
		}
	}
	b.less, b.other = g.grow(less), g.grow(other)
	if b.less.leaf() && b.other.leaf() && b.less.answer == b.other.answer {
		return b.less
	}
	return b
}

func (b *branch) leaf() bool { return b.less == nil }

func (b *branch) leaves() int {
	if b.leaf() {
		return 1
	}
	return b.less.leaves() + b.other.leaves()
}

// commonest is the most frequent answer, the earliest of equals.
func commonest(samples []sample) cudnn.Choice {
	count := map[cudnn.Choice]int{}
	var best cudnn.Choice
	for _, s := range samples {
		count[s.answer]++
	}
	most := 0
	for _, s := range samples {
		if n := count[s.answer]; n > most {
			best, most = s.answer, n
		}
	}
	return best
}

// find sets the feature and threshold of the question that leaves the least
// entropy and at least support cases on both sides.
func (g *grower) find(b *branch, samples []sample) {
	n := len(samples)
	total := make([]float64, g.classes)
	for _, s := range samples {
		total[s.class]++
	}
	least := spread(total, float64(n)) * (1 - 1e-9)
	if n < 2*g.support || least <= 0 {
		return
	}
	order := g.order[:n]
	for f := range samples[0].x {
		if g.random != nil && g.random.Uint64()%2 == 0 {
			continue
		}
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortFunc(order, func(i, j int32) int {
			x, y := samples[i].x[f], samples[j].x[f]
			switch {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return int(i - j)
		})
		clear(g.below)
		copy(g.above, total)
		var low, high float64 // sums of c*log(c) over classes
		for _, c := range total {
			high += xlogx(c)
		}
		for at := 1; at < n; at++ {
			s := &samples[order[at-1]]
			c := s.class
			low += xlogx(g.below[c]+1) - xlogx(g.below[c])
			high += xlogx(g.above[c]-1) - xlogx(g.above[c])
			g.below[c]++
			g.above[c]--
			x, y := s.x[f], samples[order[at]].x[f]
			if x == y || at < g.support || n-at < g.support {
				continue
			}
			rest := xlogx(float64(at)) - low + xlogx(float64(n-at)) - high
			if rest < least-1e-9 {
				least, b.feature, b.threshold = rest, f, between(x, y)
			}
		}
	}
}

// spread is the entropy of class counts times their sum, in nats.
func spread(counts []float64, n float64) float64 {
	sum := xlogx(n)
	for _, c := range counts {
		sum -= xlogx(c)
	}
	return sum
}

// xlogx is x log x, from a table for the counts that occur most.
func xlogx(x float64) float64 {
	if x < float64(len(logTable)) {
		return logTable[int(x)]
	}
	return x * math.Log(x)
}

var logTable = func() (t [1 << 14]float64) {
	for i := range t[1:] {
		x := float64(i + 1)
		t[i+1] = x * math.Log(x)
	}
	return t
}()

// between is the roundest number above x and not above y.
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

// write prints the tree in preorder.
func (b *branch) write(w io.Writer) {
	if b.leaf() {
		fmt.Fprintf(w, "= %v\n", b.answer)
		return
	}
	fmt.Fprintf(w, "%s < %v\n", cudnn.FeatureNames()[b.feature], b.threshold)
	b.less.write(w)
	b.other.write(w)
}
