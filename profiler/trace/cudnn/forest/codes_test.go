package forest

import (
	"container/heap"
	"flag"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/tools/sample"
)

var learn = flag.Bool("learn", false, "learn the codes from all trees, and write file codes")

// build reads all of tree i.
func (f *Forest) build(i int) *Branch {
	w := walker{cuts: f.cuts, classModel: newClassModel(len(f.Classes))}
	if w.begin(f.trees[i].packed, i == 0) {
		return &Branch{Class: w.class(false)}
	}
	return w.build(Features)
}

func (w *walker) build(parent int) *Branch {
	feature, shape, cut := w.question(parent)
	b := &Branch{Feature: feature, Threshold: w.cuts.values[cut]}
	r := w.rooms[feature]
	below := func(of cutRange) *Branch {
		w.rooms[feature] = of
		defer func() { w.rooms[feature] = r }()
		return w.build(feature)
	}
	less, other := cutRange{r.low, cut}, cutRange{cut + 1, r.high}
	switch shape {
	case bothLeaves:
		b.Less = &Branch{Class: w.class(false)}
		b.Other = &Branch{Class: w.class(true)}
	case lessIsLeaf:
		b.Less = &Branch{Class: w.class(false)}
		b.Other = below(other)
	case otherIsLeaf:
		b.Other = &Branch{Class: w.class(false)}
		b.Less = below(less)
	case noLeaf:
		b.Less = below(less)
		b.Other = below(other)
	case longBranch:
		w.jump()
		before := w.clone()
		b.Less = below(less)
		w.classModel = before
		b.Other = below(other)
	}
	return b
}

// grown reads the forests of a file, grouped by the cuts that they share. In an ensemble, the first forest names the
// others.
func grown(t *testing.T, b []byte, ensembles bool) (shared [][]TrainedForest) {
	for len(b) > 0 {
		c, rest, err := DecodeCuts(b)
		require.NoError(t, err)
		var forests []TrainedForest
		for more := 1; more > 0; more-- {
			var f *Forest
			f, rest, err = c.Decode(rest)
			require.NoError(t, err)
			g := TrainedForest{Classes: f.Classes}
			for i := range f.trees {
				g.Trees = append(g.Trees, f.build(i))
			}
			if forests = append(forests, g); ensembles && len(forests) == 1 {
				for _, name := range f.Classes {
					more += strings.Count(name, "@")
				}
			}
		}
		b, shared = rest, append(shared, forests)
	}
	return shared
}

// Append writes the shipped trees as they are, byte by byte. With -learn, file codes is learned from them, and they are
// written with it.
func TestShippedTreesAreWrittenAsTheyAreRead(t *testing.T) {
	paths, err := filepath.Glob("../../../stack/cudnn/*/*")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	if !*learn {
		paths = sample.Of(paths)
	}
	files := map[string][][]TrainedForest{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		files[path] = grown(t, b, !strings.HasSuffix(path, "-device"))
		require.Equal(t, b, written(files[path]), path)
	}
	if !*learn {
		return
	}
	codes := learned(slices.Concat(slices.Collect(maps.Values(files))...))
	require.NoError(t, os.WriteFile("codes", codes, 0o644))
	shippedBooks = sync.OnceValue(func() *codeBooks { return newBooks(codes) })
	for path, shared := range files {
		require.NoError(t, os.WriteFile(path, written(shared), 0o644))
	}
}

// written writes the contents of a file.
func written(shared [][]TrainedForest) (b []byte) {
	for _, forests := range shared {
		b = Append(b, forests...)
	}
	return b
}

// learned returns the contents of file codes that suit some forests best.
func learned(shared [][]TrainedForest) []byte {
	var counts [numCodes][][]int
	for c, size := range codeSizes {
		for range size.contexts {
			counts[c] = append(counts[c], make([]int, size.symbols))
		}
	}
	w := func() *writer {
		return &writer{books: shippedBooks(), count: func(c code, context, symbol int) { counts[c][context][symbol]++ }}
	}
	for _, forests := range shared {
		c := cutsOf(forests)
		c.write(w())
		for _, f := range forests {
			f.writeNames(w())
			for i := range f.Trees {
				f.writeTree(w(), i, c)
			}
		}
	}
	var b []byte
	for c, contexts := range counts {
		of, books := cluster(contexts, codeSizes[c].books)
		b = append(b, of...)
		at := 0
		for _, lengths := range books {
			for _, n := range lengths {
				if at%2 == 0 {
					b = append(b, 0)
				}
				b[len(b)-1] |= byte(n) << (at % 2 * 4)
				at++
			}
		}
	}
	return b
}

// cluster finds books for the symbols of contexts, and the book that takes the fewest bits for each context.
func cluster(contexts [][]int, books int) (of []byte, lengths [][]int) {
	of = make([]byte, len(contexts))
	order := make([]int, len(contexts))
	size := func(c int) (n int) {
		for _, k := range contexts[c] {
			n += k
		}
		return n
	}
	for c := range order {
		order[c] = c
	}
	slices.SortStableFunc(order, func(x, y int) int { return size(y) - size(x) })
	for i, c := range order {
		of[c] = byte(i % books) // the largest begin books of their own
	}
	for range 30 {
		sums := make([][]int, books)
		for b := range sums {
			sums[b] = make([]int, len(contexts[0]))
		}
		for c, symbols := range contexts {
			for s, n := range symbols {
				sums[of[c]][s] += n
			}
		}
		lengths = nil
		for _, sum := range sums {
			lengths = append(lengths, codeLengths(sum))
		}
		for c, symbols := range contexts {
			least := math.MaxInt
			for b := range books {
				bits := 0
				for s, n := range symbols {
					bits += n * lengths[b][s]
				}
				if bits < least {
					least, of[c] = bits, byte(b)
				}
			}
		}
	}
	return of, lengths
}

// codeLengths returns the number of bits of each symbol in a Huffman code. Symbols that did not occur have a code, too.
func codeLengths(counts []int) []int {
	for floor := 1; ; floor *= 2 {
		var q queue
		for s, n := range counts {
			q = append(q, weighed{weight: max(64*n, floor), symbols: []int{s}})
		}
		heap.Init(&q)
		lengths := make([]int, len(counts))
		for q.Len() > 1 {
			x, y := heap.Pop(&q).(weighed), heap.Pop(&q).(weighed)
			both := weighed{x.weight + y.weight, append(x.symbols, y.symbols...)}
			for _, s := range both.symbols {
				lengths[s]++
			}
			heap.Push(&q, both)
		}
		if slices.Max(lengths) <= longest {
			return lengths
		}
	}
}

// weighed is symbols that share the first bits of their codes.
type weighed struct {
	weight  int
	symbols []int
}

// queue has the least weight first.
type queue []weighed

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].weight < q[j].weight }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(weighed)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
