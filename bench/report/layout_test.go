package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/internal/printable"
)

// Tables fit, and what matters most is never left out.
func TestTablesFitTheirWidth(t *testing.T) {
	documents := map[string]Document{"sweep": toySweep(), "plan": toyPlan(1), "boards": toyPlan(2)}
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(60, 200).Draw(t, "width")
		name := rapid.SampledFrom([]string{"sweep", "plan", "boards"}).Draw(t, "of")
		var b bytes.Buffer
		require.NoError(t, WriteTable(&b, documents[name], Layout{Width: width}))
		for line := range strings.Lines(b.String()) {
			require.LessOrEqual(t, widthOf(line), width, line)
		}
		if name == "sweep" {
			require.Regexp(t, `batch .*device .*device .*fits`, b.String())
		}
	})
}

func TestColumnsAreLeftOutByImportance(t *testing.T) {
	s := Sheet{
		Columns: []Column{
			{Head: "a"},
			{Head: "most", Right: true},
			{Head: "little", Right: true, Minor: 1},
			{Head: "least", Right: true, Minor: 2},
		},
		Rows: [][]string{{"1", "1000000000", "2000000000", "3000000000"}},
	}
	show := func(s string) string { return s }
	_, left := s.tablesWithin(60, show)
	require.Empty(t, left)
	_, left = s.tablesWithin(36, show)
	require.Equal(t, []string{"least"}, left)
	tables, left := s.tablesWithin(20, show)
	require.Equal(t, []string{"least", "little"}, left)
	require.Len(t, tables, 1)
	require.Contains(t, tables[0], "1000000000")

	var b bytes.Buffer
	require.NoError(t, writeSheets(&b, Table, sheets{s}, Layout{Width: 36}))
	require.Contains(t, b.String(), "columns left out: least (--wide).")
}

// Text wraps before columns go, and what cannot be left out goes on below.
func TestWideTablesWrapAndGoOnBelow(t *testing.T) {
	show := func(s string) string { return s }
	s := Sheet{
		Columns: []Column{{Head: "name"}, {Head: "n", Right: true, Minor: 1}},
		Rows:    [][]string{{strings.Repeat("word ", 12), "7"}},
	}
	tables, left := s.tablesWithin(40, show)
	require.Empty(t, left)
	require.Greater(t, strings.Count(tables[0], "\n"), 3)
	require.LessOrEqual(t, widthOf(tables[0]), 40)

	s = Sheet{Columns: []Column{{Head: "key"}}, Rows: [][]string{{"row"}}}
	for range 10 {
		s.Columns = append(s.Columns, Column{Head: "batch 1024", Right: true})
		s.Rows[0] = append(s.Rows[0], "123456.78")
	}
	tables, left = s.tablesWithin(60, show)
	require.Empty(t, left)
	require.Len(t, tables, 3)
	for _, table := range tables {
		require.Contains(t, table, "key")
		require.Contains(t, table, "row")
		require.LessOrEqual(t, widthOf(table), 60)
	}
}

// sheets are a document of nothing but tables.
type sheets []Sheet

func (s sheets) Sheets() []Sheet { return s }
func (sheets) Data() Data        { return Data{} }

// Parts of a table say of which row each cell is, also where rows begin alike.
func TestPartsOfATableTellRowsApart(t *testing.T) {
	s := Sheet{
		Columns: []Column{{Head: "gpu"}, {Head: "stage"}, {Head: "precision"}, {Head: "batch", Right: true}},
		Rows: [][]string{
			{"rtx-3060", "frozen", "fp16 autocast", "512"}, {"rtx-3060", "full", "fp32", "128"},
		},
	}
	tables, _ := s.tablesWithin(24, printable.Text)
	require.Greater(t, len(tables), 1)
	for _, table := range tables {
		require.Contains(t, table, " 1 rtx-3060 ")
		require.Contains(t, table, " 2 rtx-3060 ")
	}
	s.Rows[1][0] = "t4"
	tables, _ = s.tablesWithin(24, printable.Text)
	require.NotContains(t, strings.Join(tables, ""), "1 rtx-3060", "names tell them apart")
}
