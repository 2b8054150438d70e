package report

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/internal/printable"
)

// Sheet is a table for people, with lines above and below it.
type Sheet struct {
	// Title describes what the table shows; empty for none.
	Title string
	// Answer is the text above the table: the main result, a sentence a line.
	Answer  []string
	Columns []Column
	Rows    [][]string
	// Totals is the number of last rows that are sums of the rows above.
	Totals int
	// Bars are shown below the table, in tables only.
	Bars Bars
	// Notes are shown below everything else, one a line.
	Notes phrase.List

	unit byteColumn // of amounts of bytes; each has its own without one
}

// sheetIn returns a sheet whose byte amounts all have one unit, suited to the largest of amounts. heads is in the
// format of [Columns]; "{}" in them is replaced by the unit.
func sheetIn(title, heads string, amounts ...int64) Sheet {
	unit := columnFor(amounts...)
	return Sheet{Title: title, Columns: Columns(strings.ReplaceAll(heads, "{}", unit.scale.Unit())), unit: unit}
}

// largest returns the largest amount of a list's elements, zero if there are none.
func largest[T any](list []T, amount func(T) int64) (most int64) {
	for _, of := range list {
		most = max(most, amount(of))
	}
	return most
}

// Row adds a row of values. An int64 is an amount of bytes and an [Interval] one with its range, in the unit of the
// sheet. A list of texts is a cell each, true is yes, and all else is formatted by [fmt.Sprint]. Missing cells at the
// end are empty.
func (s *Sheet) Row(values ...any) {
	row := make([]string, 0, len(values))
	for _, value := range values {
		switch v := value.(type) {
		case []string:
			row = append(row, v...)
		case int64:
			row = append(row, s.unit.amount(v))
		case Interval:
			row = append(row, s.unit.interval(v))
		case bool:
			row = append(row, yesOrEmpty(v))
		default:
			row = append(row, fmt.Sprint(v))
		}
	}
	s.Rows = append(s.Rows, append(row, make([]string, max(0, len(s.Columns)-len(row)))...))
}

// set sets a cell of the last row, in the column with a head.
func (s *Sheet) set(head, cell string) {
	at := slices.IndexFunc(s.Columns, func(c Column) bool { return c.Head == head })
	s.Rows[len(s.Rows)-1][at] = cell
}

// removeCommonParts removes from a column the parts, between separators, that all rows have, and returns them.
func (s *Sheet) removeCommonParts(head, separator string) string {
	at := slices.IndexFunc(s.Columns, func(c Column) bool { return c.Head == head })
	shared := strings.Split(s.Rows[0][at], separator)
	for _, row := range s.Rows {
		parts := lists.ToSet(strings.Split(row[at], separator))
		shared = lists.Filter(shared, func(part string) bool { return parts[part] })
	}
	for _, row := range s.Rows {
		row[at] = strings.Join(slices.DeleteFunc(strings.Split(row[at], separator), func(part string) bool {
			return slices.Contains(shared, part)
		}), separator)
	}
	return strings.Join(shared, separator)
}

// transposed returns the transposed sheet: a column for each row and a row for each column.
func (s Sheet) transposed() Sheet {
	columns, rows := s.Columns[:1:1], make([][]string, len(s.Columns)-1)
	for i, c := range s.Columns[1:] {
		rows[i] = []string{c.Head}
	}
	for _, r := range s.Rows {
		columns = append(columns, Column{Head: r[0], Right: true})
		for i, cell := range r[1:] {
			rows[i] = append(rows[i], cell)
		}
	}
	s.Columns, s.Rows = columns, rows
	return s
}

// Column is the head of a column, with its layout.
type Column struct {
	Head string
	// Group is shown above the heads of neighboring columns that share it.
	Group string
	// Right aligns numbers by their last digit.
	Right bool
	// Sparse omits the column if all of its cells are empty or "-".
	Sparse bool
	// Minor ranks the column by how dispensable it is: if the table is too wide, the column with the highest number is
	// omitted first, zero never.
	Minor int
}

// columnText matches a column in the format of [Columns].
var columnText = regexp.MustCompile(`^(?:(.+): )?(.*?)(>)?(\?)?(?:-(\d))?$`)

