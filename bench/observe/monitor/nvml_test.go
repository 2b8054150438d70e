//go:build linux && cgo

package monitor_test

import (
	"testing"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	mock "github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/profiler/device/nvml"
)

// server is go-nvml's model of a DGX A100 with a driver that can be loaded
// anew: what was opened before then answers with failures only.
type server struct {
	*dgxa100.Server
	// used is what each GPU has in use, bytes.
	used [8]uint64
	// reloads counts how often the driver was loaded, opened is the count at the last nvmlInit.
	reloads, opened int
}

func newServer() *server {
	s := &server{Server: dgxa100.New()}
	s.InitFunc = func() api.Return {
		s.opened = s.reloads
		return api.SUCCESS
	}
	for i, d := range s.Devices {
		device := &d.(*mock.Device).Device
		untold := api.ERROR_NOT_SUPPORTED
		device.GetMemoryInfo_v2Func = func() (api.Memory_v2, api.Return) {
			if s.opened != s.reloads {
				return api.Memory_v2{}, api.ERROR_GPU_IS_LOST
			}
			return api.Memory_v2{
				Total: 40 << 30, Reserved: 1 << 30, Used: s.used[i],
				Free: 39<<30 - s.used[i],
			}, api.SUCCESS
		}
		device.GetComputeModeFunc = func() (api.ComputeMode, api.Return) { return api.COMPUTEMODE_DEFAULT, api.SUCCESS }
		device.GetComputeRunningProcessesFunc = func() ([]api.ProcessInfo, api.Return) {
			return []api.ProcessInfo{{Pid: uint32(100 + i), UsedGpuMemory: s.used[i]}}, api.SUCCESS
		}
		device.GetGraphicsRunningProcessesFunc = func() ([]api.ProcessInfo, api.Return) { return nil, untold }
		device.GetMPSComputeRunningProcessesFunc = device.GetGraphicsRunningProcessesFunc
		device.GetUtilizationRatesFunc = func() (api.Utilization, api.Return) { return api.Utilization{}, untold }
		device.GetClockInfoFunc = func(api.ClockType) (uint32, api.Return) { return 0, untold }
		device.GetTemperatureFunc = func(api.TemperatureSensors) (uint32, api.Return) { return 0, untold }
		device.GetPowerUsageFunc = func() (uint32, api.Return) { return 0, untold }
		device.GetEnforcedPowerLimitFunc = func() (uint32, api.Return) { return 0, untold }
		device.GetCurrentClocksThrottleReasonsFunc = func() (uint64, api.Return) { return 0, untold }
	}
	s.SystemGetProcessNameFunc = func(int) (string, api.Return) { return "/usr/bin/python3\xff", api.SUCCESS }
	return s
}

func (s *server) open() (monitor.Session, error) {
	library, err := nvml.NewLibrary(s)
	if err != nil {
		return monitor.Session{}, err
	}
	found, err := library.GPUs()
	session := monitor.Session{Close: library.Close, Missing: err}
	for _, b := range found {
		session.GPUs = append(session.GPUs, monitor.GPU{Index: b.Index, Name: b.Name, UUID: b.UUID, Reader: b})
	}
	return session, nil
}

func TestEightGPUsGoOnAfterTheDriverWasLoadedAnew(t *testing.T) {
	s := newServer()
	opened, err := s.open()
	require.NoError(t, err)
	require.NoError(t, opened.Missing)
	m := monitor.New(opened, s.open, nil)
	s.used[3] = 30 << 30
	round := m.Sample(start)
	require.Len(t, round.Samples, 8)
	require.Equal(t, int64(39<<30), round.Samples[0].Total)
	require.Equal(t, []monitor.Process{{PID: 103, Name: "python3\uFFFD", Used: 30 << 30, Peak: 30 << 30}},
		round.Samples[3].Processes)

	s.reloads++
	s.used[3] = 1 << 30
	require.Len(t, m.Sample(after(100)).Notices, 8)
	back := m.Sample(after(200))
	require.Len(t, back.Notices, 8)
	require.Contains(t, back.Notices[0], "gpu 0 is back after 100ms; 1 samples were missed")
	require.Equal(t, int64(30<<30), back.Samples[3].Peak)
	require.Equal(t, int64(1<<30), back.Samples[3].Used)
	require.Len(t, s.ShutdownCalls(), 1, "what was opened is closed")
	require.NoError(t, m.Close())
	require.Len(t, s.ShutdownCalls(), 2)
}
