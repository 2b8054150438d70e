package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/phrase"
)

// labelWidth is the width of the axis labels, in characters.
const labelWidth = 12

// columnRunes are column tops lower than one character, in eighths.
var columnRunes = [...]string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}

// graph draws the memory history of a GPU or a process in a number of rows, with lines at the limit and the peak, and
// the load below.
func (m Model) graph(s monitor.Sample, rows int) []string {
	columns := max(10, m.width-labelWidth-1)
	process := 0
	if m.alone {
		process = m.process
	}
	trace := m.o.History.Trace(m.gpu, process, m.step, columns, m.at)
	limit := m.o.Limit(s.Total)
	top := max(s.Total, limit, 1)
	if process != 0 { // one may be small beside the GPU
		top = max(slices.Max(trace.Used), 1)
	}
	out := []string{m.caption(s, process, time.Duration(columns)*monitor.HistorySteps[m.step])}
	for row := range rows {
		label, rule := m.rowRule(s, process, row, rows, top, limit)
		out = append(out, fmt.Sprintf("%*s ", labelWidth-1, label)+m.row(trace.Used, row, rows, top, limit, rule))
	}
	return append(out, faint.Render(fmt.Sprintf("%*s ", labelWidth-1, "load"))+sparkline(trace.Load))
}

// caption describes the graph, and the largest gap between samples.
func (m Model) caption(s monitor.Sample, process int, width time.Duration) string {
	what, peak := fmt.Sprintf("gpu %d", s.GPU), s.Peak
	if process != 0 {
		for _, p := range s.Processes {
			if p.PID == process {
				what, peak = fmt.Sprintf("%s on gpu %d", p.Title(), s.GPU), p.Peak
			}
		}
	}
	parts := phrase.List{boldStyle.Render(what+":") + " " + boldStyle.Render("peak "+bytesize.Format(max(0, peak)))}
	apart := monitor.FormatInterval(time.Duration(s.Gap * float64(time.Second)))
	parts.If(s.Gap > 0, "samples ≤ %s apart", apart)
	parts.If(process == 0 && s.Error == "", "%s now", bytesize.Format(s.Used))
	parts.Add("%s", faint.Render("the last "+formatSpan(width)))
	driver := faint.Render("the driver keeps " + bytesize.Format(s.Driver) + " more")
	parts.If(process == 0 && s.Driver > 0, "%s", driver)
	return strings.Join(parts, ", ")
}

// rowRule returns the label of a row, and the line drawn where the row has no column: at the limit or the peak.
func (m Model) rowRule(s monitor.Sample, process, row, rows int, top, limit int64) (label, rule string) {
	at := func(v int64) bool { return rowOf(v, rows, top) == row }
	switch {
	case limit <= top && at(limit):
		name := "limit"
		if !m.o.Alarm {
			name = bytesize.Format(limit)
		}
		return name, badTone.Render("┄")
	case process == 0 && s.Peak > 0 && at(s.Peak):
		return "peak", faint.Render("·")
	case row == rows-1:
		return "0", " "
	case row == rows/2 && rows > 6:
		return bytesize.Format(top * int64(rows-row) / int64(rows)), " "
	}
	return "", " "
}

// rowOf returns the row, counted from the top, in which the column of a value ends.
func rowOf(v int64, rows int, top int64) int {
	return rows - 1 - min(max(0, heightOf(v, rows, top)-1)/8, rows-1)
}

// row draws one row of the columns, with the rule where it has none.
func (m Model) row(used []int64, row, rows int, top, limit int64, rule string) string {
	var out, run strings.Builder // run is of columns of one tone
	var last tone
	flush := func() {
		if run.Len() > 0 {
			out.WriteString(last.Render(run.String()))
			run.Reset()
		}
	}
	for _, v := range used {
		level := min(max(heightOf(v, rows, top)-8*(rows-1-row), 0), 8)
		switch {
		case level > 0:
			if t := toneOf(v, limit); t != last {
				flush()
				last = t
			}
			run.WriteString(columnRunes[level])
			continue
		case v == monitor.NoValue && row == rows-1:
			flush()
			out.WriteString(faint.Render("·"))
		default:
			flush()
			out.WriteString(rule)
		}
	}
	flush()
	return out.String()
}

// heightOf returns the height of a value in eighths of rows. Values above zero have at least one eighth.
func heightOf(v int64, rows int, top int64) int {
	if v <= 0 {
		return 0
	}
	return max(1, int(float64(v)/float64(top)*float64(rows)*8+0.5))
}

// sparkline draws percentages in one row.
func sparkline(percent []int64) string {
	var out strings.Builder
	for _, v := range percent {
		if v == monitor.NoValue {
			v = 0
		}
		out.WriteString(columnRunes[min(max(int(v*8+99)/100, 0), 8)])
	}
	return calmStyle.Render(out.String())
}
