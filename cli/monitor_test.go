package cli

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/profiler/device/nvml"
)

// fullBoard is 95.2 % full.
type fullGPU struct{}

func (fullGPU) Memory() (nvml.Memory, error) {
	return nvml.Memory{Total: 1000 << 20, Used: 952 << 20}, nil
}

func (fullGPU) Processes() ([]nvml.Process, error) {
	return []nvml.Process{{PID: 4242, Name: "python3", Used: 900 << 20}}, nil
}

func (b fullGPU) Read() (r nvml.Reading, err error) {
	r.Memory, _ = b.Memory()
	r.Processes, _ = b.Processes()
	return r, nil
}

// sharedBuffer is written by commands, terminals and monitors at the same time.
type sharedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *sharedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *sharedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// growing holds 100 MiB more at each sample; NVML does not know who.
type growing struct{ used int64 }

func (g *growing) Memory() (nvml.Memory, error) {
	g.used += 100 << 20
	return nvml.Memory{Total: 1 << 40, Used: g.used}, nil
}

func (*growing) Processes() ([]nvml.Process, error) { return nil, nil }

func (g *growing) Read() (r nvml.Reading, err error) {
	r.Memory, _ = g.Memory()
	return r, nil
}

func watching(r monitor.Reader) monitor.Source {
	return func() (monitor.Session, error) {
		return monitor.Session{
			GPUs:  []monitor.GPU{{Index: 0, Name: "Card", UUID: "GPU-1", Reader: r}},
			Close: func() error { return nil },
		}, nil
	}
}

func TestMonitorLooksOnceAndWritesEverything(t *testing.T) {
	a, stdout, stderr := desk()
	a.gpus = watching(fullGPU{})
	dir := t.TempDir()
	args := []string{
		"monitor", "--once", "--csv", filepath.Join(dir, "s.csv"), "--jsonl",
		filepath.Join(dir, "s.jsonl"),
	}
	require.Equal(t, exitFine, run(t.Context(), a, args), stderr)
	require.Contains(t, stdout.String(), "gpu 0  952.00 MiB of 1000.00 MiB (95 %)  peak 952.00 MiB\n")
	rows, err := os.ReadFile(filepath.Join(dir, "s.csv"))
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(rows), "\n"))
	lines, err := os.ReadFile(filepath.Join(dir, "s.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(lines), `"used_bytes":998244352`)
}

func TestMonitorFailsAboveItsLimit(t *testing.T) {
	for limit, want := range map[string]exitCode{
		"95%": exitNegative, "96%": exitFine, "900MiB": exitNegative,
		"1GiB": exitFine, "1": exitFine, "0.5": exitNegative, // a bare number counts GiB
	} {
		a, _, stderr := desk()
		a.gpus = watching(fullGPU{})
		require.Equal(t, want, run(t.Context(), a, []string{"monitor", "--once", "--fail-above", limit}), limit)
		if want == exitNegative {
			require.Contains(t, stderr.String(), "GPU 0 used more memory than --fail-above "+limit)
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
		{"--gpu", ""},
		{"--gpu", "0,0"},
		{"--pid", "-5"},
		{"--listen", ":99999"},
		{"--run", "run.json"},
		{"--csv", "-", "--jsonl", "-"},
		{"--csv", "/"},
		{"--csv", "/missing/s.csv"},
		{"--listen", "nowhere:0:0"},
		{"--", "there-is-no-such-command"},
	} {
		a, _, stderr := desk()
		a.gpus = watching(fullGPU{})
		require.Equal(t, exitUsage, run(t.Context(), a, append([]string{"monitor", "--for", "1ms"}, args...)), args)
		require.NotEmpty(t, stderr.String())
	}
	for _, args := range [][]string{{"--once"}, {"--for", "1s"}, {"--pid", "1"}, {"--csv", "-"}} {
		a, _, stderr := desk()
		a.gpus = watching(fullGPU{})
		require.Equal(t, exitUsage, run(t.Context(), a,
			append(append([]string{"monitor"}, args...), "--", "true")), args)
		require.Contains(t, stderr.String(), "command")
	}
	a, _, stderr := desk()
	a.gpus = func() (monitor.Session, error) { return monitor.Session{}, nvml.ErrNoDriver }
	require.Equal(t, exitNoGPU, run(t.Context(), a, []string{"monitor", "--once"}))
	require.Contains(t, stderr.String(), "no NVIDIA driver (monitor asks NVML")
}

func TestMonitorServesPrometheusAndRefusesAPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	a, _, stderr := desk()
	a.gpus = watching(fullGPU{})
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
	require.Contains(t, answer.Header.Get("Content-Type"), "text/plain; version=0.0.4")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	require.NoError(t, err)
	peak := families["vprof_memory_peak_bytes"].GetMetric()
	require.Len(t, peak, 1)
	require.InDelta(t, 5, peak[0].GetGauge().GetValue(), 0)
	require.Equal(t, "1", peak[0].GetLabel()[1].GetValue())
}

// The command's own exit is the monitor's; its output stays its own.
func TestMonitorFollowsACommandAndComparesWithThePlan(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "plan.json")
	a, stdout, stderr := desk()
	require.Equal(t, exitFine, run(t.Context(), a,
		[]string{"plan", "--model", "toy", "--batch", "16,32", "--export", plan}), stderr)

	stdout.Reset()
	a.gpus = watching(&growing{})
	args := []string{
		"monitor", "--interval", "5ms", "--run", plan, "--batch", "16", "--", "sh", "-c",
		"echo trained; sleep 0.2",
	}
	require.Equal(t, exitFine, run(t.Context(), a, args), stderr)
	require.Equal(t, "trained\n", stdout.String())
	require.Regexp(t,
		`gpu 0: NVML does not list its processes; the memory in use rose by at most \S+ [MG]iB \(\d+ readings, up to \d+ms apart\)`, stderr.String())
	require.Regexp(t, `estimated \S+ MiB \[.*\] for batch 16: the estimate is [+-]\S+ % off`, stderr.String())

	stderr.Reset()
	require.Equal(t, exitCode(7), run(t.Context(), a, []string{"monitor", "--", "sh", "-c", "exit 7"}))
	require.Contains(t, stderr.String(), "sh: exit status 7")
	require.Equal(t, exitCode(128+9), run(t.Context(), a, []string{"monitor", "--", "sh", "-c", "kill -KILL $$"}))
	require.Equal(t, exitUsage, run(t.Context(), a, []string{"monitor", "--run", plan, "--", "true"}))
	require.Contains(t, stderr.String(), "2 matching estimates")
}

