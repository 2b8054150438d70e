package screen_test

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/bench/observe/monitor/screen"
)

const gib = 1 << 30

// desk is a screen over a history of two GPUs, the first of which fills from nothing to 20 GiB of 24 within 60 seconds.
type desk struct {
	tea.Model
	history *monitor.History
	now     time.Time
}

func sit(width, height int) *desk {
	d := &desk{history: &monitor.History{}, now: time.Unix(1_800_000_000, 0)}
	for range 61 {
		d.sample(d.now.Unix() - 1_800_000_000)
		d.now = d.now.Add(time.Second)
	}
	d.now = d.now.Add(-time.Second)
	d.Model = screen.New(screen.Options{
		History: d.history, Interval: time.Second, Limit: func(total int64) int64 { return total },
		Now: func() time.Time { return d.now },
	})
	d.tell(tea.WindowSizeMsg{Width: width, Height: height})
	return d
}

// sample adds a sample after so many seconds.
func (d *desk) sample(second int64) {
	used, load, celsius, watts, limit := second*gib/3, int(second), 71, 285.0, 450.0
	d.history.Add(monitor.Round{Samples: []monitor.Sample{
		{
			Time: d.now, GPU: 0, Name: "NVIDIA GeForce RTX 4090", Total: 24 * gib, Driver: 400 << 20, Used: used,
			Highest: used, Peak: used, Gap: 1.002,
			GPUPercent: &load, Celsius: &celsius, Watts: &watts, LimitWatts: &limit,
			Processes: []monitor.Process{
				{PID: 7, Name: "Xorg", Used: gib / 8, Peak: gib / 4},
				{PID: 77, Name: "python3", Used: used, Peak: used},
				{PID: 9, Used: -1},
			},
		},
		{
			Time: d.now, GPU: 1, Name: "NVIDIA H100", Total: 80 * gib, Used: 76 * gib, Highest: 76 * gib,
			Peak: 79 * gib, Gap: 1.002,
		},
	}})
}

func (d *desk) tell(messages ...tea.Msg) {
	for _, m := range messages {
		d.Model, _ = d.Update(m)
	}
}

func (d *desk) press(keys ...rune) {
	for _, k := range keys {
		key := tea.KeyPressMsg{Code: k}
		if unicode.IsPrint(k) {
			key.Text = string(k)
		}
		d.tell(key)
	}
}

// wait lets a second pass.
func (d *desk) wait() {
	d.now = d.now.Add(time.Second)
	d.sample(0)
	d.tell(screen.Tick(d.now))
}

func (d *desk) text() string { return ansi.Strip(d.View().Content) }

func (d *desk) lines() []string { return strings.Split(d.text(), "\n") }

func TestScreenShowsGPUsHistoryAndProcesses(t *testing.T) {
	d := sit(100, 24)
	lines := d.lines()
	require.Len(t, lines, 24)
	require.Contains(t, lines[0], "vprof monitor")
	require.Contains(t, lines[0], "a sample every 1s")
	require.Regexp(t, `0 GeForce RTX 4090 █+.*│ + 83 % +load  60 % +71 °C +285 of 450 W`, lines[1])
	require.Regexp(t, `1 H100 +█+.*│ + 95 %`, lines[2])
	require.Contains(t, lines[4],
		"gpu 0: peak 20.00 GiB, samples ≤ 1.002s apart, 20.00 GiB now, the last 87 s, the driver keeps 400")
	require.Regexp(t, `24.00 GiB ┄+`, lines[5], "the limit")
	require.Regexp(t, `peak ·+[▁-█]`, d.text())
	require.Regexp(t, `\n +load +▁+▂+▃+▄+▅+`, d.text())
	// By memory, the largest first.
	require.Regexp(t,
		`(?s)77 +20.00 GiB +20.00 GiB +83 % +python3.*7 +128.00 MiB +256.00 MiB +1 % +Xorg.*9 +unknown +unknown`,
		d.text())
	require.Contains(t, lines[23], "q quit  ? keys  p pause")
}

func TestAListOfKeysIsShownUntilAKeyIsPressed(t *testing.T) {
	d := sit(80, 24)
	before := d.text()
	d.press('?')
	require.NotContains(t, d.text(), "peak 20.00 GiB")
	for _, key := range []string{"q, ctrl+c", "p, space", "← →, h l, tab", "↑ ↓, k j", "enter", "esc", "+ -", "?"} {
		require.Contains(t, d.text(), "\n "+key+" ")
	}
	require.NotContains(t, d.text(), "…", "80 columns suffice")
	for _, key := range []rune{'?', 'p'} {
		d.press(key)
		require.Equal(t, before, d.text(), "the key closes the list and does nothing else")
		d.press('?')
	}
}

// The graph is as high as the memory is full: a third of the time is a third of the height.
func TestGraphGrowsWithTheMemory(t *testing.T) {
	graph := regexp.MustCompile(`[▁-█]+$`)
	before := 0
	for _, line := range sit(100, 30).lines()[5:] {
		if strings.Contains(line, " load") {
			break
		}
		width := len([]rune(graph.FindString(strings.TrimRight(line, " "))))
		require.GreaterOrEqual(t, width, before, "what is full below is fuller above: %q", line)
		before = width
	}
	require.Equal(t, 60, before, "all but the first second hold something")
}

