//go:build unix

package cli

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

// On a terminal, monitor shows its screen, in colors, until a key; --plain, and a dumb terminal, have lines.
func TestMonitorHasAScreenOnATerminal(t *testing.T) {
	const alternate = "\x1b[?1049h"
	for name, c := range map[string]struct {
		term string
		args []string
		keys string
		has  []string
		not  string
	}{
		"screen": {
			"xterm-256color", nil, "q",
			[]string{alternate, "vprof monitor", "gpu 0:", "q quit", "\x1b[?1049l", "\x1b[31m"},
			"gpu 0  ",
		},
		"ends":     {"xterm-256color", []string{"--for", "100ms"}, "", []string{alternate, "\x1b[?1049l"}, ""},
		"no color": {"xterm-256color", []string{"--color", "never"}, "q", []string{alternate}, "\x1b[31m"},
		"plain": {
			"xterm-256color",
			[]string{"--plain", "--for", "50ms"},
			"",
			[]string{"gpu 0  952.00 MiB of 1000.00 MiB"},
			alternate,
		},
		"dumb": {"dumb", []string{"--for", "50ms"}, "", []string{"gpu 0  952.00 MiB of 1000.00 MiB"}, alternate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TERM", c.term)
			t.Setenv("NO_COLOR", "")
			keyboard, terminal, err := pty.Open()
			require.NoError(t, err)
			defer keyboard.Close()
			require.NoError(t, pty.Setsize(terminal, &pty.Winsize{Rows: 24, Cols: 80}))
			var shown sharedBuffer
			read := make(chan struct{})
			go func() { // until the terminal is closed
				_, _ = io.Copy(&shown, keyboard)
				close(read)
			}()
			a, _, stderr := desk()
			a.stdin, a.stdout, a.gpus = terminal, terminal, watching(fullGPU{})
			if c.keys != "" {
				go press(t, keyboard, &shown, c.keys)
			}
			require.Equal(t, exitFine, run(t.Context(), a,
				append([]string{"monitor", "--interval", "5ms", "--fail-above", "99%"}, c.args...)), stderr)
			require.NoError(t, terminal.Close())
			<-read
			for _, text := range c.has {
				require.Contains(t, shown.String(), text)
			}
			if c.not != "" {
				require.NotContains(t, shown.String(), c.not)
			}
		})
	}
}

// press presses keys once the last line of the screen is there.
func press(t *testing.T, keyboard *os.File, shown *sharedBuffer, keys string) {
	for range 60_000 { // five minutes, on a machine that is busy
		if strings.Contains(shown.String(), "q quit") {
			if _, err := keyboard.WriteString(keys); err != nil {
				t.Error(err)
			}
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("the screen never came")
}