// A log that is there is continued, whatever comes of it; another file is left alone.
func TestOldLogsAreContinuedAndOtherFilesLeftAlone(t *testing.T) {
	for flag, want := range map[string]int{"--csv": 3, "--jsonl": 2} {
		log := filepath.Join(t.TempDir(), "old")
		for range 2 {
			a, _, stderr := desk()
			a.gpus = watching(fullGPU{})
			require.Equal(t, exitFine, run(t.Context(), a, []string{"monitor", "--once", flag, log}), stderr)
		}
		data, err := os.ReadFile(log)
		require.NoError(t, err)
		require.Equal(t, want, bytes.Count(data, []byte("\n")), "a header and a line for each sample")
		for _, text := range []string{"a,b\n1,2\n", string(data[:len(data)-5])} {
			require.NoError(t, os.WriteFile(log, []byte(text), 0o644))
			a, _, stderr := desk()
			a.gpus = watching(fullGPU{})
			require.Equal(t, exitUsage, run(t.Context(), a, []string{"monitor", "--once", flag, log}))
			require.Contains(t, stderr.String(), "name another file")
			after, err := os.ReadFile(log)
			require.NoError(t, err)
			require.Equal(t, text, string(after))
		}
	}
}

func TestMetricsAreForThisMachineAndForReading(t *testing.T) {
	l, err := serve(":0", &monitor.Exporter{})
	require.NoError(t, err)
	defer l.Close()
	require.True(t, l.Addr().(*net.TCPAddr).IP.IsLoopback())
	url := "http://" + l.Addr().String() + "/metrics"
	for method, want := range map[string]int{
		http.MethodGet: 200, http.MethodHead: 200, http.MethodPost: 405,
		http.MethodDelete: 405,
	} {
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, want, answer.StatusCode, method)
	}
	// A page elsewhere whose name resolves to this machine is not answered.
	for host, want := range map[string]int{
		"localhost:9400": 200, "127.0.0.1": 200, "[::1]:9400": 200,
		"evil.example": 421, "127.0.0.1.evil.example": 421, "10.0.0.1": 421,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		r.Host = host
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, want, answer.StatusCode, host)
	}
}

func TestMonitorGoesOnWhenAGPUIsLost(t *testing.T) {
	a, stdout, stderr := desk()
	a.gpus = watching(lostGPU{})
	require.Equal(t, exitFine, run(t.Context(), a, []string{"monitor", "--for", "500ms", "--interval", "5ms"}), stderr)
	require.Greater(t, strings.Count(stdout.String(), "lost: nvmlInit: driver reloaded"), 1)
	require.Equal(t, 1, strings.Count(stderr.String(),
		"vprof: gpu 0 is lost: nvmlInit: driver reloaded\n"), "said once")
	require.Regexp(t, `gpu 0: peak 0 B \(0 readings, .*; \d+ failed\)`, stderr.String())
	require.Equal(t, exitFailure, run(t.Context(), a, []string{"monitor", "--once"}))
}

type lostGPU struct{}

func (lostGPU) Read() (nvml.Reading, error) {
	return nvml.Reading{}, errors.New("nvmlInit: driver reloaded")
}