func TestKeysChooseGPUAndProcess(t *testing.T) {
	d := sit(100, 24)
	d.press(tea.KeyRight)
	require.Contains(t, d.text(), "gpu 1: peak 79.00 GiB")
	require.Contains(t, d.text(), "no processes that NVML tells of")
	d.press(tea.KeyDown, tea.KeyEnter) // nothing to choose
	require.Contains(t, d.text(), "gpu 1: peak 79.00 GiB")
	d.press(tea.KeyRight) // around
	require.Contains(t, d.text(), "gpu 0: peak")
	d.press(tea.KeyLeft)
	require.Contains(t, d.text(), "gpu 1: peak")
	d.press(tea.KeyTab, tea.KeyDown, tea.KeyDown, tea.KeyDown, tea.KeyDown, tea.KeyUp, tea.KeyEnter)
	require.Contains(t, d.text(), "process 7 (Xorg) on gpu 0: peak 256.00 MiB")
	require.NotContains(t, d.text(), "24.00 GiB ┄", "its scale is its own")
	d.press(tea.KeyEscape)
	require.Contains(t, d.text(), "gpu 0: peak")
	d.press(tea.KeyUp, tea.KeyEnter)
	require.Contains(t, d.text(), "process 9 on gpu 0")
}

func TestKeysZoom(t *testing.T) {
	d := sit(100, 24)
	require.Contains(t, d.text(), "the last 87 s")
	d.press('+')
	require.Contains(t, d.text(), "the last 87 s", "nothing is known below a second")
	d.press('-')
	require.Contains(t, d.text(), "the last 14 min")
	d.press('-', '-')
	require.Contains(t, d.text(), "the last 87 min")
	d.press('+', '+')
	require.Contains(t, d.text(), "the last 87 s")
}

func TestPauseHoldsThePictureWhileLooksGoOn(t *testing.T) {
	d := sit(80, 24)
	d.press('p')
	require.Contains(t, d.text(), "PAUSED, sampling goes on")
	before := d.text()
	d.wait()
	require.Equal(t, before, d.text())
	d.press('p')
	require.NotContains(t, d.text(), "PAUSED")
	require.Regexp(t, `0 GeForce RTX 4090 +│ + 0 %`, d.text())
}

func TestAChosenProcessThatEndsIsForgotten(t *testing.T) {
	d := sit(80, 24)
	d.press(tea.KeyDown, tea.KeyEnter)
	require.Contains(t, d.text(), "process 77 (python3)")
	d.now = d.now.Add(time.Second)
	d.history.Add(monitor.Round{Samples: []monitor.Sample{{Time: d.now, GPU: 0, Total: 24 * gib}}})
	d.tell(screen.Tick(d.now))
	require.Contains(t, d.text(), "gpu 0: peak 0 B")
}

func TestALostGPUSaysWhy(t *testing.T) {
	d := sit(100, 24)
	d.now = d.now.Add(time.Second)
	d.history.Add(monitor.Round{
		Samples: []monitor.Sample{{
			Time: d.now, Name: "NVIDIA GeForce RTX 4090", Peak: 20 * gib,
			Error: "nvmlInit: Driver Not Loaded",
		}},
		Notices: []string{"gpu 0 is lost: nvmlInit: Driver Not Loaded"},
	})
	d.tell(screen.Tick(d.now))
	require.Contains(t, d.text(), "0 GeForce RTX 4090 lost: nvmlInit: Driver Not Loaded")
	require.Regexp(t, `\d\d:\d\d:\d\d gpu 0 is lost`, d.text())
	require.Contains(t, d.text(), "peak 20.00 GiB")
}

// Whatever the terminal, nothing is wider or higher than it, and nothing fails.
func TestScreenFitsEveryTerminal(t *testing.T) {
	d := sit(80, 24)
	rapid.Check(t, func(t *rapid.T) {
		width, height := rapid.IntRange(1, 300).Draw(t, "width"), rapid.IntRange(1, 100).Draw(t, "height")
		d.tell(tea.WindowSizeMsg{Width: width, Height: height})
		d.press(rapid.SliceOf(rapid.SampledFrom([]rune{
			tea.KeyLeft, tea.KeyRight, tea.KeyUp, tea.KeyDown, tea.KeyEnter, tea.KeyEscape, '+', '-', 'p', 'x', '?',
		})).Draw(t, "keys")...)
		lines := d.lines()
		if len(lines) > height {
			t.Fatalf("%d lines in %d", len(lines), height)
		}
		for _, line := range lines {
			if w := ansi.StringWidth(line); w > width {
				t.Fatalf("%d columns in %d: %q", w, width, line)
			}
		}
	})
}

func TestScreenWithoutALook(t *testing.T) {
	m := screen.New(screen.Options{History: &monitor.History{}, Interval: time.Second, Limit: func(n int64) int64 {
		return n
	}, Now: time.Now})
	require.Contains(t, ansi.Strip(m.View().Content), "vprof monitor")
}

// The whole program: drawn on a terminal of 80 by 24, ended by a key.
func TestProgramDrawsAndQuits(t *testing.T) {
	for _, key := range []string{"q", "\x03"} {
		d := sit(80, 24)
		var out bytes.Buffer
		p := tea.NewProgram(d.Model, tea.WithInput(strings.NewReader(key)), tea.WithOutput(&out),
			tea.WithWindowSize(80, 24), tea.WithoutSignals(), tea.WithEnvironment([]string{"TERM=xterm-256color"}))
		_, err := p.Run()
		require.False(t, err != nil && !errors.Is(err, tea.ErrInterrupted), "%v", err)
		require.Contains(t, out.String(), "\x1b[?1049h", "the alternate screen")
		require.Contains(t, out.String(), "\x1b[?1049l", "and back")
	}
}

func BenchmarkView(b *testing.B) {
	d := sit(120, 40)
	for b.Loop() {
		_ = d.View().Content
	}
}
