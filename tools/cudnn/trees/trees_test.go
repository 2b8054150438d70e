package main

import (
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/forest"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
	"github.com/vprof/vprof/tools/cudnn/answers"
)

var testGPU = cudnn.GPU{Capability: 90, Memory: 1 << 60}

// square returns a 3x3 convolution whose output has the size of its input.
func square(n, ci, co, side, groups int64) cudnn.Config {
	return cudnn.Config{
		Dim: 2, N: n, Ci: ci, Co: co, In: [3]int64{side, side}, Out: [3]int64{side, side}, K: [3]int64{3, 3},
		Stride: [3]int64{1, 1}, Pad: [3]int64{1, 1}, Dilation: [3]int64{1, 1}, Groups: groups,
	}
}

func drawQuestion(t *rapid.T) query.Question {
	size := func(name string, low, high int64) int64 { return rapid.Int64Range(low, high).Draw(t, name) }
	groups := rapid.SampledFrom([]int64{1, 1, 2, 16}).Draw(t, "groups")
	c := square(size("n", 1, 64), groups*size("c", 1, 64), groups*size("k", 1, 64), size("side", 8, 64), groups)
	c.DType, c.Layout = cudnn.DType(size("type", 0, 2)), cudnn.Layout(size("layout", 0, 1))
	if side := rapid.SampledFrom([]int64{1, 3, 5}).Draw(t, "kernel"); side != 3 {
		c.K, c.Pad = [3]int64{side, side}, [3]int64{side / 2, side / 2}
	}
	return query.NewQuestion(c, cudnn.Direction(size("direction", 0, 2)))
}

// drawChoice draws a valid choice for s, and cuDNN's knobs for it.
func drawChoice(t *rapid.T, s cudnn.Study) (cudnn.Choice, map[int]int64) {
	engines := slices.DeleteFunc(cudnn.Engines(), func(e cudnn.Engine) bool { return !s.Can(e) })
	c := cudnn.Choice{Engine: rapid.SampledFrom(engines).Draw(t, "engine")}
	knobs := map[int]int64{}
	if !s.Splits(c.Engine) || rapid.Bool().Draw(t, "whole") {
		return c, knobs
	}
	c.Splits = rapid.Int64Range(1, 200).Draw(t, "splits")
	knobs[rapid.SampledFrom(splitKnobs).Draw(t, "knob")] = c.Splits
	switch {
	case c.Engine == cudnn.DepthwiseTiles:
		tile := rapid.SampledFrom(depthwiseTiles).Draw(t, "tile")
		c.TileM, c.TileN = tile[0], tile[1]
	case s.Tiled(c.Engine) || rapid.Bool().Draw(t, "tiled"):
		knobs[knobTile] = rapid.SampledFrom([]int64{0, 1, 5, 7, 10, 16, 23}).Draw(t, "tile")
		c.TileM, c.TileN = tiles[knobs[knobTile]][0], tiles[knobs[knobTile]][1]
	}
	return c, knobs
}

func TestTheChoiceBehindAnAnswerIsAmongItsExplanations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := answers.Answer{Question: drawQuestion(t)}
		s := cudnn.NewStudy(a.Config, a.Operation, testGPU)
		want, knobs := drawChoice(t, s)
		a.Bytes, a.Knobs = s.Bytes(want), knobs
		found := explanations(s, &a)
		require.Contains(t, found, want)
		for _, c := range found {
			require.True(t, s.Can(c.Engine), c)
			require.Equal(t, a.Bytes, s.Bytes(c), c)
		}
	})
}

func TestABufferOfNoSplitsIsOneSplit(t *testing.T) {
	a := answers.Answer{
		Question: query.NewQuestion(square(4, 64, 64, 16, 1), cudnn.GradWeight),
		Knobs:    map[int]int64{knobSplitBuf: -1},
	}
	s := cudnn.NewStudy(a.Config, a.Operation, testGPU)
	want := cudnn.Choice{Engine: cudnn.Copies, Splits: 1}
	a.Bytes = s.Bytes(want)
	require.Contains(t, explanations(s, &a), want)
}

