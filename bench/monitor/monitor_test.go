package monitor_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/monitor"
	"github.com/vprof/vprof/profiler/device/nvml"
)

const mib = 1 << 20

// script is a board that says one reading after the other; nil is a failure.
type script []*nvml.Reading

var errLost = errors.New("nvmlDeviceGetMemoryInfo_v2: GPU is lost")

func (s *script) Read() (nvml.Reading, error) {
	r := (*s)[0]
	*s = (*s)[1:]
	if r == nil {
		return nvml.Reading{}, errLost
	}
	return *r, nil
}

// reading has a board of 1000 MiB, of which the driver keeps 100, with two
// processes.
func reading(used, first, second int64) *nvml.Reading {
	busy, milliwatts := 80, 123456
	return &nvml.Reading{
		Memory:     nvml.Memory{Total: 1000 * mib, Reserved: 100 * mib, Used: used * mib, Free: (900 - used) * mib},
		Processes:  []nvml.Process{{PID: 7, Name: "python", Used: first * mib}, {PID: 9, Used: second * mib}},
		GPUPercent: &busy, Milliwatts: &milliwatts,
	}
}

func boards(readings ...*nvml.Reading) []monitor.Board {
	s := script(readings)
	return []monitor.Board{{Index: 0, Name: "Card", UUID: "GPU-1", Reader: &s}}
}

var start = time.Date(2026, 11, 5, 6, 7, 8, 0, time.UTC)

func TestPeakIsTheMostThatAnySampleSaw(t *testing.T) {
	m := monitor.New(boards(reading(300, 100, 200), reading(700, 400, 300), reading(200, 100, 100)), nil)
	var last monitor.Sample
	for i := range 3 {
		last = m.Sample(start.Add(time.Duration(i*i) * time.Second))[0]
	}
	require.Equal(t, int64(900*mib), last.Total, "what the driver keeps is nobody's")
	require.Equal(t, int64(200*mib), last.Used)
	require.Equal(t, int64(700*mib), last.Peak)
	require.Nil(t, last.Watched)
	require.Len(t, last.Processes, 2)
	// At 0, 1 and 4 seconds.
	require.Equal(t, monitor.Summary{Samples: 3, Gap: 3 * time.Second, Peaks: []int64{700 * mib}}, m.Summary())
}

func TestOnlyWatchedProcessesCount(t *testing.T) {
	m := monitor.New(boards(reading(300, 100, 200), reading(700, 400, 300), reading(500, 450, 50)), func(pid int) bool { return pid == 9 })
	var last monitor.Sample
	for range 3 {
		last = m.Sample(start)[0]
	}
	require.Equal(t, int64(50*mib), *last.Watched)
	require.Equal(t, int64(300*mib), last.Peak)
	require.Len(t, last.Processes, 1)
}

func TestProcessesWithoutAFigureMakeTheSumUnknown(t *testing.T) {
	r := reading(300, 100, 200)
	r.Processes[0].Used = -1
	s := monitor.New(boards(r), func(int) bool { return true }).Sample(start)[0]
	require.Equal(t, int64(-1), *s.Watched)
	require.Zero(t, s.Peak)
	require.Contains(t, s.Line(), "NVML does not tell")
}

// A driver that is loaded anew: the monitor says what it lost and goes on.
func TestMonitorGoesOnAfterALostBoard(t *testing.T) {
	m := monitor.New(boards(reading(300, 100, 200), nil, reading(100, 50, 50)), nil)
	m.Sample(start)
	lost := m.Sample(start.Add(time.Second))[0]
	require.Equal(t, errLost.Error(), lost.Error)
	require.Contains(t, lost.Line(), "lost: nvmlDeviceGetMemoryInfo_v2")
	back := m.Sample(start.Add(2 * time.Second))[0]
	require.Empty(t, back.Error)
	require.Equal(t, int64(300*mib), back.Peak)
	require.Equal(t, 1, m.Summary().Lost)
}

func TestRecordsHaveACellForEachHead(t *testing.T) {
	m := monitor.New(boards(reading(300, 100, 200), nil), nil)
	full, lost := m.Sample(start)[0].Record(), m.Sample(start)[0].Record()
	require.Len(t, full, len(monitor.Header()))
	require.Equal(t, "2026-11-05T06:07:08Z,0,Card,GPU-1,943718400,314572800,,314572800,80,,,123.456,,", strings.Join(full, ","))
	require.Len(t, lost, len(monitor.Header()))
}

func TestPrometheusGetsWhatIsKnown(t *testing.T) {
	e := &monitor.Exporter{}
	e.Set(monitor.New(boards(reading(300, 100, 200)), nil).Sample(start))
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(e))
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{UUID="GPU-1",gpu="0",modelName="Card"} 300
# HELP vprof_memory_peak_bytes Most memory in use that a sample saw since the monitor began.
# TYPE vprof_memory_peak_bytes gauge
vprof_memory_peak_bytes{UUID="GPU-1",gpu="0",modelName="Card"} 3.145728e+08
`), "DCGM_FI_DEV_FB_USED", "vprof_memory_peak_bytes", "DCGM_FI_DEV_GPU_TEMP", "vprof_watched_memory_bytes"))
}

// The framing is TensorFlow's: length, masked CRC-32C of it, data, and of that.
func TestTensorBoardRecordsAreWhole(t *testing.T) {
	var b bytes.Buffer
	tb, err := monitor.NewTensorBoard(&b, start)
	require.NoError(t, err)
	require.NoError(t, tb.Write(monitor.New(boards(reading(300, 100, 200)), nil).Sample(start)))
	records := 0
	for rest := b.Bytes(); len(rest) > 0; records++ {
		n := binary.LittleEndian.Uint64(rest)
		require.Equal(t, masked(rest[:8]), binary.LittleEndian.Uint32(rest[8:]))
		data := rest[12 : 12+n]
		require.Equal(t, masked(data), binary.LittleEndian.Uint32(rest[12+n:]))
		if records == 1 {
			require.Contains(t, string(data), "gpu0/used_bytes")
		}
		rest = rest[16+n:]
	}
	require.Equal(t, 2, records)
	// A record that TensorFlow writes first into every file, at time 0.
	b.Reset()
	_, err = monitor.NewTensorBoard(&b, time.Unix(0, 0))
	require.NoError(t, err)
	require.Contains(t, b.String(), "brain.Event:2")
}

func masked(data []byte) uint32 {
	c := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}

func TestTreeHasTheDescendants(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 30 & echo up; wait")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		for _, pid := range monitor.Tree(cmd.Process.Pid) {
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
	require.Len(t, monitor.Tree(cmd.Process.Pid), 2)
	require.Subset(t, monitor.Tree(os.Getpid()), monitor.Tree(cmd.Process.Pid))
}

// A hundredth of a core at ten samples a second is a millisecond each; the
// board itself is not counted.
func BenchmarkSample(b *testing.B) {
	m := monitor.New([]monitor.Board{{Reader: steady{}}}, nil)
	for b.Loop() {
		m.Sample(start)
	}
}

type steady struct{}

func (steady) Read() (nvml.Reading, error) { return *reading(300, 100, 200), nil }
