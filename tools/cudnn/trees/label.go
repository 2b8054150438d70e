package main

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/tools/cudnn/answers"
)

// Knobs of cuDNN's engines that determine the workspace.
const (
	knobSplitK   = 0
	knobTile     = 2
	knobSplitBuf = 12
	knobSplitSlc = 17
)

// splitKnobs are the knobs for the number of splits of a reduction.
var splitKnobs = []int{knobSplitK, knobSplitBuf, knobSplitSlc}

// tiles are tile sizes by value of CUDNN_KNOB_TYPE_TILE_SIZE, as in the names of the kernels that run.
var tiles = map[int64][2]int64{
	0: {128, 128}, 1: {128, 64}, 2: {128, 32}, 3: {256, 128}, 4: {256, 64}, 5: {64, 64},
	6: {128, 256}, 7: {64, 128}, 8: {64, 32}, 9: {64, 256}, 10: {64, 16}, 11: {32, 16},
	12: {32, 32}, 14: {16, 64}, 15: {128, 16}, 16: {256, 32}, 17: {32, 256}, 18: {64, 192},
	19: {128, 192}, 20: {256, 96}, 23: {32, 128},
}

// depthwiseTiles are the tile sizes of depthwise kernels: channels and filter taps.
var depthwiseTiles = [][2]int64{{64, 16}, {64, 8}, {32, 16}, {64, 32}, {32, 32}, {64, 64}, {32, 8}, {32, 64}}

// labeled is an answer of cuDNN with the choices of engine and knobs whose workspace formula gives its bytes.
type labeled struct {
	answers.Answer
	study cudnn.Study
	found []cudnn.Choice
	// check marks answers used for evaluation, not for training.
	check bool
	// trusted marks questions that the rules to correct already answer right.
	trusted bool
}

// fold assigns a convolution to one of five folds, by a hash of its geometry without batch size, type and layout.
func fold(c cudnn.Config) int64 {
	c.N, c.DType, c.Layout = 0, 0, 0
	h := fnv.New32a()
	fmt.Fprint(h, c)
	return int64(h.Sum32() % 5)
}

// explanations returns the choices whose formula matches the answer's workspace.
func explanations(s cudnn.Study, a *answers.Answer) []cudnn.Choice {
	var found []cudnn.Choice
	for _, e := range cudnn.Engines() {
		if !s.Can(e) {
			continue
		}
		for _, c := range possible(s, e, a) {
			if s.Bytes(c) == a.Bytes {
				found = append(found, c)
			}
		}
	}
	return found
}

// possible returns the choices of an engine class that are consistent with an answer's knobs.
func possible(s cudnn.Study, e cudnn.Engine, a *answers.Answer) []cudnn.Choice {
	all := []cudnn.Choice{{Engine: e}}
	if !s.Splits(e) {
		return all
	}
	var shapes [][2]int64
	switch tile, known := tiles[a.Knobs[knobTile]]; {
	case e == cudnn.DepthwiseTiles:
		shapes = depthwiseTiles
	case known && hasKnob(a, knobTile):
		shapes = [][2]int64{tile}
	}
	if e != cudnn.DepthwiseTiles && !s.Tiled(e) {
		shapes = append([][2]int64{{}}, shapes...)
	}
	for _, n := range splitsOf(a) {
		for _, t := range shapes {
			all = append(all, cudnn.Choice{Engine: e, TileM: t[0], TileN: t[1], Splits: n})
		}
	}
	return all
}

func hasKnob(a *answers.Answer, knob int) bool {
	_, ok := a.Knobs[knob]
	return ok
}

// splitsOf returns the numbers of splits that are consistent with an answer's knobs.
func splitsOf(a *answers.Answer) []int64 {
	var splits []int64
	if a.Knobs[knobSplitBuf] < 0 {
		splits = append(splits, 1)
	}
	for _, knob := range splitKnobs {
		if v := a.Knobs[knob]; v > 0 && !slices.Contains(splits, v) {
			splits = append(splits, v)
		}
	}
	return splits
}

// variant is a choice together with cuDNN's engine, without its knobs.
type variant struct {
	kind         cudnn.Direction
	half         bool
	engine       int
	class        cudnn.Engine
	tiled, split bool
}

func variantOf(a *answers.Answer, c cudnn.Choice) variant {
	return variant{a.Operation, a.Config.DType != cudnn.F32, a.Engine, c.Engine, c.TileM > 0, c.Splits > 0}
}

// census counts how often each variant explains an answer.
type census map[variant]int

// pick returns the matching choice whose variant is the most frequent.
func (n census) pick(a *answers.Answer, found []cudnn.Choice) cudnn.Choice {
	return slices.MaxFunc(found, func(x, y cudnn.Choice) int {
		return cmp.Or(cmp.Compare(n[variantOf(a, x)], n[variantOf(a, y)]), cmp.Compare(y.Engine, x.Engine))
	})
}