func TestAnswersThatNoFormulaGivesHaveNoExplanation(t *testing.T) {
	a := answers.Answer{Question: query.NewQuestion(square(4, 64, 64, 16, 1), cudnn.Forward), Bytes: 1}
	require.Empty(t, explanations(cudnn.NewStudy(a.Config, a.Operation, testGPU), &a))
}

func TestTheCommonestVariantIsPickedAndOfEqualsTheFirstEngine(t *testing.T) {
	a := &answers.Answer{Engine: 5}
	direct, copies := cudnn.Choice{Engine: cudnn.Direct}, cudnn.Choice{Engine: cudnn.Copies}
	found := []cudnn.Choice{copies, direct}
	require.Equal(t, direct, census{}.pick(a, found))
	n := census{variantOf(a, copies): 2, variantOf(a, direct): 1}
	require.Equal(t, copies, n.pick(a, found))
	// Frequencies of another engine of cuDNN do not count for this one.
	require.Equal(t, direct, n.pick(&answers.Answer{Engine: 6}, found))
}

func TestFoldsKeepAGeometryTogether(t *testing.T) {
	seen := map[int64]bool{}
	rapid.Check(t, func(t *rapid.T) {
		c := drawQuestion(t).Config
		want := fold(c)
		require.Contains(t, []int64{0, 1, 2, 3, 4}, want)
		seen[want] = true
		c.N, c.DType, c.Layout = c.N+1, cudnn.BF16, cudnn.ChannelsLast
		require.Equal(t, want, fold(c))
	})
	require.Greater(t, len(seen), 1)
}

// madeUp answers as a made-up heuristic: for few samples it selects copies with tiles and splits the reduction more
// often with more channels; for more samples it selects copies in one piece.
func madeUp(t require.TestingT, n, ci, side int64) answers.Answer {
	a := answers.Answer{
		Question: query.NewQuestion(square(n, ci, 64, side, 1), cudnn.GradWeight), Engine: 1,
		Knobs: map[int]int64{knobTile: 5},
	}
	want := cudnn.Choice{Engine: cudnn.Copies}
	if n <= 24 {
		a.Engine, a.Knobs = 2, map[int]int64{knobTile: 7, knobSplitK: 2}
		if ci > 96 {
			a.Knobs[knobSplitK] = 12
		}
		want.TileM, want.TileN, want.Splits = 64, 128, a.Knobs[knobSplitK]
	}
	a.Bytes = cudnn.NewStudy(a.Config, a.Operation, testGPU).Bytes(want)
	require.Contains(t, explanations(cudnn.NewStudy(a.Config, a.Operation, testGPU), &a), want)
	return a
}

func manyMadeUp(t require.TestingT, seed uint64, n int) []answers.Answer {
	random := rand.New(rand.NewPCG(seed, 0))
	answers := make([]answers.Answer, n)
	for i := range answers {
		// Features that the answers depend on take few values, so that every boundary occurs in training. Images may
		// have any size.
		samples, channels := int64(8+8*random.IntN(6)), int64(32+32*random.IntN(6))
		answers[i] = madeUp(t, samples, channels, int64(4+random.IntN(60)))
	}
	return answers
}

func label(answers []answers.Answer) ([]labeled, census) {
	cases, variants := make([]labeled, len(answers)), census{}
	for i, a := range answers {
		s := cudnn.NewStudy(a.Config, a.Operation, testGPU)
		cases[i] = labeled{Answer: a, study: s, found: explanations(s, &a)}
		for _, c := range cases[i].found {
			variants[variantOf(&a, c)]++
		}
	}
	return cases, variants
}

// misses counts the cases whose workspace the ensemble predicts wrongly.
func misses(v *cudnn.Ensemble, cases []labeled) int {
	n := 0
	for _, c := range cases {
		if c.study.Bytes(v.Choose(c.study.Features())) != c.Bytes {
			n++
		}
	}
	return n
}

