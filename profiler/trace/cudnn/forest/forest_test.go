package forest_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/trace/cudnn/forest"
)

// numFeatures is how many features the drawn trees compare.
const numFeatures = 4

// decode reads a forest with its cuts.
func decode(b []byte) (*forest.Forest, []byte, error) {
	c, b, err := forest.DecodeCuts(b)
	if err != nil {
		return nil, nil, err
	}
	return c.Decode(b)
}

// written writes trees.
func written(classes []string, trees ...*forest.Branch) []byte {
	return forest.Append(nil, forest.TrainedForest{Classes: classes, Trees: trees})
}

// planted reads trees as they are written.
func planted(t require.TestingT, classes []string, trees ...*forest.Branch) *forest.Forest {
	f, rest, err := decode(written(classes, trees...))
	require.NoError(t, err)
	require.Empty(t, rest)
	return f
}

// drawing draws trees, and features that often lie on a threshold.
type drawing struct {
	*rapid.T
	values  []float32
	classes int
}

func drawn(t *rapid.T) drawing {
	return drawing{
		T:       t,
		values:  rapid.SliceOfN(rapid.Float32(), 1, 6).Draw(t, "values"),
		classes: rapid.IntRange(1, 5).Draw(t, "classes"),
	}
}

func (d drawing) value(name string) float32 { return rapid.SampledFrom(d.values).Draw(d.T, name) }

func (d drawing) tree(depth int) *forest.Branch {
	if depth == 0 || rapid.IntRange(0, 3).Draw(d.T, "leaf") == 0 {
		return &forest.Branch{Class: rapid.IntRange(0, d.classes-1).Draw(d.T, "class")}
	}
	return &forest.Branch{
		Feature:   rapid.IntRange(0, numFeatures-1).Draw(d.T, "feature"),
		Threshold: d.value("threshold"),
		Less:      d.tree(depth - 1), Other: d.tree(depth - 1),
	}
}

func (d drawing) trees() []*forest.Branch {
	trees := make([]*forest.Branch, rapid.IntRange(1, forest.MostTrees).Draw(d.T, "trees"))
	for i := range trees {
		trees[i] = d.tree(4)
	}
	return trees
}

func (d drawing) features() []float32 {
	x := make([]float32, numFeatures)
	for i := range x {
		x[i] = d.value("feature value")
	}
	return x
}

// names returns n names of classes, the first one empty.
func names(n int) []string {
	names := make([]string, n)
	for i := range names[1:] {
		names[i+1] = "class " + strconv.Itoa(i+1)
	}
	return names
}

// walk returns the answer of one tree.
func walk(b *forest.Branch, x []float32) int {
	switch {
	case b.Leaf():
		return b.Class
	case x[b.Feature] < b.Threshold:
		return walk(b.Less, x)
	}
	return walk(b.Other, x)
}

// poll counts the votes of all trees.
func poll(trees []*forest.Branch, x []float32) int {
	votes := map[int]int{}
	for _, t := range trees {
		votes[walk(t, x)]++
	}
	best := walk(trees[0], x)
	for _, t := range trees[1:] {
		if c := walk(t, x); votes[c] > votes[best] {
			best = c
		}
	}
	return best
}

func TestTheMajorityWinsAndTheEarliestTreeBreaksTies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawn(t)
		trees := d.trees()
		f := planted(t, names(d.classes), trees...)
		for range 8 {
			x := d.features()
			require.Equal(t, poll(trees, x), f.Vote(x))
		}
	})
}

func TestHalfOfTheVotesIsNoMajority(t *testing.T) {
	for _, c := range []struct {
		votes []int
		want  int
	}{
		{[]int{0, 1, 1, 0}, 0},
		{[]int{0, 1, 1, 2}, 1},
		{[]int{2, 1, 0}, 2},
		{[]int{2, 1, 1, 0, 0, 2}, 2},
		{[]int{0, 1, 2, 2, 1, 1}, 1},
	} {
		var trees []*forest.Branch
		for _, class := range c.votes {
			trees = append(trees, &forest.Branch{Class: class})
		}
		require.Equal(t, c.want, planted(t, names(3), trees...).Vote(nil), "%v", c.votes)
	}
}

func TestForestsVoteAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawn(t)
		trees := [][]*forest.Branch{d.trees(), d.trees()} // share their cuts
		before, after := []byte("before"), rapid.SliceOf(rapid.Byte()).Draw(t, "after")
		all := forest.Append(before, forest.TrainedForest{Classes: names(d.classes), Trees: trees[0]},
			forest.TrainedForest{Classes: names(d.classes), Trees: trees[1]})
		require.Equal(t, before, all[:len(before)])
		b := all[len(before):]
		c, rest, err := forest.DecodeCuts(append(b[:len(b):len(b)], after...))
		require.NoError(t, err)
		for _, trees := range trees {
			var read *forest.Forest
			read, rest, err = c.Decode(rest)
			require.NoError(t, err)
			require.Equal(t, names(d.classes), read.Classes)
			for range 8 {
				x := d.features()
				require.Equal(t, poll(trees, x), read.Vote(x), "%v", x)
			}
		}
		require.Equal(t, len(after), len(rest))
		one := written(names(d.classes), trees[0]...)
		cut := rapid.IntRange(0, len(one)-1).Draw(t, "cut")
		_, _, err = decode(one[:cut])
		require.Error(t, err, "the first %d of %d bytes", cut, len(one))
	})
}

