package main

import (
	"container/heap"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// sample is one training case: features, answer, weight.
type sample struct {
	x      []float32
	answer float64
	weight float64
	// costs is, for engine trees, how wrong each engine class would be.
	costs []float32
}

// objective says how good a set of cases is as one leaf.
type objective interface {
	// tally starts an empty summary.
	tally() tally
	// answer is what a leaf says, and how to print it.
	answer(s []sample) string
}

// tally summarizes a growing set of cases.
type tally interface {
	add(s sample, sign float64)
	// loss is what remains wrong with one answer for all of them.
	loss() float64
}

// branch is a node of a tree under construction.
type branch struct {
	samples     []sample
	feature     int
	threshold   float32
	gain        float64
	less, other *branch
	objective   objective
}

// grow builds a tree, splitting the leaf with the largest gain first.
func grow(samples []sample, leaves, support int, o objective) *branch {
	root := &branch{samples: samples, objective: o}
	root.findSplit(support)
	queue := &byGain{root}
	for n := 1; n < leaves && queue.Len() > 0; n++ {
		b := heap.Pop(queue).(*branch)
		if b.gain <= 0 {
			break
		}
		b.less, b.other = b.split()
		for _, child := range []*branch{b.less, b.other} {
			child.findSplit(support)
			heap.Push(queue, child)
		}
	}
	return root
}

func (b *branch) split() (less, other *branch) {
	less, other = &branch{objective: b.objective}, &branch{objective: b.objective}
	for _, s := range b.samples {
		if s.x[b.feature] < b.threshold {
			less.samples = append(less.samples, s)
		} else {
			other.samples = append(other.samples, s)
		}
	}
	return less, other
}

// findSplit finds the question with the largest gain that leaves at least
// support cases on both sides.
func (b *branch) findSplit(support int) {
	if len(b.samples) < 2*support {
		return
	}
	total := b.objective.tally()
	for _, s := range b.samples {
		total.add(s, 1)
	}
	whole := total.loss()
	order := make([]int, len(b.samples))
	for i := range order {
		order[i] = i
	}
	for f := range b.samples[0].x {
		slices.SortFunc(order, func(i, j int) int {
			x, y := b.samples[i].x[f], b.samples[j].x[f]
			switch {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return i - j
		})
		below, above := b.objective.tally(), b.objective.tally()
		for _, s := range b.samples {
			above.add(s, 1)
		}
		for at := 1; at < len(order); at++ {
			s := b.samples[order[at-1]]
			below.add(s, 1)
			above.add(s, -1)
			x, y := s.x[f], b.samples[order[at]].x[f]
			if x == y || at < support || len(order)-at < support {
				continue
			}
			if gain := whole - below.loss() - above.loss(); gain > b.gain*(1+1e-9) && gain > 1e-9*whole {
				b.gain, b.feature, b.threshold = gain, f, between(x, y)
			}
		}
	}
}

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
func (b *branch) write(w io.Writer, indent string) {
	if b.less == nil {
		fmt.Fprintf(w, "%s= %s\n", indent, b.objective.answer(b.samples))
		return
	}
	fmt.Fprintf(w, "%s%s < %v\n", indent, cudnn.FeatureNames()[b.feature], b.threshold)
	b.less.write(w, indent+" ")
	b.other.write(w, indent+" ")
}

// byGain is a heap of leaves, largest gain first.
type byGain []*branch

func (h byGain) Len() int           { return len(h) }
func (h byGain) Less(i, j int) bool { return h[i].gain > h[j].gain }
func (h byGain) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byGain) Push(x any)        { *h = append(*h, x.(*branch)) }
func (h *byGain) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// classify is the Gini objective over engine classes.
type classify struct{}

func (classify) tally() tally { return &classTally{} }

type classTally struct {
	class [32]float64
	total float64
}

func (t *classTally) add(s sample, sign float64) {
	t.class[int(s.answer)] += sign * s.weight
	t.total += sign * s.weight
}

func (t *classTally) loss() float64 {
	if t.total <= 0 {
		return 0
	}
	var squares float64
	for _, w := range t.class {
		squares += w * w
	}
	return t.total - squares/t.total
}

// answer lists the classes by how wrong they would be, the best first, up to
// the direct one, which always can.
func (classify) answer(samples []sample) string {
	engines := cudnn.Engines()
	costs := make([]float64, len(engines))
	present := make([]bool, len(engines))
	var total float64
	for _, s := range samples {
		for e, c := range s.costs {
			costs[e] += float64(c) * s.weight
		}
		present[int(s.answer)] = true
		total += s.weight
	}
	sort.SliceStable(engines, func(i, j int) bool { return costs[engines[i]] < costs[engines[j]] })
	var names []string
	for _, e := range engines {
		if !present[e] || len(names) == preferences {
			continue
		}
		names = append(names, e.String())
		if e == cudnn.Direct {
			break
		}
	}
	return fmt.Sprintf("%s # %d cases, off by %.0f%%", strings.Join(names, " "), len(samples), 100*costs[engines[0]]/total)
}

// preferences is the most engines a leaf names.
const preferences = 4

// regress is the squared-error objective; a leaf answers its weighted median,
// so that where one count dominates, it is exact.
type regress struct{}

func (regress) tally() tally { return &meanTally{} }

type meanTally struct{ weight, sum, squares float64 }

func (t *meanTally) add(s sample, sign float64) {
	y := math.Log1p(s.answer)
	t.weight += sign * s.weight
	t.sum += sign * s.weight * y
	t.squares += sign * s.weight * y * y
}

func (t *meanTally) loss() float64 {
	if t.weight <= 0 {
		return 0
	}
	return t.squares - t.sum*t.sum/t.weight
}

func (regress) answer(samples []sample) string {
	s := slices.Clone(samples)
	sort.Slice(s, func(i, j int) bool { return s[i].answer < s[j].answer })
	var total, below float64
	for _, x := range s {
		total += x.weight
	}
	median := 0.0
	for _, x := range s {
		if below += x.weight; below >= total/2 {
			median = x.answer
			break
		}
	}
	return fmt.Sprintf("%.4g # %d cases", median, len(samples))
}