// ensemble returns the rules that a fitter learns.
func ensemble(t *testing.T, f fitter, train []labeled, variants census) *cudnn.Ensemble {
	b, err := f.learn(train, variants)
	require.NoError(t, err)
	v, rest, err := cudnn.DecodeEnsemble(b)
	require.NoError(t, err)
	require.Empty(t, rest)
	return v
}

func TestARuleIsLearnedFromItsAnswers(t *testing.T) {
	train, variants := label(manyMadeUp(t, 1, 400))
	unseen, _ := label(manyMadeUp(t, 2, 400))
	one := fitter{trees: 1, support: 1, splitSupport: 1}
	v := ensemble(t, one, train, variants)
	require.Zero(t, misses(v, train))
	require.Zero(t, misses(v, unseen), "boundaries lie where the answers change")
	require.Equal(t, "exact 100.0 %, within 2 % and 64 KiB 100.0 %", examine(nil, v, unseen))

	three := fitter{trees: 3, support: 1, splitSupport: 1}
	v = ensemble(t, three, train, variants)
	require.Zero(t, misses(v, train))
}

func TestNoLeafHasFewerCasesThanItNeeds(t *testing.T) {
	cases, _ := label(manyMadeUp(t, 1, 60))
	random := rand.New(rand.NewPCG(7, 8))
	samples, class := make([]int32, len(cases)), make([]int32, len(cases))
	for i := range samples {
		samples[i], class[i] = int32(i), int32(random.IntN(3))
	}
	for _, support := range []int{1, 7} {
		for _, tree := range tabulate(cases).plant(3, support, samples, class, 3) {
			behind := map[*forest.Branch]int{}
			for _, c := range cases {
				behind[leafOf(tree, c.study.Features())]++
			}
			require.Len(t, behind, leaves(tree), "every leaf has a case")
			require.Greater(t, len(behind), 1)
			for _, n := range behind {
				require.GreaterOrEqual(t, n, support)
			}
		}
	}
}

// leaves counts the leaves below b.
func leaves(b *forest.Branch) int {
	if b.Leaf() {
		return 1
	}
	return leaves(b.Less) + leaves(b.Other)
}

// leafOf returns the leaf of a tree for a sample.
func leafOf(b *forest.Branch, x []float32) *forest.Branch {
	switch {
	case b.Leaf():
		return b
	case x[b.Feature] < b.Threshold:
		return leafOf(b.Less, x)
	}
	return leafOf(b.Other, x)
}

func TestKernelsDifferInAllButTheirSplits(t *testing.T) {
	a := answers.Answer{Engine: 3, Knobs: map[int]int64{knobTile: 5, knobSplitK: 2}}
	c := cudnn.Choice{Engine: cudnn.Copies, TileM: 64, TileN: 64, Splits: 2}
	more := answers.Answer{Engine: 3, Knobs: map[int]int64{knobTile: 5, knobSplitK: 9, knobSplitBuf: 1, knobSplitSlc: 9}}
	often := c
	often.Splits = 9
	require.Equal(t, kernelOf(&a, c), kernelOf(&more, often))
	require.NotEqual(t, splitOf(&a, c), splitOf(&more, often))

	whole := c
	whole.Splits = 0
	require.NotEqual(t, kernelOf(&a, c), kernelOf(&a, whole))
	a.Engine = 4
	require.NotEqual(t, kernelOf(&a, c), kernelOf(&more, c))
	a.Engine, a.Knobs[knobTile] = 3, 7
	require.NotEqual(t, kernelOf(&a, c), kernelOf(&more, c))
}

