//go:build cuda && linux && cgo

package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/tools/fakecuda"
)

// twoGPUs returns a machine where others use both GPUs; one of them has a name that is not UTF-8.
func twoGPUs(t *testing.T) fakecuda.Setup {
	return fakecuda.Setup{Quiet: true, GPUs: []fakecuda.GPU{
		{GPU: catalogGPU(t, "rtx4090"), Others: []fakecuda.Process{
			{PID: 4242, Name: "py\xffthon", Used: 8 << 30},
			{PID: 777, Name: "Xorg", Used: 1 << 30},
		}},
		{GPU: catalogGPU(t, "t4"), Others: []fakecuda.Process{{PID: 5151, Name: "python3", Used: 15 << 30}}},
	}}
}

// watchDriver runs monitor on the driver and returns its samples.
func watchDriver(t *testing.T, want exitCode, args ...string) (samples []monitor.Sample, stderr string) {
	a, stdout, said := desk()
	a.gpus = openNVML
	require.Equal(t, want, run(t.Context(), a, append([]string{"monitor", "--jsonl", "-"}, args...)), said)
	for line := range strings.Lines(stdout.String()) {
		var s monitor.Sample
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		samples = append(samples, s)
	}
	return samples, said.String()
}

func TestMonitorReadsTheDriver(t *testing.T) {
	d := twoGPUs(t).Restart(t)
	samples, _ := watchDriver(t, exitFine, "--once")
	require.Len(t, samples, 2)
	s := samples[0]
	require.Equal(t, "NVIDIA GeForce RTX 4090", s.Name)
	require.Equal(t, int64(9<<30), s.Used)
	require.Equal(t, int64(400<<20), s.Driver)
	require.Equal(t, []monitor.Process{
		{PID: 777, Name: "Xorg", Used: 1 << 30, Peak: 1 << 30},
		{PID: 4242, Name: "py\uFFFDthon", Used: 8 << 30, Peak: 8 << 30},
	}, s.Processes)
	require.NotNil(t, s.Celsius)
	require.InDelta(t, 300, *s.LimitWatts, 0)
	require.Zero(t, d.Stats(t).NVML, "NVML was shut down")

	samples, _ = watchDriver(t, exitFine, "--once", "--gpu", "1", "--pid", "5151")
	require.Len(t, samples, 1)
	require.Equal(t, int64(15<<30), *samples[0].Watched)
	_, stderr := watchDriver(t, exitNegative, "--once", "--fail-above", "95%")
	require.Contains(t, stderr, "GPU 1 used more memory than --fail-above 95%")
}

// The driver goes away in the middle and refuses to start once: the monitor
// opens it again, goes on, and says what it missed.
func TestMonitorGoesOnWhenTheDriverIsLoadedAnew(t *testing.T) {
	setup := twoGPUs(t)
	setup.Lose = &fakecuda.Loss{After: 5, Code: 15, Refused: 1}
	d := setup.Restart(t)
	samples, stderr := watchDriver(t, exitFine, "--interval", "20ms", "--for", "1500ms")
	require.Equal(t, 2, strings.Count(stderr, " is lost: nvmlDeviceGetMemoryInfo_v2: "), stderr)
	require.Regexp(t, `vprof: gpu 0 is back after 1\.\d+s; \d+ samples were missed, and peaks in that time are `+
		`not known\n`, stderr)
	require.Empty(t, samples[len(samples)-1].Error)
	require.Greater(t, samples[len(samples)-1].Gap, 1.0)
	lost := 0
	for _, s := range samples {
		if s.Error != "" {
			lost++
		}
	}
	require.Positive(t, lost)
	require.Zero(t, d.Stats(t).NVML)
}

// The memory rises and falls within 40 readings of it: eleven samples alone would not get to the crest.
func TestBurstSeesThePeaksOfTheDriver(t *testing.T) {
	setup := twoGPUs(t)
	setup.Wave = 40
	setup.Restart(t)
	samples, stderr := watchDriver(t, exitFine, "--gpu", "0", "--burst", "--interval", "100ms", "--for", "1s")
	require.LessOrEqual(t, len(samples), 11)
	require.Equal(t, int64(9<<30), samples[len(samples)-1].Peak, stderr)
}

func TestMonitorOfADriverThatIsNotLoaded(t *testing.T) {
	setup := twoGPUs(t)
	setup.NVML = 9
	setup.Restart(t)
	_, stderr := watchDriver(t, exitNoGPU, "--once")
	require.Contains(t, stderr, "Driver Not Loaded")
}

// What a sample and a memory reading at two GPUs cost besides the driver's own part. A
// hundredth of a core at ten samples a second is a millisecond each.
func BenchmarkDriverLook(b *testing.B) {
	benchmarkMonitor(b, func(m *monitor.Monitor) { m.Sample(time.Now()) })
}

func BenchmarkDriverReadMemory(b *testing.B) {
	benchmarkMonitor(b, func(m *monitor.Monitor) { m.ReadMemory(time.Now()) })
}

func benchmarkMonitor(b *testing.B, step func(*monitor.Monitor)) {
	setup := fakecuda.Setup{
		Quiet: true,
		GPUs: []fakecuda.GPU{{
			GPU:    catalogGPU(b, "rtx4090"),
			Others: []fakecuda.Process{{PID: os.Getpid(), Name: "python3", Used: 1 << 30}},
		}},
	}
	setup.GPUs = append(setup.GPUs, setup.GPUs[0])
	setup.Restart(b)
	session, err := openNVML()
	require.NoError(b, err)
	m := monitor.New(session, openNVML, nil)
	for b.Loop() {
		step(m)
	}
	require.NoError(b, m.Close())
}
