package monitor_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/profiler/device/nvml"
)

const mib = 1 << 20

var errLost = errors.New("nvmlDeviceGetMemoryInfo_v2: GPU is lost")

// card is a GPU that says what the test wants; nil is a failure.
type card struct{ says *nvml.Reading }

func (c *card) Read() (nvml.Reading, error) {
	if c.says == nil {
		return nvml.Reading{}, errLost
	}
	return *c.says, nil
}

func (c *card) Memory() (nvml.Memory, error) {
	r, err := c.Read()
	return r.Memory, err
}

func (c *card) Processes() ([]nvml.Process, error) {
	r, err := c.Read()
	return r.Processes, err
}

// reading returns a GPU of 1000 MiB, of which the driver keeps 100, with two processes.
func reading(used, first, second int64) *nvml.Reading {
	busy, milliwatts, limit := 80, 123456, 300000
	return &nvml.Reading{
		Memory:     nvml.Memory{Total: 1000 * mib, Reserved: 100 * mib, Used: used * mib},
		Processes:  []nvml.Process{{PID: 7, Name: "python", Used: first * mib}, {PID: 9, Used: second * mib}},
		GPUPercent: &busy, Milliwatts: &milliwatts, LimitMilliwatts: &limit,
	}
}

// session returns a session with one GPU.
func session(c *card) monitor.Session {
	return monitor.Session{
		GPUs:  []monitor.GPU{{Index: 0, Name: "Card", UUID: "GPU-1", Reader: c}},
		Close: func() error { return nil },
	}
}

var start = time.Date(2026, 11, 5, 6, 7, 8, 0, time.UTC)