// answersFile writes a file of answers, followed by more text, and returns its path.
func answersFile(t *testing.T, answers []answers.Answer, behind string) string {
	var text strings.Builder
	for _, a := range answers {
		fmt.Fprintf(&text, "%v|%d %d", a.Question, a.Bytes, a.Engine)
		for knob, value := range a.Knobs {
			fmt.Fprintf(&text, ",%d=%d", knob, value)
		}
		fmt.Fprintln(&text, " 0")
	}
	path := filepath.Join(t.TempDir(), "sm90-1")
	require.NoError(t, os.WriteFile(path, []byte(text.String()+behind), 0o600))
	return path
}

func TestFitWritesWhatItLearnsOfEachFileOfAnswers(t *testing.T) {
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	answers := manyMadeUp(t, 3, 50)
	path := answersFile(t, answers, fmt.Sprintf("%v|1 0 0\n", answers[0].Question)) // no choice needs one byte
	f := fitter{dir: t.TempDir(), trees: 2, support: 1, splitSupport: 1, fold: -1}
	require.NoError(t, f.fit(testGPU.Capability, []string{path}))

	cases, variants := label(answers)
	learned, err := f.learn(cases, variants)
	require.NoError(t, err)
	written, err := os.ReadFile(filepath.Join(f.dir, cudnn.RuleFile(90, "wgrad", false)))
	require.NoError(t, err)
	require.Equal(t, learned, written)
}

// A release that answers differently in some cases has a file of corrections alone. Together with the other release's
// rules they give its answers, and equal answers stay.
func TestAReleaseThatDiffersHasCorrectionsAlone(t *testing.T) {
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	answers := manyMadeUp(t, 3, 80)
	base := fitter{dir: t.TempDir(), trees: 2, support: 1, splitSupport: 1, fold: -1}
	require.NoError(t, base.fit(testGPU.Capability, []string{answersFile(t, answers, "")}))
	f := base
	f.dir, f.over, f.correct = t.TempDir(), base.dir, true
	require.NoError(t, f.fit(testGPU.Capability, []string{answersFile(t, answers, "")}))
	files, err := os.ReadDir(f.dir)
	require.NoError(t, err)
	require.Empty(t, files, "nothing differs")

	for i := range answers {
		if answers[i].Config.N > 30 {
			answers[i].Bytes, answers[i].Engine, answers[i].Knobs = 0, 99, nil
		}
	}
	require.NoError(t, f.fit(testGPU.Capability, []string{answersFile(t, answers, "")}))
	rules, err := os.ReadFile(filepath.Join(base.dir, cudnn.RuleFile(90, "wgrad", false)))
	require.NoError(t, err)
	corrections, err := os.ReadFile(filepath.Join(f.dir, cudnn.CorrectionsFile(90, "wgrad", false)))
	require.NoError(t, err)
	both, err := cudnn.DecodeRules(append(rules, corrections...))
	require.NoError(t, err)
	for _, a := range answers {
		s := cudnn.NewStudy(a.Config, a.Operation, testGPU)
		require.Equal(t, a.Bytes, given(s, both.Choose(s.Features())), a.Question)
	}
}

func TestRanksCountTheCutsThatAreNotAbove(t *testing.T) {
	cases, _ := label(manyMadeUp(t, 4, 30))
	table := tabulate(cases)
	require.Len(t, table.cuts, forest.Features)
	for f, cuts := range table.cuts {
		require.IsIncreasing(t, append([]float32{-1}, cuts...), "all values are above")
		for i, c := range cases {
			v := c.study.Features()[f]
			below := len(slices.DeleteFunc(slices.Clone(cuts), func(cut float32) bool { return v < cut }))
			require.Equal(t, below, int(table.ranks[f][i]))
			for j := range i {
				// There is a cut between every two values.
				w := cases[j].study.Features()[f]
				require.Equal(t, v < w, table.ranks[f][i] < table.ranks[f][j])
			}
		}
	}
}

