package accuracy_test

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/tools/golden"
)

// residualGroup is the residuals of the records of a model, or of all, on a release, as package planner reads them.
type residualGroup struct {
	Release   string     `json:"release"`
	Group     string     `json:"group"`
	Records   int        `json:"records"`
	Allocated [2]float64 `json:"allocated"`
	Reserved  [2]float64 `json:"reserved"`
}

// residualsOf returns the residuals of the rows by release and model and by release over all, in this order.
func residualsOf(rows []report.AccuracyRow) []residualGroup {
	type key struct{ release, group string }
	allocated, reserved := map[key][]float64{}, map[key][]float64{}
	for _, r := range rows {
		if r.Error == nil || r.Estimate.OOM {
			continue // one of both did not get through
		}
		for _, k := range []key{{r.Torch, r.Case}, {r.Torch, "all models"}} {
			allocated[k] = append(allocated[k], residual(r.Reference.Allocated, r.Estimate.Allocated))
			reserved[k] = append(reserved[k], residual(r.Reference.Reserved, r.Estimate.Reserved))
		}
	}
	var groups []residualGroup
	for k, a := range allocated {
		groups = append(groups, residualGroup{k.release, k.group, len(a), middle95(a), middle95(reserved[k])})
	}
	slices.SortFunc(groups, func(a, b residualGroup) int {
		return cmp.Or(cmp.Compare(minor(a.Release), minor(b.Release)), strings.Compare(a.Group, b.Group))
	})
	return groups
}

// minor returns the second number of a release of PyTorch 2.
func minor(release string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(release, "2."))
	return n
}

func residual(reference, estimate int64) float64 {
	return float64(reference-estimate) / float64(max(1, estimate))
}

// middle95 returns the range that holds the middle 95 % of the values, from the 2.5 % to the 97.5 % quantile by the
// nearest rank, rounded outwards to 1e-6.
func middle95(values []float64) [2]float64 {
	slices.Sort(values)
	n := float64(len(values))
	low := int(math.Floor(0.025 * n))
	high := int(math.Ceil(0.975*n)) - 1
	return [2]float64{math.Floor(values[low]*1e6) / 1e6, math.Ceil(values[high]*1e6) / 1e6}
}

// Of 40 residuals 0.000 ... 0.039 the middle 95 % leaves one out on each side.
func TestResidualsAreTheMiddle95PercentOfTheModel(t *testing.T) {
	var values []float64
	for i := range 40 {
		values = append(values, residual(1000+int64(i), 1000))
	}
	require.Equal(t, [2]float64{0.001, 0.038}, middle95(values))
}

func TestAtMostFivePercentLieOutside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1, 1), 1, 300).Draw(t, "residuals")
		r := middle95(values)
		outside := 0
		for _, v := range values {
			if v < r[0] || v > r[1] {
				outside++
			}
		}
		require.LessOrEqual(t, float64(outside), 0.05*float64(len(values)))
	})
}

func TestPlannersResidualsAreThoseOfTheReferenceRecords(t *testing.T) {
	later, err := committed2_15()
	require.NoError(t, err)
	data, err := json.MarshalIndent(struct {
		Schema string          `json:"schema"`
		Source string          `json:"source"`
		Groups []residualGroup `json:"groups"`
	}{
		"vprof.residuals/v2", "bench/reference/data: PyTorch 2.11.0+cu130 and 2.15.0+cu132 on a simulated driver",
		residualsOf(slices.Concat(compared(t).Rows, later.Rows)),
	}, "", " ")
	require.NoError(t, err)
	golden.Equal(t, "../../../profiler/planner/residuals.json", append(data, '\n'))
}