// after returns a number of milliseconds later.
func after(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

// sampled returns the samples of a GPU with 300 MiB in use.
func sampled(*testing.T) []monitor.Sample {
	return monitor.New(session(&card{reading(300, 100, 200)}), nil, nil).Sample(start).Samples
}

func TestPeakIsTheMostThatAnyLookSaw(t *testing.T) {
	c := &card{}
	m := monitor.New(session(c), nil, nil)
	var last monitor.Sample
	for i, used := range []int64{300, 700, 200} {
		c.says = reading(used, used/2, used/2)
		last = m.Sample(after(1000 * i * i)).Samples[0]
	}
	require.Equal(t, int64(900*mib), last.Total, "what the driver keeps is nobody's")
	require.Equal(t, int64(100*mib), last.Driver)
	require.Equal(t, int64(200*mib), last.Used)
	require.Equal(t, int64(200*mib), last.Highest)
	require.Equal(t, int64(700*mib), last.Peak)
	require.InDelta(t, 3, last.Gap, 0, "samples at 0, 1 and 4 seconds")
	require.Nil(t, last.Watched)
	require.Equal(t, []monitor.Process{{7, "python", 100 * mib, 350 * mib}, {9, "", 100 * mib, 350 * mib}},
		last.Processes)
	require.Equal(t, []monitor.GPUTotals{{
		Samples: 3, Gap: 3 * time.Second, First: 300 * mib,
		Peak: 700 * mib, WatchedPeak: 700 * mib,
	}}, m.Totals())
	require.Equal(t, int64(400*mib), m.Totals()[0].Rise())
}

func TestOnlyWatchedProcessesCount(t *testing.T) {
	c := &card{}
	m := monitor.New(session(c), nil, func(pid int) bool { return pid == 9 })
	var last monitor.Sample
	for _, second := range []int64{200, 300, 50} {
		c.says = reading(500, 100, second)
		last = m.Sample(start).Samples[0]
	}
	require.Equal(t, int64(50*mib), *last.Watched)
	require.Equal(t, int64(300*mib), last.Peak)
	require.Len(t, last.Processes, 1)
}

func TestProcessesWithoutAFigureMakeTheSumUnknown(t *testing.T) {
	c := &card{reading(300, 100, 200)}
	c.says.Processes[0].Used = -1
	s := monitor.New(session(c), nil, func(int) bool { return true }).Sample(start).Samples[0]
	require.Equal(t, int64(-1), *s.Watched)
	require.Zero(t, s.Peak)
	require.Contains(t, s.Line(), "NVML does not tell")
}

// A peak of a millisecond between two samples is in the next.
func TestGlancesFindWhatLooksMiss(t *testing.T) {
	for _, watched := range []func(int) bool{nil, func(pid int) bool { return pid == 7 }} {
		c := &card{reading(100, 50, 50)}
		m := monitor.New(session(c), nil, watched)
		m.Sample(start)
		for i := 1; i < 100; i++ {
			c.says = reading(100, 50, 50)
			if i == 50 {
				c.says = reading(800, 700, 100)
			}
			m.ReadMemory(after(i))
		}
		c.says = reading(100, 50, 50)
		s := m.Sample(after(100)).Samples[0]
		require.Equal(t, int64(100*mib), s.Used)
		require.Equal(t, int64(800*mib), s.Highest)
		require.InDelta(t, 0.001, s.Gap, 0)
		want := int64(800 * mib)
		if watched != nil {
			want = 700 * mib
		}
		require.Equal(t, want, s.Peak)
		require.Equal(t, int64(100*mib), m.Sample(after(101)).Samples[0].Highest, "since the last sample")
		require.Equal(t, 102, m.Totals()[0].Samples)
	}
}

// A driver that is loaded anew: handles of the old one stay dead, so NVML is
// opened again; the monitor says what it lost and goes on.
func TestMonitorOpensNVMLAgainAndSaysWhatItMissed(t *testing.T) {
	old, anew := &card{reading(300, 100, 200)}, &card{reading(100, 50, 50)}
	var opened, closed int
	refuse := 2
	source := func() (monitor.Session, error) {
		opened++
		if opened <= refuse {
			return monitor.Session{}, errors.New("nvmlInit: Driver Not Loaded")
		}
		return session(anew), nil
	}
	first := session(old)
	first.Close = func() error { closed++; return errLost }
	m := monitor.New(first, source, nil)
	m.Sample(start)
	old.says = nil
	lost := m.Sample(after(100))
	require.Equal(t, errLost.Error(), lost.Samples[0].Error)
	require.Contains(t, lost.Samples[0].Line(), "lost: nvmlDeviceGetMemoryInfo_v2")
	require.Equal(t, []string{"gpu 0 is lost: " + errLost.Error()}, lost.Notices)
	require.Zero(t, opened)

	lost = m.Sample(after(200)) // tries, and again after 1, 2, ... seconds
	require.Equal(t, "nvmlInit: Driver Not Loaded", lost.Samples[0].Error)
	require.Empty(t, lost.Notices, "said once")
	m.Sample(after(1100))
	require.Equal(t, 1, opened)
	m.Sample(after(1200))
	m.Sample(after(3100))
	require.Equal(t, 2, opened)
	back := m.Sample(after(3200))
	require.Equal(t, 3, opened)
	require.Equal(t, 1, closed)
	require.Empty(t, back.Samples[0].Error)
	require.Equal(t, int64(300*mib), back.Samples[0].Peak, "peaks stay")
	require.InDelta(t, 3.2, back.Samples[0].Gap, 1e-9)
	require.Equal(t, []string{"gpu 0 is back after 3.1s; 5 samples were missed, and peaks in that time are not known"},
		back.Notices)
	require.Equal(t, 5, m.Totals()[0].Failed)
	require.NoError(t, m.Close())
	require.NoError(t, m.Close(), "twice is once")
}

func TestPausesBetweenAttemptsGrowToAMinute(t *testing.T) {
	var tries []int
	second := 0
	m := monitor.New(session(&card{}), func() (monitor.Session, error) {
		tries = append(tries, second)
		return monitor.Session{}, errLost
	}, nil)
	for second = range 300 {
		m.Sample(after(1000 * second))
	}
	require.Equal(t, []int{1, 2, 4, 8, 16, 32, 64, 124, 184, 244}, tries)
}

func TestAGPUThatIsGoneForGoodLeavesTheOthers(t *testing.T) {
	one, two := &card{reading(300, 100, 200)}, &card{reading(200, 100, 100)}
	both := monitor.Session{GPUs: []monitor.GPU{
		{Index: 0, UUID: "GPU-1", Reader: one},
		{Index: 1, UUID: "GPU-2", Reader: two},
	}}
	m := monitor.New(both, func() (monitor.Session, error) {
		return monitor.Session{GPUs: both.GPUs[1:], Missing: errors.New("GPU 0: GPU is lost")}, nil
	}, nil)
	m.Sample(start)
	one.says = nil
	m.Sample(after(1))
	round := m.Sample(after(2))
	require.Contains(t, round.Samples[0].Error, "GPU 0: GPU is lost")
	require.Equal(t, int64(200*mib), round.Samples[1].Used)
}

// What a burst loses is said with the next sample.
func TestALossDuringABurstIsNoticed(t *testing.T) {
	c := &card{reading(300, 100, 200)}
	m := monitor.New(session(c), nil, nil)
	m.Sample(start)
	c.says = nil
	m.ReadMemory(after(1))
	m.ReadMemory(after(2))
	c.says = reading(300, 100, 200)
	require.Equal(t, []string{
		"gpu 0 is lost: " + errLost.Error(),
		"gpu 0 is back after 2ms; 0 samples were missed, and peaks in that time are not known",
	}, m.Sample(after(3)).Notices)
	require.Equal(t, 1, m.Totals()[0].Failed)
}

// Of watched processes it is said when they leave; others come and go.
func TestWatchedProcessesAreMissed(t *testing.T) {
	for _, watched := range []func(int) bool{nil, func(int) bool { return true }} {
		c := &card{reading(300, 200, 100)}
		m := monitor.New(session(c), nil, watched)
		m.Sample(start)
		c.says = reading(100, 100, 0)
		c.says.Processes = c.says.Processes[1:]
		notices := m.Sample(after(1)).Notices
		if watched == nil {
			require.Empty(t, notices)
			continue
		}
		require.Equal(t, []string{"process 7 (python) no longer uses gpu 0; it was seen with at most 200.00 MiB"},
			notices)
	}
}

func TestRecordsHaveACellForEachHead(t *testing.T) {
	c := &card{reading(300, 100, 200)}
	m := monitor.New(session(c), nil, nil)
	full := m.Sample(start).Samples[0].Record()
	c.says = nil
	lost := m.Sample(start).Samples[0].Record()
	require.Len(t, full, len(monitor.Header()))
	require.Equal(t,
		"2026-11-05T06:07:08Z,0,Card,GPU-1,943718400,104857600,314572800,314572800,,314572800,0,80,,,123.456,300,,",
		strings.Join(full, ","))
	require.Len(t, lost, len(monitor.Header()))
	require.Equal(t, "2026-11-05T06:07:08Z,0,Card,GPU-1,,,,,,314572800,0,,,,,,,"+errLost.Error(),
		strings.Join(lost, ","))
}

func TestALineHasWhatIsKnown(t *testing.T) {
	c := &card{reading(300, 100, 200)}
	m := monitor.New(session(c), nil, func(pid int) bool { return pid == 7 })
	require.Equal(t,
		"06:07:08.000 gpu 0  300.00 MiB of 900.00 MiB (33 %)  watched 100.00 MiB  peak 100.00 MiB  busy 80 %  123 "+
			"of 300 W", m.Sample(start).Samples[0].Line())
	celsius := 71
	c.says = &nvml.Reading{Memory: c.says.Memory, Celsius: &celsius}
	require.Equal(t,
		"06:07:20.346 gpu 0  300.00 MiB of 900.00 MiB (33 %)  watched 0 B  peak 100.00 MiB (samples up to 12.4s "+
			"apart)  71 °C", m.Sample(after(12346)).Samples[0].Line())
}

// Whatever a GPU or process calls itself, a line of JSON is valid.
func TestNamesThatAreNotUTF8StayValidJSON(t *testing.T) {
	c := &card{reading(300, 100, 200)}
	c.says.Processes[0].Name = "py\xff"
	text, err := json.Marshal(monitor.New(session(c), nil, nil).Sample(start).Samples[0])
	require.NoError(t, err)
	var back monitor.Sample
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, "py\uFFFD", back.Processes[0].Name)
}