func TestTooManyCutsAreThinnedOutEvenly(t *testing.T) {
	for _, n := range []int{1, 2, mostCuts, mostCuts + 1, 3*mostCuts + 1} {
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(n - i)
		}
		cuts := cutsOf(values)
		step := (n + mostCuts - 1) / mostCuts
		require.Len(t, cuts, (n-1)/step)
		for i, c := range cuts {
			require.Equal(t, float32((i+1)*step+1), c, "between %d and the next", (i+1)*step)
		}
	}
}

func TestCutsLieBetweenNeighborsAndAreRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := rapid.Float32().Draw(t, "x"), rapid.Float32().Draw(t, "y")
		if x > y {
			x, y = y, x
		}
		if x == y {
			t.Skip("no neighbors")
		}
		cut := between(x, y)
		require.Greater(t, cut, x)
		require.LessOrEqual(t, cut, y)
	})
	for _, c := range []struct{ x, y, want float32 }{
		{0, 1, 0.5},
		{1, 2, 2},
		{24, 32, 30},
		{63, 64, 64},
		{1000, 1001, 1001},
		{1, 1e6, 1000}, // far apart: the logarithmic mean
		{-1, 1, 1},
	} {
		require.InDelta(t, c.want, between(c.x, c.y), 1e-6, "%v to %v", c.x, c.y)
	}
}

// Classes with the same name are merged, and the trees get smaller.
func TestVotesNameEachClassOnce(t *testing.T) {
	leaf := func(class int) *forest.Branch { return &forest.Branch{Class: class} }
	fork := func(cut float32, less, other *forest.Branch) *forest.Branch {
		return &forest.Branch{Threshold: cut, Less: less, Other: other}
	}
	named := func(names ...string) forest.TrainedForest {
		return vote([]*forest.Branch{fork(1, leaf(0), fork(2, leaf(1), leaf(2)))}, len(names), func(i int) string {
			return names[i]
		})
	}
	require.Equal(t, forest.TrainedForest{
		Classes: []string{"a", "b"}, Trees: []*forest.Branch{fork(1, leaf(0), leaf(1))},
	}, named("a", "b", "b"))
	require.Equal(t, forest.TrainedForest{
		Classes: []string{"a", "b"}, Trees: []*forest.Branch{fork(1, leaf(0), fork(2, leaf(1), leaf(0)))},
	}, named("a", "b", "a"))
	require.Equal(t, forest.TrainedForest{
		Classes: []string{"a"}, Trees: []*forest.Branch{leaf(0)},
	}, named("a", "a", "a"))
}

func TestMergedTreesAnswerTheSameInNewNumbersWithNoMoreLeaves(t *testing.T) {
	const classes = 4
	var drawn func(t *rapid.T, depth int) *forest.Branch
	drawn = func(t *rapid.T, depth int) *forest.Branch {
		if depth == 0 || rapid.Bool().Draw(t, "leaf") {
			return &forest.Branch{Class: rapid.IntRange(0, classes-1).Draw(t, "class")}
		}
		return &forest.Branch{
			Feature: rapid.IntRange(0, 3).Draw(t, "feature"), Threshold: rapid.Float32Range(0, 1).Draw(t, "threshold"),
			Less: drawn(t, depth-1), Other: drawn(t, depth-1),
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		tree := drawn(t, 5)
		numbers := rapid.SliceOfN(rapid.IntRange(0, 2), classes, classes).Draw(t, "numbers")
		joined := merged(tree, numbers)
		require.LessOrEqual(t, leaves(joined), leaves(tree))
		require.True(t, apart(joined), "neighbors of one class are joined")
		for range 8 {
			x := rapid.SliceOfN(rapid.Float32Range(0, 1), 4, 4).Draw(t, "features")
			require.Equal(t, numbers[leafOf(tree, x).Class], leafOf(joined, x).Class, "%v", x)
		}
	})
}

// apart reports whether no two leaves of one class are neighbors.
func apart(b *forest.Branch) bool {
	if b.Leaf() {
		return true
	}
	return apart(b.Less) && apart(b.Other) &&
		(!b.Less.Leaf() || !b.Other.Leaf() || b.Less.Class != b.Other.Class)
}
