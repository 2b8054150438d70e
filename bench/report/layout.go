package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/vprof/vprof/internal/lists"
)

// leastText is the smallest width of a wrapped column of text, in characters.
const leastText = 20

// tablesWithin returns tables that show the sheet within a width. Text columns are wrapped first, then the least
// important columns are omitted; left has their heads. A sheet still too wide continues below, with its first column.
func (s Sheet) tablesWithin(width int, show func(string) string) (tables []string, left []string) {
	if width <= 0 {
		return []string{s.tableText(show, nil)}, nil
	}
	for {
		drawn, ok := s.withWrappedText(width, show)
		if ok {
			return []string{drawn}, left
		}
		at := s.leastImportantColumn()
		if at < 0 {
			break
		}
		if head := strings.TrimSpace(s.Columns[at].Group + " " + s.Columns[at].Head); head != "" {
			left = append(left, head)
		}
		s = s.withoutColumn(at)
	}
	for _, part := range s.split(width, show) {
		drawn, _ := part.withWrappedText(width, show)
		tables = append(tables, drawn)
	}
	return tables, left
}

// withWrappedText draws the sheet with its text columns wrapped to fit the width; ok is false if that is not enough.
func (s Sheet) withWrappedText(width int, show func(string) string) (drawn string, ok bool) {
	most := make([]int, len(s.Columns))
	for {
		drawn = s.tableText(show, most)
		excess := widthOf(drawn) - width
		if excess <= 0 {
			return drawn, true
		}
		at, widest := -1, leastText
		for i, c := range s.Columns {
			w := s.widthOf(i)
			if most[i] > 0 {
				w = most[i]
			}
			if !c.Right && w > widest {
				at, widest = i, w
			}
		}
		if at < 0 {
			return drawn, false
		}
		most[at] = max(leastText, widest-excess)
	}
}

// widthOf returns the width of a column's widest cell.
func (s Sheet) widthOf(at int) int {
	width := text.StringWidthWithoutEscSequences(s.Columns[at].Head)
	for _, r := range s.Rows {
		if at < len(r) {
			width = max(width, text.StringWidthWithoutEscSequences(r[at]))
		}
	}
	return width
}

// widthOf returns the width of a text's widest line.
func widthOf(drawn string) int {
	width := 0
	for line := range strings.Lines(drawn) {
		width = max(width, text.StringWidthWithoutEscSequences(strings.TrimRight(line, " \n")))
	}
	return width
}

// leastImportantColumn returns the least important column, of equals the last; -1 if all are needed.
func (s Sheet) leastImportantColumn() int {
	at := -1
	for i, c := range s.Columns {
		if c.Minor > 0 && (at < 0 || c.Minor >= s.Columns[at].Minor) {
			at = i
		}
	}
	return at
}

// withoutEmptyColumns returns the sheet without empty sparse columns.
func (s Sheet) withoutEmptyColumns() Sheet {
	for at := len(s.Columns) - 1; at >= 0; at-- {
		says := func(row []string) bool { return row[at] != "" && row[at] != "-" }
		if s.Columns[at].Sparse && !slices.ContainsFunc(s.Rows, says) {
			s = s.withoutColumn(at)
		}
	}
	return s
}

func (s Sheet) withoutColumn(at int) Sheet {
	s.Columns = slices.Delete(slices.Clone(s.Columns), at, at+1)
	rows := make([][]string, len(s.Rows))
	for i, r := range s.Rows {
		rows[i] = r
		if at < len(r) {
			rows[i] = slices.Delete(slices.Clone(r), at, at+1)
		}
	}
	s.Rows = rows
	return s
}

// split divides the sheet into sheets that are not too wide, each with the first column. Rows are numbered there if
// that column does not distinguish them.
func (s Sheet) split(width int, show func(string) string) []Sheet {
	s = s.withRowNumbers()
	var parts []Sheet
	for from := 1; from < len(s.Columns); {
		to := from + 1
		for to < len(s.Columns) {
			if _, ok := s.withColumns(from, to+1).withWrappedText(width, show); !ok {
				break
			}
			to++
		}
		parts = append(parts, s.withColumns(from, to))
		from = to
	}
	return parts
}

// withRowNumbers returns the sheet with row numbers in the first column, unless that column distinguishes the rows.
func (s Sheet) withRowNumbers() Sheet {
	if len(lists.Groups(s.Rows, func(r []string) string { return r[0] })) == len(s.Rows) {
		return s
	}
	rows := make([][]string, len(s.Rows))
	for i, r := range s.Rows {
		rows[i] = slices.Clone(r)
		rows[i][0] = strings.TrimSpace(fmt.Sprintf("%d %s", i+1, r[0]))
	}
	s.Rows = rows
	return s
}

// withColumns returns the sheet with its first column and the columns of a range.
func (s Sheet) withColumns(from, to int) Sheet {
	out := s
	out.Columns = append([]Column{s.Columns[0]}, s.Columns[from:to]...)
	out.Rows = make([][]string, len(s.Rows))
	for i, r := range s.Rows {
		out.Rows[i] = append([]string{r[0]}, r[min(from, len(r)):min(to, len(r))]...)
	}
	return out
}
