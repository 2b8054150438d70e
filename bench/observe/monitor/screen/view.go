package screen

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/internal/printable"
)

// The colors are from the terminal's own sixteen, so that they suit its background.
var (
	boldStyle   = lipgloss.NewStyle().Bold(true)
	faint       = lipgloss.NewStyle().Faint(true)
	chosenStyle = lipgloss.NewStyle().Reverse(true)
	calmStyle   = lipgloss.NewStyle().Foreground(lipgloss.Cyan)
)

// A tone is the color of an amount of memory.
type tone int

const (
	goodTone tone = iota
	tightTone
	badTone
)

var tones = [...]lipgloss.Style{
	goodTone:  lipgloss.NewStyle().Foreground(lipgloss.Green),
	tightTone: lipgloss.NewStyle().Foreground(lipgloss.Yellow),
	badTone:   lipgloss.NewStyle().Foreground(lipgloss.Red),
}

func toneOf(bytes, limit int64) tone {
	switch {
	case bytes > limit:
		return badTone
	case float64(bytes) > 0.9*float64(limit):
		return tightTone
	}
	return goodTone
}

// Render colors a text.
func (t tone) Render(text string) string { return tones[t].Render(text) }

// help is the last line of the screen.
const help = "q quit  ? keys  p pause  ←→ GPU  ↑↓ process  enter history  esc back  +- time"

// keys is the list of all keys.
const keys = `
 q, ctrl+c         quit
 p, space          pause the picture, and resume; sampling goes on
 ← →, h l, tab     the GPU before or after this one
 ↑ ↓, k j          the process above or below
 enter             the history of this process alone
 esc               the history of the GPU again
 + -               a column of the graph is a shorter or longer time
 ?                 this list; any key closes it`

// View returns the text of the screen, for [tea.Model].
func (m Model) View() tea.View {
	lines := append([]string{m.title()}, lists.Make(len(m.round.Samples), m.gpuLine)...)
	notices := m.notices[max(0, len(m.notices)-3):]
	switch {
	case m.keys:
		lines = append(lines, strings.Split(keys, "\n")...)
	case m.gpu < len(m.round.Samples):
		s := m.round.Samples[m.gpu]
		table := m.table(s)
		// The graph gets the remaining rows, except a blank line, its caption, the load and the help.
		rows := m.height - len(lines) - len(table) - len(notices) - 4
		lines = append(lines, "")
		lines = append(lines, m.graph(s, max(3, rows))...)
		lines = append(lines, table...)
	}
	for _, n := range notices {
		lines = append(lines, tightTone.Render(n.Time.Local().Format("15:04:05 ")+n.Text))
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, min(len(lines), m.height-1))], faint.Render(help))
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "…")
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen, v.WindowTitle = true, "vprof monitor"
	return v
}

func (m Model) title() string {
	state := fmt.Sprintf("a sample every %v", m.o.Interval)
	if m.paused {
		state = boldStyle.Render("PAUSED") + ", sampling goes on"
	}
	return boldStyle.Render("vprof monitor") + "  " + m.at.Local().Format("2006-01-02 15:04:05") + "  " + state
}

func (m Model) gpuLine(i int) string {
	s := m.round.Samples[i]
	name := fmt.Sprintf("%d %s", s.GPU, strings.TrimPrefix(s.Name, "NVIDIA "))
	name = fmt.Sprintf(" %-*s ", m.nameWidth(), name)
	if i == m.gpu && len(m.round.Samples) > 1 {
		name = chosenStyle.Render(name)
	}
	if s.Error != "" {
		return name + badTone.Render("lost: "+s.Error)
	}
	parts := phrase.List{
		name + toneOf(s.Used, m.o.Limit(s.Total)).Render(gaugeBar(s.Share(), max(6, min(20, m.width-80)))) + "│",
		fmt.Sprintf("%3.0f %%", 100*s.Share()),
	}
	parts.AddTexts(phrase.IfKnown("load %3d %%", s.GPUPercent), phrase.IfKnown("%3d °C", s.Celsius), s.Power())
	for _, why := range s.Slowdowns {
		parts = append(parts, faint.Render(string(why)))
	}
	return strings.Join(parts, "  ")
}

func (m Model) nameWidth() int {
	w := 0
	for _, s := range m.round.Samples {
		w = max(w, len(fmt.Sprintf("%d %s", s.GPU, strings.TrimPrefix(s.Name, "NVIDIA "))))
	}
	return w
}

var blockRunes = [...]string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// gaugeBar returns a bar, drawn in eighths of cells.
func gaugeBar(share float64, cells int) string {
	n := min(int(share*float64(cells)*8+0.5), cells*8)
	return strings.Repeat("█", n/8) + blockRunes[n%8] + strings.Repeat(" ", cells-(n+7)/8)
}

// table formats the processes of a GPU, scrolled to the selected one.
func (m Model) table(s monitor.Sample) []string {
	all := m.processes()
	if len(all) == 0 {
		return []string{faint.Render(" no processes that NVML tells of")}
	}
	out := []string{faint.Render(fmt.Sprintf(" %8s  %11s  %11s  %5s  %s", "PID", "memory", "peak", "share", "program"))}
	room := max(1, min(len(all), m.height/3))
	first := min(max(0, m.selectedProcess()-room+1), len(all)-room)
	for _, p := range all[first : first+room] {
		used, peak, share := "unknown", "unknown", "-"
		if p.Used >= 0 {
			used, peak, share = bytesize.Format(p.Used), bytesize.Format(p.Peak),
				fmt.Sprintf("%.0f %%", 100*float64(p.Used)/float64(max(1, s.Total)))
		}
		// A program chooses its own name, so unprintable characters are escaped.
		line := fmt.Sprintf(" %8d  %11s  %11s  %5s  %s", p.PID, used, peak, share, printable.Line(p.Name))
		if p.PID == m.process {
			line = chosenStyle.Render(line)
		}
		out = append(out, line)
	}
	if rest := len(all) - room; rest > 0 {
		out = append(out, faint.Render(fmt.Sprintf(" %d more", rest)))
	}
	return out
}

// formatSpan formats a duration: "80 s", "13 min", "10 h".
func formatSpan(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f h", d.Hours())
}