// Trees with branches that are skipped by their length and by reading them, and one whose levels are narrow.
func TestLargeForestsVoteAsTheirTreesDo(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	lopsided := &forest.Branch{}
	for i := range 300 {
		b := &forest.Branch{
			Feature: i % numFeatures, Threshold: random.Float32(), Less: lopsided,
			Other: &forest.Branch{Class: i % 20},
		}
		if i%3 == 0 {
			b.Less, b.Other = b.Other, b.Less
		}
		lopsided = b
	}
	for name, trees := range map[string][]*forest.Branch{
		"full": {full(12, random), full(6, random), full(9, random)}, "lopsided": {lopsided},
	} {
		t.Run(name, func(t *testing.T) {
			f := planted(t, names(20), trees...)
			for range 1000 {
				x := features(random)
				require.Equal(t, poll(trees, x), f.Vote(x), "%v", x)
			}
		})
	}
}

func TestForestsWithAChangedByteAreRefusedOrCanStillVote(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	b := written(names(20), full(6, random))
	x := features(random)
	refused := 0
	for i := range b {
		for _, change := range []byte{1, 0x80, 0xff} {
			b[i] ^= change
			if f, _, err := decode(b); err != nil {
				refused++
			} else {
				require.Less(t, f.Vote(x), len(f.Classes), "byte %d", i)
			}
			b[i] ^= change
		}
	}
	require.NotZero(t, refused)
}

// Thresholds that need all their bits, zeros of both signs, infinities and NaN are kept as they are.
func TestThresholdsAreKeptToTheBit(t *testing.T) {
	for _, threshold := range []float32{
		0.1, 3, 1e20, 123456792, 0.3333333, 1e-8, 1.5e-42, math.SmallestNonzeroFloat32, math.MaxFloat32, -7, 0,
		float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
	} {
		tree := &forest.Branch{Threshold: threshold, Less: &forest.Branch{}, Other: &forest.Branch{Class: 1}}
		f := planted(t, names(2), tree)
		for _, x := range []float32{
			threshold, math.Nextafter32(threshold, -1e30), math.Nextafter32(threshold, 1e30), 0, float32(math.NaN()),
		} {
			require.Equal(t, walk(tree, []float32{x}), f.Vote([]float32{x}), "%v of %v", x, threshold)
		}
	}
}

// Questions that those before have answered are not written.
func TestQuestionsThatAreDecidedAreLeftOut(t *testing.T) {
	leaf := func(class int) *forest.Branch { return &forest.Branch{Class: class} }
	fork := func(cut float32, less, other *forest.Branch) *forest.Branch {
		return &forest.Branch{Threshold: cut, Less: less, Other: other}
	}
	require.Equal(t, written(names(4), fork(2, leaf(0), leaf(3))),
		written(names(4), fork(2, fork(2, leaf(0), leaf(1)), fork(2, leaf(2), leaf(3)))))
}

// Counts are refused before anything is made for them.
func TestCountsThatCannotBeAreRefused(t *testing.T) {
	absurd := string(binary.AppendUvarint(nil, 1<<40))
	for _, c := range []struct{ name, data, want string }{
		{"no cuts", "", "the number of cuts is missing"},
		{"absurdly many cuts", absurd + "abc", "1099511627776 cuts: need at most 24"},
		{"cuts that end", "\x08\x01\xff", "cuts of 8"},
		{"part of the cuts", "\x01\x02a", "cuts end after 1 bytes of 2"},
		{"no tree", "\x00\x00\x01\x00\x01\x00", "no tree"},
		{"no class", "\x00\x00\x00\x01\x00\x01\x00", "no class"},
		{"too many trees", "\x00\x00\x01\x0a" + strings.Repeat("\x00", 30), "10 trees: need at most 9"},
		{"names that are missing", "\x00\x00\x02\x01\x00\x01\x00", "names of classes are missing"},
		{"a number longer than 64 bits", strings.Repeat("\xff", 10) + "\x01", "the number of cuts is missing"},
		{"absurdly many classes", "\x00\x00" + absurd + "abc", "1099511627776 classes: need at most 24"},
		{"an absurdly large tree", "\x00\x00\x01\x01\x01a" + absurd, "tree end after 0 bytes of 1099511627776"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := decode([]byte(c.data))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// However trees are damaged, they vote for a class, and for the same one again.
func FuzzDecode(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	fork := &forest.Branch{Threshold: 1, Less: &forest.Branch{}, Other: &forest.Branch{Class: 1}}
	f.Add(written(names(2), fork), uint64(1))
	f.Add(written(names(20), full(3, random), full(3, random), full(3, random)), uint64(3))
	f.Add(written(names(2), &forest.Branch{
		Threshold: float32(math.NaN()), Less: &forest.Branch{}, Other: &forest.Branch{Class: 1},
	}), uint64(4))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		first, rest, err := decode(b)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(rest), len(b))
		again, _, err := decode(b)
		require.NoError(t, err)
		random := rand.New(rand.NewPCG(seed, 0))
		x := make([]float32, forest.Features)
		for range 8 {
			for i := range x {
				x[i] = math.Float32frombits(random.Uint32())
			}
			c := first.Vote(x)
			require.Less(t, c, len(first.Classes))
			require.Equal(t, c, again.Vote(x), "%v", x)
		}
	})
}

// full returns a tree with that many questions to each leaf.
func full(depth int, random *rand.Rand) *forest.Branch {
	if depth == 0 {
		return &forest.Branch{Class: random.IntN(20)}
	}
	return &forest.Branch{
		Feature: random.IntN(numFeatures), Threshold: random.Float32(),
		Less: full(depth-1, random), Other: full(depth-1, random),
	}
}

func features(random *rand.Rand) []float32 {
	x := make([]float32, numFeatures)
	for i := range x {
		x[i] = random.Float32()
	}
	return x
}

func BenchmarkVote(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	f := planted(b, names(20), full(10, random), full(10, random), full(10, random))
	x := []float32{0.2, 0.4, 0.6, 0.8}
	b.ReportAllocs()
	for b.Loop() {
		f.Vote(x)
	}
}
