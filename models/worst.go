package models

import (
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// recordWorst records the ranks of a pipeline that differ, and returns the one that needs most.
// A step takes as long as the stages with the most arithmetic.
func (m Model) recordWorst(c Case, board trace.Board, o Options) (*Recording, error) {
	var worst *Recording
	most, flops, busiest := int64(-1), int64(0), int64(0)
	for _, rank := range m.ranksToRecord(c, board, o) {
		s := *c.Strategy
		s.Rank = &rank
		c.Strategy = &s
		rec, err := m.Record(c, board, o)
		if err != nil {
			return nil, err
		}
		f := rec.Program.FLOPs()
		busiest = max(busiest, f)
		n := rec.Program.Peak()
		if n <= most {
			rec.Discard()
			continue
		}
		if worst != nil {
			worst.Discard()
		}
		most, flops, worst = n, f, rec
	}
	if flops > 0 {
		worst.Stretch *= float64(busiest) / float64(flops)
	}
	return worst, nil
}

// ranksToRecord are the ranks of a pipeline without those that do what a rank before them
// does: that one holds at least as many micro-batches at a time, in any schedule. They are all
// where that cannot be told.
func (m Model) ranksToRecord(c Case, board trace.Board, o Options) (ranks []int64) {
	does := m.ranksOf(c, board, o)
	for rank := range int64(c.GPUs) {
		if does == nil || slices.Index(does, does[rank]) == int(rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// ranksOf describes what each rank of a pipeline does, nil where that cannot be told.
func (m Model) ranksOf(c Case, board trace.Board, o Options) []string {
	trainer, err := m.Build(c)
	release, unknown := c.Release()
	staged, ok := trainer.(Staged)
	if err != nil || unknown != nil || !ok {
		return nil
	}
	scratch := trace.New(board, release.Rules(), trace.Options{})
	defer func() { trace.Recycle(scratch.Finish()) }()
	scratch.KeepInRegions(c.Recompute.KeptOperators())
	does, err := staged.Ranks(scratch)
	if err != nil {
		return nil
	}
	return does
}