// Columns parses heads, separated by " | ". "group: head" has a group. Marks follow a head: ">" aligns right, "?" is
// sparse, and "-2" ranks the column: where a table is too wide, the column with the highest number is omitted first.
func Columns(heads string) []Column {
	var all []Column
	for text := range strings.SplitSeq(heads, " | ") {
		m := columnText.FindStringSubmatch(text)
		minor, _ := strconv.Atoi(m[5])
		all = append(all, Column{Group: m[1], Head: m[2], Right: m[3] != "", Sparse: m[4] != "", Minor: minor})
	}
	return all
}

// Layout is the layout of tables.
type Layout struct {
	// Color enables the colors of terminals.
	Color bool
	// Width is the width of lines in characters; zero is unlimited.
	Width int
	// Defaults name the settings that were left to the model and decide the values; they end the first title.
	Defaults string
}

// Markdown returns the sheet as Markdown.
func (s Sheet) Markdown() string {
	var b strings.Builder
	s.render(&b, Markdown, Layout{})
	return b.String()
}

// render writes the sheet as text or as Markdown, which ignores the layout.
func (s Sheet) render(b *strings.Builder, f Format, l Layout) {
	show := printable.Text
	if f == Markdown {
		show = printable.Markdown
	}
	if s.Title != "" {
		if f == Markdown {
			b.WriteString("**" + show(s.Title) + "**\n\n")
		} else {
			b.WriteString(l.lines(show(s.Title)) + "\n")
		}
	}
	for _, sentence := range s.Answer {
		b.WriteString(l.lines(show(sentence)) + "\n")
		if f == Markdown {
			b.WriteByte('\n')
		}
	}
	notes := s.Notes
	switch {
	case len(s.Rows) > 0 && f == Markdown:
		b.WriteString(s.table(f, show, nil).RenderMarkdown() + "\n")
	case len(s.Rows) > 0:
		tables, left := s.tablesWithin(l.Width, show)
		b.WriteString(strings.Join(tables, "\n"))
		if len(left) > 0 {
			notes = append([]string{"columns left out: " + strings.Join(left, ", ") + " (--wide)."}, notes...)
		}
	}
	if f == Table {
		s.Bars.render(b, l)
	}
	for i, note := range notes {
		if f == Markdown && (i > 0 || len(s.Rows) > 0) {
			b.WriteByte('\n') // a paragraph each
		}
		b.WriteString(l.lines(show(note)) + "\n")
	}
}

// lines breaks a text into lines between words.
func (l Layout) lines(s string) string {
	if l.Width <= 0 || text.StringWidthWithoutEscSequences(s) <= l.Width {
		return s
	}
	var b strings.Builder
	for line := range strings.Lines(text.WrapSoft(s, l.Width)) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// tableText formats the table as text; most are the maximal widths of its columns, zero or nil for any.
func (s Sheet) tableText(show func(string) string, most []int) string {
	var b strings.Builder
	for line := range strings.Lines(s.table(Table, show, most).Render()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// table returns the sheet's table, with cells formatted by show; most are its columns' maximal widths, zero for any.
func (s Sheet) table(f Format, show func(string) string, most []int) table.Writer {
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
		if i < len(most) && most[i] > 0 {
			configs[i].WidthMax, configs[i].WidthMaxEnforcer = most[i], text.WrapSoft
		}
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

// byteColumn formats amounts of bytes in one scale, whose unit is in the head; the zero value gives each its own unit.
type byteColumn struct{ scale bytesize.Scale }

func columnFor(amounts ...int64) byteColumn { return byteColumn{bytesize.ScaleOf(amounts...)} }

func (c byteColumn) head(name string) string { return name + " " + c.scale.Unit() }

// amount formats a number of bytes, which may be negative.
func (c byteColumn) amount(bytes int64) string {
	switch {
	case c == byteColumn{}:
		return bytesize.Format(bytes)
	case bytes < 0:
		return "-" + c.scale.Format(-bytes)
	}
	return c.scale.Format(bytes)
}

// interval formats a value with its range, or only the value if all three look the same.
func (c byteColumn) interval(i Interval) string {
	value, low, high := c.amount(i.Bytes), c.amount(i.Low), c.amount(i.High)
	if low == value && high == value {
		return value
	}
	return fmt.Sprintf("%s [%s, %s]", value, low, high)
}