func TestPrometheusGetsWhatIsKnown(t *testing.T) {
	e := &monitor.Exporter{}
	e.Set(sampled(t))
	served := httptest.NewServer(e)
	defer served.Close()
	answer, err := http.Get(served.URL)
	require.NoError(t, err)
	defer answer.Body.Close()
	problems, err := promlint.New(answer.Body).Lint()
	require.NoError(t, err)
	for _, p := range problems { // dcgm-exporter's names and labels are as they are
		require.True(t, strings.HasPrefix(p.Metric, "DCGM_FI_DEV_") ||
			strings.HasPrefix(p.Text, "label names"), "%v", p)
	}
	require.NoError(t, testutil.ScrapeAndCompare(served.URL, strings.NewReader(`
# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{UUID="GPU-1",gpu="0",modelName="Card"} 300
# HELP vprof_memory_peak_bytes Highest memory use, of the watched processes if any, since the monitor started.
# TYPE vprof_memory_peak_bytes gauge
vprof_memory_peak_bytes{UUID="GPU-1",gpu="0",modelName="Card"} 3.145728e+08
# HELP vprof_process_memory_bytes Memory of a process.
# TYPE vprof_process_memory_bytes gauge
vprof_process_memory_bytes{UUID="GPU-1",gpu="0",modelName="Card",pid="7",program="python"} 1.048576e+08
vprof_process_memory_bytes{UUID="GPU-1",gpu="0",modelName="Card",pid="9",program=""} 2.097152e+08
`), "DCGM_FI_DEV_FB_USED", "vprof_memory_peak_bytes", "vprof_process_memory_bytes", "DCGM_FI_DEV_GPU_TEMP", "vprof_watched_memory_bytes"))
}

