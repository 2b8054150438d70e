package report

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/printable"
)

// Sheet is a table for people with lines above and below it.
type Sheet struct {
	// Title says what the table shows; empty for none.
	Title   string
	Columns []Column
	Rows    [][]string
	// Totals is how many of the last rows sum up those above them.
	Totals int
	// Bars stand below the table, in tables only.
	Bars Bars
	// Notes stand below all, one a line.
	Notes []string
}

// Column is the head of a column.
type Column struct {
	Head string
	// Group stands above the heads of neighboring columns that share it.
	Group string
	// Right aligns numbers by their last digit.
	Right bool
}

// Markdown is the sheet as Markdown.
func (s Sheet) Markdown() string {
	var b strings.Builder
	s.render(&b, Markdown, false)
	return b.String()
}

// render writes the sheet as text, perhaps in color, or as Markdown.
func (s Sheet) render(b *strings.Builder, f Format, color bool) {
	show := printable.Text
	if f == Markdown {
		show = printable.Markdown
	}
	if s.Title != "" {
		if f == Markdown {
			b.WriteString("**" + show(s.Title) + "**\n\n")
		} else {
			b.WriteString(show(s.Title) + "\n")
		}
	}
	if len(s.Rows) > 0 {
		t := s.table(f, show)
		if f == Markdown {
			b.WriteString(t.RenderMarkdown() + "\n")
		} else {
			for line := range strings.Lines(t.Render()) {
				b.WriteString(strings.TrimRight(line, " \n") + "\n")
			}
		}
	}
	if f == Table {
		s.Bars.render(b, color)
	}
	for i, note := range s.Notes {
		if f == Markdown && (i > 0 || len(s.Rows) > 0) {
			b.WriteByte('\n') // a paragraph each
		}
		b.WriteString(show(note) + "\n")
	}
}

// table is the sheet's table, each cell as show makes it safe to show.
func (s Sheet) table(f Format, show func(string) string) table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options.DrawBorder = false
	style.Options.SeparateColumns = false
	t.SetStyle(style)
	groups, head := make(table.Row, len(s.Columns)), make(table.Row, len(s.Columns))
	configs := make([]table.ColumnConfig, len(s.Columns))
	grouped := false
	for i, c := range s.Columns {
		groups[i], head[i] = show(c.Group), show(c.Head)
		if c.Group != "" {
			grouped = true
			if f == Markdown { // which has one line of heads
				head[i] = c.Group + " " + c.Head
			}
		}
		align := text.AlignLeft
		if c.Right {
			align = text.AlignRight
		}
		configs[i] = table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align}
	}
	if grouped && f != Markdown {
		t.AppendHeader(groups, table.RowConfig{AutoMerge: true, AutoMergeAlign: text.AlignCenter})
	}
	t.AppendHeader(head)
	t.SetColumnConfigs(configs)
	for i, cells := range s.Rows {
		if s.Totals > 0 && i == len(s.Rows)-s.Totals {
			t.AppendSeparator()
		}
		row := make(table.Row, len(cells))
		for j, c := range cells {
			row[j] = show(c)
		}
		t.AppendRow(row)
	}
	return t
}

// column shows amounts of bytes in one scale. The unit belongs in the head.
type column struct{ scale bytesize.Scale }

func columnOf(values ...int64) column { return column{bytesize.ScaleOf(values...)} }

func (c column) head(name string) string { return name + " " + c.scale.Unit() }

// interval shows a value and, where it has a width to be seen, its range.
func (c column) interval(i Interval) string {
	value, low, high := c.scale.Format(i.Bytes), c.scale.Format(i.Low), c.scale.Format(i.High)
	if low == value && high == value {
		return value
	}
	return fmt.Sprintf("%s [%s, %s]", value, low, high)
}
