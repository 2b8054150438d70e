package planner

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// jagged are needs that grow with the batch, but for jumps up and down: no batch needs more than a larger one by more
// than the share that a search counts on, and none more than 1.075 times what one a quarter larger does.
type jagged struct{ fixed, each, jump int64 }

func (j jagged) need(batch int) (int64, error) {
	n := int64(batch) * j.each
	hash := uint64(batch) * 0x9e3779b97f4a7c15 >> 40
	return j.fixed + n + n*j.jump*int64(hash%1000)/100_000, nil
}

func drawJagged(t *rapid.T) jagged {
	return jagged{
		rapid.Int64Range(0, 1<<30).Draw(t, "fixed"),
		rapid.Int64Range(1, 1<<24).Draw(t, "each"),
		rapid.Int64Range(0, 28).Draw(t, "jump"),
	}
}

func (j jagged) search(from int, begin Start, to int, limit int64) *BatchSearch {
	return &BatchSearch{From: from, Start: begin, To: to, Limit: limit, Need: j.need}
}

func drawStart(t *rapid.T, to int) Start {
	return Start{rapid.IntRange(0, to).Draw(t, "begin"), rapid.Bool().Draw(t, "near")}
}

// The answer hangs on the needs and the limit alone; it is the last size up to which all are
// within the limit, and every smaller batch is safe.
func TestLargestIsTheLastUpToWhichAllAreSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j, to := drawJagged(t), rapid.IntRange(1, 700).Draw(t, "to")
		most, _ := j.need(to)
		limit := rapid.Int64Range(0, most+most/10).Draw(t, "limit")
		want := 0
		for b := 1; b <= sizeOf(to); b = sizeOf(b + 1) {
			if n, _ := j.need(b); n > limit {
				break
			}
			want = min(b, to)
		}
		got, err := j.search(1, drawStart(t, 800), to, limit).Largest()
		require.NoError(t, err)
		require.Equal(t, want, got)
		batch := rapid.IntRange(1, to).Draw(t, "batch")
		safe, at, err := j.search(1, Start{}, to, limit).Safe(batch)
		require.NoError(t, err)
		require.Equal(t, batch <= want, safe)
		require.Equal(t, safe, at == 0)
		more, err := j.search(1, drawStart(t, 800), to, limit+rapid.Int64Range(0, most).Draw(t, "more")).Largest()
		require.NoError(t, err)
		require.GreaterOrEqual(t, more, got)
	})
}

// Runs are tried at the edge alone: what is found was run, and so was the next, which is too large.
func TestASearchOfRunsTriesTheEdge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		needs := rapid.SliceOfN(rapid.Int64Range(0, 100), 1, 200).Draw(t, "needs")
		limit := rapid.Int64Range(0, 100).Draw(t, "limit")
		need := func(b int) (int64, error) { return needs[b-1], nil }
		s := BatchSearch{From: 1, Start: drawStart(t, 200), To: len(needs), Limit: limit, NeedIsSlow: true, Need: need}
		got, err := s.Largest()
		require.NoError(t, err)
		if got > 0 {
			require.LessOrEqual(t, needs[got-1], limit)
		}
		if got < len(needs) {
			require.Greater(t, needs[got], limit)
		}
	})
}

func TestSizesAreFinerThanASixteenth(t *testing.T) {
	for batch, want := range map[int]int{
		1: 1, 31: 31, 32: 32, 33: 34, 63: 64, 64: 64, 65: 68, 68: 68, 128: 128, 129: 136, 1000: 1024, 1025: 1088,
	} {
		require.Equal(t, want, sizeOf(batch), batch)
	}
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.IntRange(1, 1<<20).Draw(t, "batch")
		size := sizeOf(b)
		require.Equal(t, size, sizeOf(size))
		require.GreaterOrEqual(t, size, b)
		require.Less(t, size-b, max(1, b/16+1))
		require.Equal(t, size, sizeOf(size-sizeStep(size)+1), "sizes have no others between them")
	})
}

// A step of 3 GiB and 215 MiB per sample with a jump of slack: a bisection of
// 2^20 sizes asks 20 times for the edge; what is below asks for each size of a quarter.
func TestLargestAsksForFewSizes(t *testing.T) {
	asked := 0
	s := BatchSearch{From: 1, Start: Start{Batch: 64}, To: 1 << 20, Limit: 80 << 30, Need: func(b int) (int64, error) {
		asked++
		return 3<<30 + int64(b)*(215<<20) + int64(b%7)*(20<<20), nil
	}}
	got, err := s.Largest()
	require.NoError(t, err)
	require.Equal(t, 352, got)
	require.LessOrEqual(t, asked, 16)
}

// A search that begins at the edge, or one off it, asks for it and its neighbor alone.
func TestLargestNearTheEdgeAsksForTheNeighbor(t *testing.T) {
	need := func(b int) int64 { return 3<<30 + int64(b)*(215<<20) }
	for begin, want := range map[int][]int{366: {366, 367}, 367: {367, 366}, 365: {365, 366, 367}} {
		var asked []int
		s := BatchSearch{From: 1, Start: Start{begin, true}, To: 1 << 20, Limit: need(366) + 1, NeedIsSlow: true}
		s.Need = func(b int) (int64, error) {
			asked = append(asked, b)
			return need(b), nil
		}
		got, err := s.Largest()
		require.NoError(t, err)
		require.Equal(t, 366, got)
		require.Equal(t, want, asked)
	}
}

func TestLargestPassesErrorsOn(t *testing.T) {
	cause := errors.New("norm")
	s := BatchSearch{From: 1, To: 8, Limit: 1, Need: func(int) (int64, error) { return 0, cause }}
	_, err := s.Largest()
	require.ErrorIs(t, err, cause)
	_, err = (&BatchSearch{From: 3, To: 2, Limit: 1}).Largest()
	require.Error(t, err)
}

// Where a size may need many times what a larger one does, the answer hangs on no start.
func TestAJaggedSearchAsksForAllSizesBelow(t *testing.T) {
	for begin := 1; begin <= 64; begin++ {
		s := BatchSearch{
			From: 1, To: 100, Start: Start{Batch: begin}, Limit: 50, HasJumps: true,
			Need: func(batch int) (int64, error) {
				if batch == 4 {
					return 60, nil
				}
				return int64(batch), nil
			},
		}
		largest, err := s.Largest()
		require.NoError(t, err)
		require.Equal(t, 3, largest, "from %d", begin)
	}
}
