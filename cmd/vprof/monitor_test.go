package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/monitor"
	"github.com/vprof/vprof/profiler/device/nvml"
)

// fullBoard is 95.2 % full.
type fullBoard struct{}

func (fullBoard) Read() (nvml.Reading, error) {
	return nvml.Reading{Memory: nvml.Memory{Total: 1000 << 20, Used: 952 << 20}}, nil
}

// growing holds 100 MiB more at each look.
type growing struct{ used int64 }

func (g *growing) Read() (nvml.Reading, error) {
	g.used += 100 << 20
	return nvml.Reading{Memory: nvml.Memory{Total: 1 << 40, Used: g.used}}, nil
}

func watching(r monitor.Reader) func() ([]monitor.Board, func() error, error) {
	return func() ([]monitor.Board, func() error, error) {
		return []monitor.Board{{Index: 0, Name: "Card", UUID: "GPU-1", Reader: r}}, func() error { return nil }, nil
	}
}

func TestMonitorLooksOnceAndWritesEverything(t *testing.T) {
	a, stdout, stderr := desk()
	a.boards = watching(fullBoard{})
	dir := t.TempDir()
	args := []string{"monitor", "--once", "--csv", filepath.Join(dir, "s.csv"), "--jsonl", filepath.Join(dir, "s.jsonl"), "--tensorboard", dir}
	require.Equal(t, exitFine, run(t.Context(), a, args), stderr)
	require.Contains(t, stdout.String(), "gpu 0  952.00 MiB of 1000.00 MiB (95 %)  peak 952.00 MiB\n")
	rows, err := os.ReadFile(filepath.Join(dir, "s.csv"))
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(rows), "\n"))
	lines, err := os.ReadFile(filepath.Join(dir, "s.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(lines), `"used_bytes":998244352`)
	events, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	require.NoError(t, err)
	require.Len(t, events, 1)
}

func TestMonitorFailsAboveItsLimit(t *testing.T) {
	for limit, want := range map[string]exitCode{"95%": exitNegative, "96%": exitFine, "900MiB": exitNegative, "1GiB": exitFine} {
		a, _, stderr := desk()
		a.boards = watching(fullBoard{})
		require.Equal(t, want, run(t.Context(), a, []string{"monitor", "--once", "--fail-above", limit}), limit)
		if want == exitNegative {
			require.Contains(t, stderr.String(), "gpu 0 is above "+limit)
		}
	}
}

func TestMonitorNeedsSense(t *testing.T) {
	for _, args := range [][]string{
		{"--interval", "1us"},
		{"--fail-above", "120%"},
		{"--fail-above", "much"},
		{"--gpu", "3"},
		{"--gpu", "x"},
		{"--once", "--", "true"},
		{"--run", "run.json"},
		{"--pid", "1", "--", "true"},
		{"--csv", "/missing/s.csv"},
		{"--listen", "nowhere:0:0"},
		{"--", "there-is-no-such-command"},
	} {
		a, _, stderr := desk()
		a.boards = watching(fullBoard{})
		require.Equal(t, exitUsage, run(t.Context(), a, append([]string{"monitor", "--for", "1ms"}, args...)), args)
		require.NotEmpty(t, stderr.String())
	}
	a, _, stderr := desk()
	a.boards = func() ([]monitor.Board, func() error, error) { return nil, nil, nvml.ErrNoDriver }
	require.Equal(t, exitNoGPU, run(t.Context(), a, []string{"monitor", "--once"}))
	require.Contains(t, stderr.String(), "no NVIDIA driver")
}

func TestMonitorServesPrometheusAndRefusesAPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	a, _, stderr := desk()
	a.boards = watching(fullBoard{})
	require.Equal(t, exitUsage, run(t.Context(), a, []string{"monitor", "--once", "--listen", l.Addr().String()}))
	require.Contains(t, stderr.String(), "address already in use")

	e := &monitor.Exporter{}
	e.Set([]monitor.Sample{{GPU: 1, Peak: 5}})
	served, err := serve("127.0.0.1:0", e)
	require.NoError(t, err)
	defer served.Close()
	answer, err := http.Get("http://" + served.Addr().String() + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), `vprof_memory_peak_bytes{UUID="",gpu="1",modelName=""} 5`)
}

// The command's own exit is the monitor's; its output stays its own.
func TestMonitorFollowsACommandAndComparesWithThePlan(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "plan.json")
	a, stdout, stderr := desk()
	require.Equal(t, exitFine, run(t.Context(), a, []string{"plan", "--model", "toy", "--batch", "16,32", "--export", plan}), stderr)

	stdout.Reset()
	a.boards = watching(&growing{})
	args := []string{"monitor", "--interval", "5ms", "--run", plan, "--batch", "16", "--", "sh", "-c", "echo trained; sleep 0.2"}
	require.Equal(t, exitFine, run(t.Context(), a, args), stderr)
	require.Equal(t, "trained\n", stdout.String())
	require.Regexp(t, `NVML does not know its processes; the boards' memory rose by at most \S+ [MG]iB \(\d+ samples, at most \d+ms apart\)`, stderr.String())
	require.Regexp(t, `estimated \S+ MiB \[.*\] for batch 16: the estimate is [+-]\S+ % off`, stderr.String())

	stderr.Reset()
	require.Equal(t, exitFailure, run(t.Context(), a, []string{"monitor", "--", "sh", "-c", "exit 7"}))
	require.Contains(t, stderr.String(), "sh: exit status 7")
	require.Equal(t, exitUsage, run(t.Context(), a, []string{"monitor", "--run", plan, "--", "true"}))
	require.Contains(t, stderr.String(), "2 estimates that fit")
}

func TestMonitorGoesOnWhenABoardIsLost(t *testing.T) {
	a, stdout, stderr := desk()
	a.boards = watching(lostBoard{})
	require.Equal(t, exitFine, run(t.Context(), a, []string{"monitor", "--for", "30ms", "--interval", "5ms"}), stderr)
	require.Greater(t, strings.Count(stdout.String(), "lost: nvmlInit: driver reloaded"), 1)
}

type lostBoard struct{}

func (lostBoard) Read() (nvml.Reading, error) {
	return nvml.Reading{At: time.Time{}}, errors.New("nvmlInit: driver reloaded")
}
