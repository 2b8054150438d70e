package forest_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/trace/cudnn/forest"
)

// numFeatures is how many features the drawn trees ask about.
const numFeatures = 4

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

// names are n names of classes, the first one empty.
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
		f := forest.New(names(d.classes), trees...)
		require.Equal(t, len(trees), f.Trees())
		x := d.features()
		require.Equal(t, poll(trees, x), f.Vote(x))
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
		require.Equal(t, c.want, forest.New(names(3), trees...).Vote(nil), "%v", c.votes)
	}
}

func TestForestsVoteAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawn(t)
		f := forest.New(names(d.classes), d.trees()...)
		before, after := []byte("before"), rapid.SliceOf(rapid.Byte()).Draw(t, "after")
		written := f.Append(before)
		require.Equal(t, before, written[:len(before)])
		b := written[len(before):]
		read, rest, err := forest.Decode(append(b[:len(b):len(b)], after...), numFeatures)
		require.NoError(t, err)
		require.Equal(t, len(after), len(rest))
		require.Equal(t, f.Classes, read.Classes)
		require.Equal(t, f.Trees(), read.Trees())
		for range 8 {
			x := d.features()
			require.Equal(t, f.Vote(x), read.Vote(x), "%v", x)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		_, _, err = forest.Decode(b[:cut], numFeatures)
		require.Error(t, err, "the first %d of %d bytes", cut, len(b))
	})
}

func TestMergedTreesAnswerTheSameInNewNumbersWithNoMoreLeaves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawn(t)
		tree := d.tree(5)
		numbers := rapid.SliceOfN(rapid.IntRange(0, 2), d.classes, d.classes).Draw(t, "numbers")
		merged := tree.Merge(numbers)
		require.LessOrEqual(t, merged.Leaves(), tree.Leaves())
		require.True(t, apart(merged), "neighbors of one class are joined")
		for range 8 {
			x := d.features()
			require.Equal(t, numbers[walk(tree, x)], walk(merged, x), "%v", x)
		}
	})
}

// apart says that no two leaves of one class are neighbors.
func apart(b *forest.Branch) bool {
	if b.Leaf() {
		return true
	}
	return apart(b.Less) && apart(b.Other) &&
		(!b.Less.Leaf() || !b.Other.Leaf() || b.Less.Class != b.Other.Class)
}

// A tree that fills several blocks, and one whose levels are narrow.
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
		"full": {full(8, random), full(6, random), full(7, random)}, "lopsided": {lopsided},
	} {
		t.Run(name, func(t *testing.T) {
			f := forest.New(names(20), trees...)
			read, _, err := forest.Decode(f.Append(nil), numFeatures)
			require.NoError(t, err)
			for range 200 {
				x := features(random)
				require.Equal(t, poll(trees, x), f.Vote(x), "%v", x)
				require.Equal(t, poll(trees, x), read.Vote(x), "%v", x)
			}
		})
	}
}

func TestForestsWithAChangedByteAreRefusedOrCanStillVote(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	b := forest.New(names(20), full(6, random)).Append(nil)
	x := features(random)
	refused := 0
	for i := range b {
		for _, change := range []byte{1, 0x80, 0xff} {
			b[i] ^= change
			if f, _, err := forest.Decode(b, numFeatures); err != nil {
				refused++
			} else {
				require.Less(t, f.Vote(x), len(f.Classes), "byte %d", i)
			}
			b[i] ^= change
		}
	}
	require.Greater(t, refused, len(b)/2)
}

// parts are those of a written forest of two classes, one tree, and features that it asks about.
type parts struct {
	features          []byte // of the cuts, all at zero
	questions         byte   // their number
	blocks            []byte
	asked, classified []byte // by the questions, by the leaves
}

// stump returns a forest of two cuts and a tree of one question.
func stump(change func(p *parts)) []byte {
	p := parts{
		features: []byte{0, 0}, questions: 1, blocks: []byte{0, 0, 0, 0, 0b001, 0, 0, 0, 0, 0, 0, 0},
		asked: []byte{0, 0, 0, 0}, classified: []byte{0b10, 0, 0, 0},
	}
	change(&p)
	b := []byte{2, 1, 'a', 1, 'b', byte(len(p.features))}
	for _, f := range p.features {
		b = append(b, f, 0, 0, 0, 0)
	}
	return slices.Concat(b, []byte{1, p.questions}, p.blocks, p.asked, p.classified)
}

