package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/forest"
	"github.com/vprof/vprof/tools/cudnn/answers"
)

// kernel is a class of the first vote: a choice without its splits, and the engine and knobs that identify cuDNN's
// kernel.
type kernel struct {
	choice cudnn.Choice
	splits bool
	name   string // engine and knobs, without the knobs for splits
}

func kernelOf(a *answers.Answer, c cudnn.Choice) kernel {
	if c.Engine == cudnn.Kept {
		return kernel{choice: c}
	}
	k := kernel{choice: c, splits: c.Splits > 0, name: strconv.Itoa(a.Engine)}
	k.choice.Splits = 0
	for _, knob := range slices.Sorted(maps.Keys(a.Knobs)) {
		if !slices.Contains(splitKnobs, knob) {
			k.name += fmt.Sprintf(",%d=%d", knob, a.Knobs[knob])
		}
	}
	return k
}

// split is a class of the second vote: the number of splits, and the knobs for it.
type split struct {
	count int64
	knobs [3]int64 // zero for knobs that the engine lacks
}

func splitOf(a *answers.Answer, c cudnn.Choice) split {
	s := split{count: c.Splits}
	for i, knob := range splitKnobs {
		s.knobs[i] = a.Knobs[knob]
	}
	return s
}

// learn grows the trees that vote on kernels, and for each kernel that splits its reduction the trees that vote on the
// number of splits. It returns them in the format of the rule files.
func (f *fitter) learn(train []labeled, variants census) ([]byte, error) {
	if len(train) == 0 {
		return nil, errors.New("no answer to learn from")
	}
	t := tabulate(train)
	var kernels classes[kernel]
	var splits []classes[split] // by kernel
	var samples [][]int32       // samples of each kernel that split the reduction
	all := make([]int32, len(train))
	class, often := make([]int32, len(train)), make([]int32, len(train))
	for i := range train {
		a := &train[i].Answer
		choice := variants.pick(a, train[i].found)
		k := kernels.of(kernelOf(a, choice))
		all[i], class[i] = int32(i), k
		if int(k) == len(splits) {
			splits, samples = append(splits, classes[split]{}), append(samples, nil)
		}
		if choice.Splits > 0 {
			often[i] = splits[k].of(splitOf(a, choice))
			samples[k] = append(samples[k], int32(i))
		}
	}
	variant := func(k int) string {
		name := kernels.all[k].choice.String()
		if kernels.all[k].splits {
			name += "@" + strconv.Itoa(k)
		}
		return name
	}
	votes := map[string]forest.TrainedForest{}
	for k, samples := range samples {
		if len(samples) > 0 {
			trees := t.plant(f.trees, f.splitSupport, samples, often, len(splits[k].all))
			votes[variant(k)] = vote(trees, len(splits[k].all), func(i int) string {
				return strconv.FormatInt(splits[k].all[i].count, 10)
			})
		}
	}
	trees := t.plant(f.trees, f.support, all, class, len(kernels.all))
	return cudnn.AppendEnsemble(nil, vote(trees, len(kernels.all), variant), votes), nil
}

// vote makes a forest from trees over n classes, and merges classes with the same name.
func vote(trees []*forest.Branch, n int, name func(class int) string) forest.TrainedForest {
	var names classes[string]
	number := make([]int, n)
	for class := range number {
		number[class] = int(names.of(name(class)))
	}
	for i := range trees {
		trees[i] = merged(trees[i], number)
	}
	return forest.TrainedForest{Classes: names.all, Trees: trees}
}

// merged renumbers the classes of the leaves below b, and joins neighbors whose classes become equal.
func merged(b *forest.Branch, number []int) *forest.Branch {
	if b.Leaf() {
		return &forest.Branch{Class: number[b.Class]}
	}
	less, other := merged(b.Less, number), merged(b.Other, number)
	if less.Leaf() && other.Leaf() && less.Class == other.Class {
		return less
	}
	return &forest.Branch{Feature: b.Feature, Threshold: b.Threshold, Less: less, Other: other}
}

// classes numbers values in the order of their first use.
type classes[T comparable] struct {
	all   []T
	index map[T]int32
}

// of returns the number of a value; a new value gets the next number.
func (c *classes[T]) of(x T) int32 {
	i, ok := c.index[x]
	if !ok {
		if c.index == nil {
			c.index = map[T]int32{}
		}
		i = int32(len(c.all))
		c.all, c.index[x] = append(c.all, x), i
	}
	return i
}