// Whatever a GPU calls itself, Prometheus can read the answer, of which there is none where nothing is known.
func TestPrometheusGetsNamesThatAreNotUTF8(t *testing.T) {
	e := &monitor.Exporter{}
	e.Set([]monitor.Sample{{Name: "Card\xff\"\n", Error: "lost"}})
	answer := httptest.NewRecorder()
	e.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Contains(t, answer.Body.String(), `modelName="Card�\"\n"} 0`)
	require.NotContains(t, answer.Body.String(), "vprof_process_memory_bytes")

	e.Set(nil)
	answer = httptest.NewRecorder()
	e.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, answer.Code)
	require.Empty(t, answer.Body.String())
}

func TestTreeHasTheDescendants(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 30 & echo up; wait")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		for _, pid := range monitor.ProcessTree(cmd.Process.Pid) {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
		_ = cmd.Wait()
	}()
	_, err = out.Read(make([]byte, 3))
	require.NoError(t, err)
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("only Linux tells who the descendants are")
	}
	require.Len(t, monitor.ProcessTree(cmd.Process.Pid), 2)
	require.Subset(t, monitor.ProcessTree(os.Getpid()), monitor.ProcessTree(cmd.Process.Pid))
}

// A hundredth of a core at ten samples a second is a millisecond each; the GPU itself is not counted.
func BenchmarkLook(b *testing.B) {
	m := monitor.New(session(&card{reading(300, 100, 200)}), nil, nil)
	for b.Loop() {
		m.Sample(start)
	}
}
