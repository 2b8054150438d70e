package accuracy_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/accuracy"
	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/tools/golden"
	"github.com/vprof/vprof/tools/sample"
)

// The committed records of PyTorch 2.11 and of 2.15, compared once for all tests.
var (
	committed = sync.OnceValues(func() (*report.Accuracy, error) {
		return accuracyOf("../../reference/data/*.jsonl")
	})
	committed2_15 = sync.OnceValues(func() (*report.Accuracy, error) {
		return accuracyOf("../../reference/data/2.15/*.jsonl.gz")
	})
)

func accuracyOf(files string) (*report.Accuracy, error) {
	paths, err := filepath.Glob(files)
	if err != nil {
		return nil, err
	}
	var records []reference.Record
	for _, path := range paths {
		f, err := reference.Open(path)
		if err != nil {
			return nil, err
		}
		records = append(records, f.Records...)
	}
	records = sample.Of(records)
	return accuracy.Compare(context.Background(), records, accuracy.Recorder{Models: all.Models()}, nil)
}

// The figures that PyTorch 2.15 must reach, by its own rules: the records name their release.
func TestRecordsAreJudgedByTheRulesOfTheirRelease(t *testing.T) {
	a, err := committed2_15()
	require.NoError(t, err)
	require.NotEmpty(t, a.Rows)
	require.Empty(t, a.Unknown)
	require.Zero(t, a.Summary.OOM.Wrong)
	require.Zero(t, a.Summary.Allocated.Median)
	require.LessOrEqual(t, a.Summary.Allocated.P95, 0.005)
	require.LessOrEqual(t, a.Summary.Allocated.Max, 0.03)
	require.LessOrEqual(t, a.Summary.Reserved.Median, 0.002)
	require.LessOrEqual(t, a.Summary.Reserved.P95, 0.03)
	require.LessOrEqual(t, a.Summary.Reserved.Max, 0.08)
}

func compared(t *testing.T) *report.Accuracy {
	t.Helper()
	sample.Whole(t)
	a, err := committed()
	require.NoError(t, err)
	return a
}

func TestEveryRecordIsComparedOrListedAsUnknown(t *testing.T) {
	a, err := committed()
	require.NoError(t, err)
	records := len(sample.Of(make([]struct{}, 895)))
	require.Equal(t, records, a.Summary.Records)
	require.Equal(t, records, len(a.Rows)+len(a.Unknown))
	for _, u := range a.Unknown {
		require.NotContains(t, all.Models().Names(), u.Case, "%s:%d belongs to a model we have: %s", u.File,
			u.Line, u.Reason)
	}
}

// The figures that estimates of ReDimNet must reach. What they do reach, and other models with them, is in the table of
// docs/lab/accuracy.md; these say what is still good enough to plan with.
func TestEstimatesOfReDimNetAreGoodEnoughToPlanWith(t *testing.T) {
	a := &report.Accuracy{Rows: slices.DeleteFunc(slices.Clone(compared(t).Rows), func(r report.AccuracyRow) bool {
		return !strings.HasPrefix(r.Case, "redimnet-")
	})}
	a.Summarize()
	for _, g := range append(slices.Clone(a.Summary.ByModel), allOf(a)) {
		t.Run(g.Name, func(t *testing.T) {
			require.LessOrEqual(t, g.Allocated.Median, 0.005)
			require.LessOrEqual(t, g.Allocated.P95, 0.02)
			require.LessOrEqual(t, g.Allocated.Max, 0.04)
			require.LessOrEqual(t, g.Reserved.Median, 0.02)
			require.LessOrEqual(t, g.Reserved.Max, 0.12)
			require.GreaterOrEqual(t, float64(g.OOM.Right), 0.99*float64(g.OOM.Right+g.OOM.Wrong))
		})
	}
	require.LessOrEqual(t, a.Summary.Reserved.P95, 0.06)
	require.Zero(t, a.Summary.Refusals.Wrong)
	require.Zero(t, a.Summary.PhasesDiffer)
}

func allOf(a *report.Accuracy) report.AccuracyGroup {
	return report.AccuracyGroup{Name: "all", Compared: a.Summary.Compared, AccuracyErrors: a.Summary.AccuracyErrors}
}

func TestAccuracyTablesOfTheDocsAreCurrent(t *testing.T) {
	later, err := committed2_15()
	require.NoError(t, err)
	tables := accuracyTable("PyTorch 2.15", later) + "\n" + accuracyTable("PyTorch 2.11", compared(t))
	page, err := os.ReadFile("../../../docs/lab/accuracy.md")
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), "<!-- accuracy -->\n")
	require.True(t, found)
	_, after, found := strings.Cut(rest, "<!-- /accuracy -->\n")
	require.True(t, found)
	golden.Equal(t, "../../../docs/lab/accuracy.md",
		[]byte(before+"<!-- accuracy -->\n"+tables+"<!-- /accuracy -->\n"+after))
}

// accuracyTable returns the table of docs/lab/accuracy.md, in Markdown: a row for each model with an error.
func accuracyTable(head string, a *report.Accuracy) string {
	table := report.Sheet{Columns: []report.Column{
		{Head: head},
		{Head: "records", Right: true},
		{Head: "allocated: median", Right: true},
		{Head: "p95", Right: true},
		{Head: "max", Right: true},
		{Head: "reserved: median", Right: true},
		{Head: "p95", Right: true},
		{Head: "max", Right: true},
		{Head: "OOM right", Right: true},
	}}
	var exact []string
	for _, g := range append(slices.Clone(a.Summary.ByModel), allOf(a)) {
		if max(g.Allocated.Max, g.Reserved.Max) == 0 && g.OOM.Wrong == 0 {
			exact = append(exact, fmt.Sprintf("%s %d", g.Name, g.OOM.Right))
			continue
		}
		row := []string{g.Name, fmt.Sprint(g.Compared)}
		for _, e := range []report.ErrorStatistics{g.Allocated, g.Reserved} {
			for _, f := range []float64{e.Median, e.P95, e.Max} {
				row = append(row, fmt.Sprintf("%.1f%%", 100*f))
			}
		}
		table.Rows = append(table.Rows, append(row, fmt.Sprintf("%d/%d", g.OOM.Right, g.OOM.Right+g.OOM.Wrong)))
	}
	return table.Markdown() +
		"\nAll errors of these models are 0.0 %, and all verdicts right; with the number of runs: " +
		strings.Join(exact, ", ") + ".\n"
}