func TestTreesThatCannotBeWalkedAreRefused(t *testing.T) {
	f, _, err := forest.Decode(stump(func(*parts) {}), 1)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, []int{f.Vote([]float32{-1}), f.Vote([]float32{1})})
	for _, c := range []struct {
		name   string
		change func(p *parts)
		want   string
	}{
		{"a feature that is none", func(p *parts) { p.features[1] = 1 }, "cut 1: feature 1 of 1"},
		{"a cut that is none", func(p *parts) {
			p.features = append(p.features, 0)
			p.asked[0] = 3
		}, "tree 0: question 0: cut 3 of 3"},
		{"no cut", func(p *parts) { p.features = nil }, "tree 0: question 0: cut 0 of 0"},
		{"half a tree", func(p *parts) { p.classified = nil }, "4 bytes are missing"},
		{"questions before the first", func(p *parts) {
			p.blocks[0] = 1
		}, "tree 0: block at node 0: 1 questions before it, not 0"},
		{"a question below a leaf", func(p *parts) { p.blocks[4] = 0b010 }, "tree 0: node 1 hangs on none"},
		{"more questions than there are", func(p *parts) { p.blocks[4] = 0b011 }, "tree 0: 2 questions, not 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := forest.Decode(stump(c.change), 1)
			require.EqualError(t, err, "forest: "+c.want)
		})
	}
}

// Counts are refused before anything is made for them.
func TestCountsThatCannotBeAreRefused(t *testing.T) {
	absurd := string(binary.AppendUvarint(nil, 1<<40))
	for _, c := range []struct{ name, data, want string }{
		{"no tree", "\x01\x01a\x00\x00", "no tree"},
		{"too many trees", "\x01\x01a\x00\x0a" + strings.Repeat("\x00", 30), "10 trees, at most 9"},
		{"a name longer than the data", "\x01\x09abc", "6 bytes are missing"},
		{"a number longer than 64 bits", strings.Repeat("\xff", 10) + "\x01", "the number of classes is missing"},
		{"absurdly many classes", absurd + "abc", "1099511627776 classes, at most 24"},
		{"absurdly many cuts", "\x01\x01a" + absurd, "1099511627776 cuts, at most 0"},
		{"absurdly many trees", "\x01\x01a\x00" + absurd, "1099511627776 trees, at most 0"},
		{"an absurdly large tree", "\x01\x01a\x00\x01" + absurd, "1099511627776 questions, at most 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := forest.Decode([]byte(c.data), 1)
			require.EqualError(t, err, "forest: "+c.want)
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(stump(func(*parts) {}), uint64(1))
	f.Add(stump(func(p *parts) { p.blocks[4] = 0b010 }), uint64(2))
	f.Add(grown(3).Append(nil), uint64(3))
	nan := forest.New(names(2), &forest.Branch{
		Threshold: float32(math.NaN()), Less: &forest.Branch{},
		Other: &forest.Branch{Class: 1},
	})
	f.Add(nan.Append(nil), uint64(4))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		first, rest, err := forest.Decode(b, numFeatures)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(rest), len(b))
		again, rest, err := forest.Decode(first.Append(nil), numFeatures)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, first.Classes, again.Classes)
		random := rand.New(rand.NewPCG(seed, 0))
		x := make([]float32, numFeatures)
		for range 8 {
			for i := range x {
				x[i] = math.Float32frombits(random.Uint32())
			}
			require.Equal(t, first.Vote(x), again.Vote(x), "%v", x)
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

// grown returns a forest of three full trees.
func grown(depth int) *forest.Forest {
	random := rand.New(rand.NewPCG(1, 2))
	return forest.New(names(20), full(depth, random), full(depth, random), full(depth, random))
}

func BenchmarkVote(b *testing.B) {
	f := grown(10)
	x := []float32{0.2, 0.4, 0.6, 0.8}
	b.ReportAllocs()
	for b.Loop() {
		f.Vote(x)
	}
}

func BenchmarkDecode(b *testing.B) {
	packed := grown(10).Append(nil)
	b.SetBytes(int64(len(packed)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := forest.Decode(packed, numFeatures); err != nil {
			b.Fatal(err)
		}
	}
}
