// Package screen shows a monitor on a terminal: one line for each GPU, and for the selected GPU its memory history and
// its processes. It only displays a [monitor.History]; sampling is independent.
package screen

import (
	"cmp"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/vprof/vprof/bench/observe/monitor"
)

// Model is the screen as a Bubble Tea model.
type Model struct {
	o             Options
	width, height int

	// round and notices are the displayed samples and messages, with their time. They do not change while paused.
	round   monitor.Round
	notices []monitor.Notice
	at      time.Time
	paused  bool
	// keys reports whether the list of keys is shown instead of the graph.
	keys bool

	// gpu is the index of the selected GPU among the samples. process is the PID of the selected process; zero for
	// none. alone reports whether the graph only shows that process.
	gpu, process int
	alone        bool
	// step is the index in monitor.HistorySteps of the time step of a column.
	step int
}

// Options are the settings of a screen.
type Options struct {
	History *monitor.History
	// Interval is the time between two samples.
	Interval time.Duration
	// Limit returns the position of the limit line for a GPU of that memory; Alarm reports whether the user set it.
	Limit func(total int64) int64
	Alarm bool
	Now   func() time.Time
}

// New makes a screen.
func New(o Options) Model {
	m := Model{o: o, width: 80, height: 24, step: finestStep(o.Interval)}
	m.refresh()
	return m
}

// finestStep returns the shortest step of the graph in which each step has a sample.
func finestStep(interval time.Duration) int {
	for i, step := range monitor.HistorySteps {
		if step >= interval {
			return i
		}
	}
	return len(monitor.HistorySteps) - 1
}

// Tick is the message that redraws the screen.
type Tick time.Time

// nextTick waits for the next redraw. Redrawing takes longer than many samples, so there are at most two a second.
func (m Model) nextTick() tea.Cmd {
	return tea.Tick(max(500*time.Millisecond, min(m.o.Interval, time.Second)), func(t time.Time) tea.Msg {
		return Tick(t)
	})
}

// Init returns the first command, the next refresh, for [tea.Model].
func (m Model) Init() tea.Cmd { return m.nextTick() }

// Update handles a key press, a new size or a refresh, for [tea.Model].
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case Tick:
		if !m.paused {
			m.refresh()
		}
		return m, m.nextTick()
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m.handleKey(msg.String())
	}
	return m, nil
}

func (m Model) handleKey(key string) (tea.Model, tea.Cmd) {
	listed := m.keys
	m.keys = key == "?" && !listed
	switch {
	case key == "q", key == "ctrl+c":
		return m, tea.Quit
	case listed:
		return m, nil
	}
	switch key {
	case "p", "space":
		m.paused = !m.paused
		if !m.paused {
			m.refresh()
		}
	case "left", "h":
		m.chooseGPU(m.gpu - 1)
	case "right", "l", "tab":
		m.chooseGPU(m.gpu + 1)
	case "up", "k":
		m.moveSelection(-1)
	case "down", "j":
		m.moveSelection(1)
	case "enter":
		m.alone = m.process != 0
	case "esc":
		m.alone, m.process = false, 0
	case "+", "=":
		m.step = max(finestStep(m.o.Interval), m.step-1)
	case "-":
		m.step = min(len(monitor.HistorySteps)-1, m.step+1)
	}
	return m, nil
}

// refresh displays the newest samples.
func (m *Model) refresh() {
	m.at = m.o.Now()
	m.round, m.notices = m.o.History.Latest()
	m.chooseGPU(m.gpu)
}

// chooseGPU selects another GPU, wrapping around at the ends. A selected process that has ended is deselected.
func (m *Model) chooseGPU(gpu int) {
	n := len(m.round.Samples)
	if n == 0 {
		return
	}
	m.gpu = (gpu + n) % n
	if m.selectedProcess() < 0 {
		m.process, m.alone = 0, false
	}
}

// processes returns the selected GPU's processes, the one with the most memory first.
func (m Model) processes() []monitor.Process {
	if m.gpu >= len(m.round.Samples) {
		return nil
	}
	all := slices.Clone(m.round.Samples[m.gpu].Processes)
	slices.SortStableFunc(all, func(a, b monitor.Process) int { return cmp.Compare(b.Used, a.Used) })
	return all
}

// selectedProcess returns the index of the selected process; -1 if none is selected.
func (m Model) selectedProcess() int {
	return slices.IndexFunc(m.processes(), func(p monitor.Process) bool { return p.PID == m.process })
}

// moveSelection moves the selection among the processes. Without a selection, down selects the first and up the last.
func (m *Model) moveSelection(by int) {
	all := m.processes()
	if len(all) == 0 {
		return
	}
	at := m.selectedProcess()
	switch {
	case at < 0 && by < 0:
		at = len(all) - 1
	default:
		at = min(max(at+by, 0), len(all)-1)
	}
	m.process = all[at].PID
}
