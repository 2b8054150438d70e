//go:build linux

package supervisor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func start(t *testing.T, script string) *Process {
	p, err := Start(exec.Command("sh", "-c", script), false)
	require.NoError(t, err)
	return p
}

// exit waits for a process and returns its code.
func exit(t *testing.T, p *Process) int {
	select {
	case <-p.Done():
	case <-time.After(5 * time.Minute):
		t.Fatal("it does not end")
	}
	var failed *exec.ExitError
	if errors.As(p.Err(), &failed) {
		return ExitCode(failed)
	}
	require.NoError(t, p.Err())
	return 0
}

// appears waits for a file and reads it.
func appears(t *testing.T, path string) string {
	for range 60_000 { // five minutes, on a machine that is busy
		if data, err := os.ReadFile(path); err == nil && strings.HasSuffix(string(data), "\n") {
			return strings.TrimSpace(string(data))
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s does not appear", path)
	return ""
}

func TestExitCodesAreThoseOfShells(t *testing.T) {
	require.Equal(t, 0, exit(t, start(t, "true")))
	require.Equal(t, 7, exit(t, start(t, "exit 7")))
	require.Equal(t, 128+9, exit(t, start(t, "kill -KILL $$")))
	require.Equal(t, 128+15, exit(t, start(t, "kill -TERM $$")))
}

// The signal reaches the whole group at once; the command decides what comes of it.
func TestSignalsAreHandedOn(t *testing.T) {
	dir := t.TempDir()
	ready, got := filepath.Join(dir, "ready"), filepath.Join(dir, "got")
	p := start(t, `trap "echo saved > `+got+`; exit 3" USR1; echo up > `+ready+`; while :; do sleep 0.05; done`)
	appears(t, ready)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	require.Equal(t, 3, exit(t, p))
	require.Equal(t, "saved", appears(t, got))
	require.True(t, p.Forwarded())
}

// A grandchild outlives its parent, in a session of its own and deaf to SIGTERM even; not the supervisor.
func TestNothingIsLeftBehind(t *testing.T) {
	for _, how := range []string{"sleep 100", "setsid sleep 100", "setsid setsid sleep 100"} {
		left := filepath.Join(t.TempDir(), "left")
		p := start(t, how+` & echo $! > `+left)
		require.Equal(t, 0, exit(t, p))
		pid, err := strconv.Atoi(appears(t, left))
		require.NoError(t, err)
		now, ok := readProcess(pid)
		require.True(t, !ok || now.zombie, "%s: %+v", how, now)
	}
}

func TestEndKillsWhatDoesNotEnd(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	p := start(t, `trap "" INT TERM; echo up > `+ready+`; while :; do sleep 0.05; done`)
	appears(t, ready)
	p.End(50 * time.Millisecond)
	require.Equal(t, 128+9, exit(t, p))
}

func TestMissingCommandIsAnError(t *testing.T) {
	_, err := Start(exec.Command("there-is-no-such-command"), false)
	require.ErrorIs(t, err, exec.ErrNotFound)
}
