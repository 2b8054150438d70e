package accuracy_test

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/tools/conformal"
	"github.com/vprof/vprof/tools/golden"
)

// residualsOf returns the residuals of the rows by release, in this order. Each model is left out in turn.
func residualsOf(rows []report.AccuracyRow) []conformal.Group {
	rows = lists.Filter(rows, func(r report.AccuracyRow) bool { return r.Error != nil && !r.Estimate.OOM })
	var groups []conformal.Group
	for _, release := range lists.Groups(rows, func(r report.AccuracyRow) string { return r.Torch }) {
		var allocated, reserved [][]conformal.Miss
		for _, model := range lists.Groups(release, func(r report.AccuracyRow) string { return r.Case }) {
			miss := func(of func(report.AccuracySide) int64) []conformal.Miss {
				return lists.Map(model, func(r report.AccuracyRow) conformal.Miss {
					e := of(r.Estimate)
					return conformal.MissOf(of(r.Reference), 0, e, e, e)
				})
			}
			allocated = append(allocated, miss(func(s report.AccuracySide) int64 { return s.Allocated }))
			reserved = append(reserved, miss(func(s report.AccuracySide) int64 { return s.Reserved }))
		}
		groups = append(groups, conformal.Group{
			Release: release[0].Torch, Group: "all models", Apart: "their model",
			Allocated: conformal.Of(conformal.Middle95, allocated),
			Reserved:  conformal.Of(conformal.Middle95, reserved),
		})
	}
	slices.SortFunc(groups, func(a, b conformal.Group) int { return cmp.Compare(minor(a.Release), minor(b.Release)) })
	return groups
}

// minor returns the second number of a release of PyTorch 2.
func minor(release string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(release, "2."))
	return n
}

func TestPlannersResidualsAreThoseOfTheReferenceRecords(t *testing.T) {
	later, err := committed2_15()
	require.NoError(t, err)
	data, err := conformal.Encode("bench/reference/data: PyTorch 2.11.0+cu130 and 2.15.0+cu132 on a simulated driver",
		residualsOf(slices.Concat(compared(t).Rows, later.Rows)))
	require.NoError(t, err)
	golden.Equal(t, "../../../profiler/planner/residuals.json", data)
}