func (lostGPU) Memory() (nvml.Memory, error)       { return nvml.Memory{}, errors.New("gone") }
func (lostGPU) Processes() ([]nvml.Process, error) { return nil, errors.New("gone") }

func TestMonitorSummarizesWhatItSaw(t *testing.T) {
	a, _, stderr := desk()
	a.gpus = watching(&growing{})
	require.Equal(t, exitFine, run(t.Context(), a, []string{"monitor", "--for", "60ms", "--interval", "5ms"}), stderr)
	require.Regexp(t, `^vprof: gpu 0: peak \S+ [MG]iB \(\d+ readings, up to \d+ms apart\)\n$`, stderr.String())

	stderr.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	require.Equal(t, exitInterrupted, run(ctx, a, []string{"monitor", "--interval", "5ms"}))
	require.Contains(t, stderr.String(), "vprof: gpu 0: peak ")
}

// Between two samples a second apart, memory is read a thousand times a second.
func TestBurstReadsBetweenLooks(t *testing.T) {
	a, stdout, stderr := desk()
	g := &growing{}
	a.gpus = watching(g)
	require.Equal(t, exitFine, run(t.Context(), a, []string{"monitor", "--burst", "--for", "300ms"}), stderr)
	require.Equal(t, 1, strings.Count(stdout.String(), "\n"), "one sample")
	require.Greater(t, g.used, int64(30*100<<20), "and many glances")
}

func TestSamplesGoToStandardOutputAlone(t *testing.T) {
	for flag, want := range map[string]string{
		"--jsonl": `^\{"time":.*"used_bytes":998244352.*\}\n$`,
		"--csv":   `^time,gpu,[^\n]*\n\d[^\n]*998244352[^\n]*\n$`,
	} {
		a, stdout, stderr := desk()
		a.gpus = watching(fullGPU{})
		require.Equal(t, exitFine, run(t.Context(), a, []string{"monitor", "--once", flag, "-"}), stderr)
		require.Regexp(t, want, stdout.String())
	}
}

// A process that does not exist cannot be watched, unless NVML knows it: it numbers processes as the host does.
func TestADeadProcessIsAnError(t *testing.T) {
	ended := exec.Command("true")
	require.NoError(t, ended.Run())
	dead := strconv.Itoa(ended.Process.Pid)
	for pid, want := range map[string]struct {
		code exitCode
		says string
	}{
		dead:                      {exitUsage, "no process " + dead},
		"4242":                    {exitFine, ""},
		strconv.Itoa(os.Getpid()): {exitFine, "process " + strconv.Itoa(os.Getpid()) + " uses no GPU yet"},
	} {
		a, stdout, stderr := desk()
		a.gpus = watching(fullGPU{})
		require.Equal(t, want.code, run(t.Context(), a, []string{"monitor", "--once", "--pid", pid}), stderr)
		require.Contains(t, stderr.String(), want.says)
		if want.code != exitFine {
			require.Empty(t, stdout.String())
		}
		if pid == "4242" {
			require.Contains(t, stdout.String(), "watched 900.00 MiB")
		}
	}
}

// An alarm ends the command that is watched, and waits for its end.
func TestAlarmEndsTheCommand(t *testing.T) {
	a, _, _ := desk()
	stderr := &sharedBuffer{}
	a.stderr, a.gpus = stderr, watching(&growing{})
	left := filepath.Join(t.TempDir(), "left")
	script := `trap "echo saved > ` + left + `; exit 1" INT; while :; do sleep 0.05; done`
	args := []string{"monitor", "--interval", "5ms", "--fail-above", "1GiB", "--", "sh", "-c", script}
	require.Equal(t, exitNegative, run(t.Context(), a, args))
	require.Contains(t, stderr.String(), "GPU 0 used more memory than --fail-above 1GiB: 1.07 GiB")
	require.FileExists(t, left, "it was asked to end and did")
}

func TestInterruptedCommandIsWaitedFor(t *testing.T) {
	a, _, _ := desk()
	stderr := &sharedBuffer{}
	a.stderr, a.gpus = stderr, watching(&growing{})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	args := []string{
		"monitor", "--interval", "5ms", "--", "sh", "-c",
		`trap "exit 0" INT; while :; do sleep 0.05; done`,
	}
	require.Equal(t, exitInterrupted, run(ctx, a, args))
	require.Contains(t, stderr.String(), "the memory in use rose by at most")
}

func TestUnwritableSamplesAreSaid(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	for _, flag := range []string{"--csv", "--jsonl"} {
		a, _, stderr := desk()
		a.gpus = watching(fullGPU{})
		require.Equal(t, exitFailure, run(t.Context(), a, []string{"monitor", "--once", flag, "/dev/full"}))
		require.Contains(t, stderr.String(), "no space left on device")
	}
}
