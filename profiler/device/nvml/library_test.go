//go:build linux && cgo

package nvml

import (
	"testing"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/stretchr/testify/require"
)

const (
	mib     = 1 << 20
	noValue = ^uint64(0)
)

// answer returns a function of a mock that always says the same.
func answer[T any](v T, code api.Return) func() (T, api.Return) {
	return func() (T, api.Return) { return v, code }
}

// busy returns a GPU at work, with everything told.
func busy() *mock.Device {
	return &mock.Device{
		GetNameFunc:        answer("NVIDIA Test", api.SUCCESS),
		GetUUIDFunc:        answer("GPU-1", api.SUCCESS),
		GetComputeModeFunc: answer(api.COMPUTEMODE_DEFAULT, api.SUCCESS),
		GetMigModeFunc:     func() (int, int, api.Return) { return 0, 0, api.ERROR_NOT_SUPPORTED },
		GetMemoryInfo_v2Func: answer(api.Memory_v2{
			Total: 100 * mib, Reserved: 10 * mib, Used: 60 * mib,
			Free: 30 * mib,
		}, api.SUCCESS),
		GetComputeRunningProcessesFunc: answer([]api.ProcessInfo{
			{Pid: 9, UsedGpuMemory: 40 * mib},
			{Pid: 7, UsedGpuMemory: 20 * mib},
		}, api.SUCCESS),
		GetMPSComputeRunningProcessesFunc: answer([]api.ProcessInfo{{Pid: 8, UsedGpuMemory: 5 * mib}}, api.SUCCESS),
		GetGraphicsRunningProcessesFunc: answer([]api.ProcessInfo{
			{Pid: 9, UsedGpuMemory: 40 * mib},
			{Pid: 3, UsedGpuMemory: noValue},
		}, api.SUCCESS),
		GetUtilizationRatesFunc: answer(api.Utilization{Gpu: 90, Memory: 50}, api.SUCCESS),
		GetClockInfoFunc: func(t api.ClockType) (uint32, api.Return) {
			return 1000 + uint32(t), api.SUCCESS
		},
		GetTemperatureFunc: func(api.TemperatureSensors) (uint32, api.Return) {
			return 83, api.SUCCESS
		},
		GetPowerUsageFunc:         answer(uint32(299_000), api.SUCCESS),
		GetEnforcedPowerLimitFunc: answer(uint32(300_000), api.SUCCESS),
		GetCurrentClocksThrottleReasonsFunc: answer(
			uint64(api.ClocksThrottleReasonSwPowerCap|api.ClocksThrottleReasonHwThermalSlowdown), api.SUCCESS),
	}
}

// machine returns one with the given GPUs.
func machine(gpus ...*mock.Device) *mock.Interface {
	return &mock.Interface{
		InitFunc:                   func() api.Return { return api.SUCCESS },
		ShutdownFunc:               func() api.Return { return api.SUCCESS },
		SystemGetDriverVersionFunc: answer("580.65.06", api.SUCCESS),
		SystemGetNVMLVersionFunc:   answer("13.580.65.06", api.SUCCESS),
		SystemGetProcessNameFunc: func(pid int) (string, api.Return) {
			if pid == 3 {
				return "", api.ERROR_NO_PERMISSION
			}
			return "/opt/bin/python3", api.SUCCESS
		},
		DeviceGetCountFunc: answer(len(gpus), api.SUCCESS),
		DeviceGetHandleByIndexFunc: func(i int) (api.Device, api.Return) {
			return gpus[i], api.SUCCESS
		},
		DeviceGetHandleByUUIDFunc: func(uuid string) (api.Device, api.Return) {
			for _, b := range gpus {
				if id, _ := b.GetUUID(); id == uuid {
					return b, api.SUCCESS
				}
			}
			return nil, api.ERROR_NOT_FOUND
		},
	}
}

func only(t *testing.T, d *mock.Device) *GPU {
	l, err := NewLibrary(machine(d))
	require.NoError(t, err)
	gpus, err := l.GPUs()
	require.NoError(t, err)
	require.Len(t, gpus, 1)
	return gpus[0]
}

func ptr(n int) *int { return &n }

func TestAReadingHasEverythingThatIsTold(t *testing.T) {
	r, err := only(t, busy()).Read()
	require.NoError(t, err)
	require.Equal(t, Reading{
		Memory: Memory{Total: 100 * mib, Reserved: 10 * mib, Used: 60 * mib},
		// 9 computes and draws, and is listed once; 3 is somebody else's, 8 a client of an MPS server.
		Processes: []Process{
			{3, "", -1, false},
			{7, "python3", 20 * mib, true},
			{8, "python3", 5 * mib, true},
			{9, "python3", 40 * mib, true},
		},
		GPUPercent: ptr(90), MemoryPercent: ptr(50),
		SMMHz: ptr(1001), Celsius: ptr(83),
		Milliwatts: ptr(299_000), LimitMilliwatts: ptr(300_000),
		Slowdowns: []Slowdown{PowerCap, HardwareHeat},
	}, r)
}

// What a GPU does not have is nil and no failure; memory comes from the call that older drivers have.
func TestWhatIsNotToldIsNil(t *testing.T) {
	for _, code := range []api.Return{api.ERROR_NOT_SUPPORTED, api.ERROR_NO_PERMISSION, api.ERROR_FUNCTION_NOT_FOUND} {
		d := busy()
		d.GetComputeModeFunc = answer(api.COMPUTEMODE_DEFAULT, code)
		d.GetMemoryInfo_v2Func = answer(api.Memory_v2{}, code)
		d.GetMemoryInfoFunc = answer(api.Memory{Total: 100 * mib, Used: 70 * mib, Free: 30 * mib}, api.SUCCESS)
		d.GetComputeRunningProcessesFunc = answer[[]api.ProcessInfo](nil, code)
		d.GetGraphicsRunningProcessesFunc = d.GetComputeRunningProcessesFunc
		d.GetMPSComputeRunningProcessesFunc = d.GetComputeRunningProcessesFunc
		d.GetUtilizationRatesFunc = answer(api.Utilization{}, code)
		d.GetClockInfoFunc = func(api.ClockType) (uint32, api.Return) { return 0, code }
		d.GetTemperatureFunc = func(api.TemperatureSensors) (uint32, api.Return) { return 0, code }
		d.GetPowerUsageFunc = answer(uint32(0), code)
		d.GetEnforcedPowerLimitFunc = answer(uint32(0), code)
		d.GetCurrentClocksThrottleReasonsFunc = answer(uint64(0), code)
		r, err := only(t, d).Read()
		require.NoError(t, err)
		require.Equal(t, Reading{
			Memory: Memory{Total: 100 * mib, Used: 70 * mib},
		}, r)
	}
}

// GB10 has no memory of its own: NVML lists processes, and the memory is the host's.
func TestTheMemoryOfAUnifiedGPUIsTheHosts(t *testing.T) {
	d := busy()
	d.GetMemoryInfo_v2Func = answer(api.Memory_v2{}, api.ERROR_NOT_SUPPORTED)
	d.GetMemoryInfoFunc = answer(api.Memory{}, api.ERROR_NOT_SUPPORTED)
	m, err := only(t, d).Memory()
	require.NoError(t, err)
	require.True(t, m.Shared)
	require.Greater(t, m.Total, int64(64*mib))
	require.EqualValues(t, 65*mib, m.Used, "process 3 does not report its memory")
	require.EqualValues(t, 65*mib, m.UsedByProcesses(m.Total))
}

// A GPU without any memory and more GPUs than a machine holds are refused.
func TestCountsThatCannotBeAreRefused(t *testing.T) {
	d := busy()
	d.GetMemoryInfo_v2Func = answer(api.Memory_v2{}, api.SUCCESS)
	_, err := only(t, d).Memory()
	require.ErrorContains(t, err, "reports impossible memory: 0 bytes in use and 0 reserved of 0 in total; reinstall the NVIDIA driver")

	many := machine(d)
	many.DeviceGetCountFunc = answer(4_000_000_000, api.SUCCESS)
	l, err := NewLibrary(many)
	require.NoError(t, err)
	_, err = l.GPUs()
	require.EqualError(t, err, "NVML (nvmlDeviceGetCount) reports the impossible number of 4000000000 GPUs; reinstall the NVIDIA driver")
}

// A GPU that fell off the bus fails every call; each failure has the name of its call.
func TestALostGPUIsAnError(t *testing.T) {
	const lost = api.ERROR_GPU_IS_LOST
	number := answer(uint32(0), lost)
	processes := answer[[]api.ProcessInfo](nil, lost)
	for call, breakIt := range map[string]func(*mock.Device){
		"nvmlDeviceGetMemoryInfo_v2": func(d *mock.Device) {
			d.GetMemoryInfo_v2Func = answer(api.Memory_v2{}, lost)
		},
		"nvmlDeviceGetComputeRunningProcesses": func(d *mock.Device) {
			d.GetComputeRunningProcessesFunc = processes
		},
		"nvmlDeviceGetMPSComputeRunningProcesses": func(d *mock.Device) {
			d.GetMPSComputeRunningProcessesFunc = processes
		},
		"nvmlDeviceGetGraphicsRunningProcesses": func(d *mock.Device) { d.GetGraphicsRunningProcessesFunc = processes },
		"nvmlDeviceGetUtilizationRates": func(d *mock.Device) {
			d.GetUtilizationRatesFunc = answer(api.Utilization{}, lost)
		},
		"nvmlDeviceGetClockInfo": func(d *mock.Device) {
			d.GetClockInfoFunc = func(api.ClockType) (uint32, api.Return) { return 0, lost }
		},
		"nvmlDeviceGetTemperature": func(d *mock.Device) {
			d.GetTemperatureFunc = func(api.TemperatureSensors) (uint32, api.Return) { return 0, lost }
		},
		"nvmlDeviceGetPowerUsage":         func(d *mock.Device) { d.GetPowerUsageFunc = number },
		"nvmlDeviceGetEnforcedPowerLimit": func(d *mock.Device) { d.GetEnforcedPowerLimitFunc = number },
		"nvmlDeviceGetCurrentClocksThrottleReasons": func(d *mock.Device) {
			d.GetCurrentClocksThrottleReasonsFunc = answer(uint64(0), lost)
		},
	} {
		d := busy()
		breakIt(d)
		_, err := only(t, d).Read()
		require.EqualError(t, err, call+": "+lost.Error())
	}
	for call, breakIt := range map[string]func(*mock.Device){
		"nvmlDeviceGetComputeMode": func(d *mock.Device) {
			d.GetComputeModeFunc = answer(api.COMPUTEMODE_DEFAULT, lost)
		},
		"nvmlDeviceGetMigMode": func(d *mock.Device) {
			d.GetMigModeFunc = func() (int, int, api.Return) { return 0, 0, lost }
		},
	} {
		d := busy()
		breakIt(d)
		l, err := NewLibrary(machine(d))
		require.NoError(t, err)
		_, err = l.GPUs()
		require.EqualError(t, err, "GPU 0: "+call+": "+lost.Error())
	}
	m := machine()
	m.DeviceGetCountFunc = answer(0, lost)
	l, err := NewLibrary(m)
	require.NoError(t, err)
	_, err = l.GPUs()
	require.EqualError(t, err, "nvmlDeviceGetCount: "+lost.Error())
	d := busy()
	d.GetNameFunc = answer("", lost)
	l, err = NewLibrary(machine(d))
	require.NoError(t, err)
	_, err = l.GPUs()
	require.EqualError(t, err, "GPU 0: nvmlDeviceGetName: "+lost.Error())
}

// One that fell off the bus does not take the others with it.
func TestOtherGPUsAreListedBesideALostOne(t *testing.T) {
	lost := busy()
	lost.GetUUIDFunc = answer("", api.ERROR_GPU_IS_LOST)
	l, err := NewLibrary(machine(busy(), lost, busy()))
	require.NoError(t, err)
	gpus, err := l.GPUs()
	require.EqualError(t, err, "GPU 1: nvmlDeviceGetUUID: "+api.ERROR_GPU_IS_LOST.Error())
	require.Len(t, gpus, 2)
	require.Equal(t, 2, gpus[1].Index)
}

// A process may call itself anything; what is shown is text.
func TestProcessNamesArePrintable(t *testing.T) {
	for name, want := range map[string]string{
		"/opt/\xff\xfepy\xc3":      "\uFFFD\uFFFDpy\uFFFD",
		"\x1b[2Jpython\n":          "\uFFFD[2Jpython\uFFFD",
		"/usr/bin/обучение модели": "обучение модели",
	} {
		m := machine(busy())
		m.SystemGetProcessNameFunc = func(int) (string, api.Return) { return name, api.SUCCESS }
		l, err := NewLibrary(m)
		require.NoError(t, err)
		processes, err := must(l.GPUs())[0].Processes()
		require.NoError(t, err)
		require.Equal(t, want, processes[0].Name)
	}
}

// Asking for a name is slow, and so done once while the process is there.
func TestANameIsAskedForOnce(t *testing.T) {
	d := busy()
	m := machine(d)
	l, err := NewLibrary(m)
	require.NoError(t, err)
	b := must(l.GPUs())[0]
	for range 3 {
		must(b.Processes())
	}
	require.Len(t, m.SystemGetProcessNameCalls(), 4, "of four processes")
	d.GetComputeRunningProcessesFunc = answer[[]api.ProcessInfo](nil, api.SUCCESS)
	require.Len(t, must(b.Processes()), 3)
	d.GetComputeRunningProcessesFunc = answer([]api.ProcessInfo{{Pid: 7, UsedGpuMemory: mib}}, api.SUCCESS)
	require.Len(t, must(b.Processes()), 4)
	require.Len(t, m.SystemGetProcessNameCalls(), 5, "7 left, and came again")
}

func TestNoDriverIsAnOrdinaryAnswer(t *testing.T) {
	for _, code := range []api.Return{api.ERROR_LIBRARY_NOT_FOUND, api.ERROR_DRIVER_NOT_LOADED} {
		m := machine()
		m.InitFunc = func() api.Return { return code }
		m.ShutdownFunc = func() api.Return { t.Fatal("a shutdown after a failed init ends the process"); return 0 }
		_, err := NewLibrary(m)
		require.ErrorIs(t, err, ErrNoDriver)
	}
	m := machine()
	m.InitFunc = func() api.Return { return api.ERROR_NO_PERMISSION }
	_, err := NewLibrary(m)
	require.ErrorContains(t, err, "nvmlInit: ")
	require.NotErrorIs(t, err, ErrNoDriver)
}

func TestAMissingLibraryIsNoDriver(t *testing.T) {
	t.Setenv("VPROF_LIBNVML", t.TempDir()+"/libnvidia-ml.so.1")
	_, err := Open()
	require.ErrorIs(t, err, ErrNoDriver)
	require.ErrorContains(t, err, "libnvidia-ml.so.1")
}

func TestComputeModes(t *testing.T) {
	for mode, want := range map[api.ComputeMode]Mode{
		api.COMPUTEMODE_DEFAULT: DefaultMode, api.COMPUTEMODE_PROHIBITED: ProhibitedMode,
		api.COMPUTEMODE_EXCLUSIVE_PROCESS: ExclusiveMode,
	} {
		d := busy()
		d.GetComputeModeFunc = answer(mode, api.SUCCESS)
		require.Equal(t, want, only(t, d).Mode)
	}
}

// Every bit of the mask has a name of its own.
func TestSlowdownsHaveNames(t *testing.T) {
	for mask, want := range map[uint64]Slowdown{
		api.ClocksThrottleReasonGpuIdle: Idle, api.ClocksThrottleReasonApplicationsClocksSetting: Setting,
		api.ClocksThrottleReasonSwPowerCap: PowerCap, api.ClocksThrottleReasonHwSlowdown: Hardware,
		api.ClocksThrottleReasonSyncBoost:            SlowdownSyncBoost,
		api.ClocksThrottleReasonSwThermalSlowdown:    SlowdownThermal,
		api.ClocksThrottleReasonHwThermalSlowdown:    HardwareHeat,
		api.ClocksThrottleReasonHwPowerBrakeSlowdown: SlowdownPowerBrake,
		api.ClocksThrottleReasonDisplayClockSetting:  Display,
	} {
		require.Equal(t, []Slowdown{want}, slowdownsOf(mask))
	}
	require.Nil(t, slowdownsOf(api.ClocksThrottleReasonNone))
	require.Len(t, slowdownsOf(api.ClocksThrottleReasonAll), len(slowdowns))
}

// A GPU with two slices in places 0 and 2 of 3.
func TestSlicesOfAGPU(t *testing.T) {
	d := busy()
	require.Empty(t, must(only(t, d).Slices()))
	d.GetMigModeFunc = func() (int, int, api.Return) {
		return api.DEVICE_MIG_ENABLE, api.DEVICE_MIG_ENABLE, api.SUCCESS
	}
	d.GetMaxMigDeviceCountFunc = answer(3, api.SUCCESS)
	d.GetMigDeviceHandleByIndexFunc = func(i int) (api.Device, api.Return) {
		if i == 1 {
			return nil, api.ERROR_NOT_FOUND
		}
		slice := busy()
		slice.GetUUIDFunc = answer("MIG-"+string(rune('0'+i)), api.SUCCESS)
		slice.GetMemoryInfo_v2Func = answer(api.Memory_v2{Total: 20 * mib, Used: uint64(i) * mib}, api.SUCCESS)
		// A slice has no figures of its own but these.
		slice.GetUtilizationRatesFunc = answer(api.Utilization{}, api.ERROR_NOT_SUPPORTED)
		slice.GetTemperatureFunc = func(api.TemperatureSensors) (uint32, api.Return) {
			return 0, api.ERROR_NOT_SUPPORTED
		}
		return slice, api.SUCCESS
	}
	b := only(t, d)
	require.True(t, b.MIG)
	slices, err := b.Slices()
	require.NoError(t, err)
	require.Len(t, slices, 2)
	require.Equal(t, "MIG-2", slices[1].UUID)
	r, err := slices[1].Read()
	require.NoError(t, err)
	require.Equal(t, Memory{Total: 20 * mib, Used: 2 * mib}, r.Memory)
	require.Len(t, r.Processes, 4)
	require.Nil(t, r.GPUPercent)
	require.Nil(t, r.Celsius)

	d.GetMigDeviceHandleByIndexFunc = func(int) (api.Device, api.Return) { return nil, api.ERROR_GPU_IS_LOST }
	_, err = b.Slices()
	require.ErrorContains(t, err, "nvmlDeviceGetMigDeviceHandleByIndex: ")
	d.GetMaxMigDeviceCountFunc = answer(0, api.ERROR_UNKNOWN)
	_, err = b.Slices()
	require.ErrorContains(t, err, "nvmlDeviceGetMaxMigDeviceCount: ")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestGPUsAreFoundByUUID(t *testing.T) {
	l, err := NewLibrary(machine(busy()))
	require.NoError(t, err)
	b, err := l.Find("GPU-1")
	require.NoError(t, err)
	require.Equal(t, "NVIDIA Test", b.Name)
	_, err = l.Find("GPU-2")
	require.ErrorContains(t, err, "nvmlDeviceGetHandleByUUID")
}

// CUDA shows what CUDA_VISIBLE_DEVICES lists, up to what there is not.
func TestVisibleGPUs(t *testing.T) {
	gpus := []*mock.Device{busy(), busy(), busy()}
	for i, b := range gpus {
		b.GetUUIDFunc = answer("GPU-"+string(rune('a'+i)), api.SUCCESS)
	}
	l, err := NewLibrary(machine(gpus...))
	require.NoError(t, err)
	for list, want := range map[string][]int{
		"": {0, 1, 2}, "1": {1}, "2,0": {2, 0}, "GPU-b": {1}, "GPU-": {0}, "0, 2": {0, 2}, "1,7,0": {1}, "-1": nil,
		"NoDevFiles": nil, "1,,2": {1},
	} {
		shown, err := l.Visible(list)
		require.NoError(t, err)
		var got []int
		for _, b := range shown {
			got = append(got, b.Index)
		}
		require.Equal(t, want, got, list)
	}
}

func TestVersions(t *testing.T) {
	l, err := NewLibrary(machine())
	require.NoError(t, err)
	v, err := l.Versions()
	require.NoError(t, err)
	require.Equal(t, Versions{"580.65.06", "13.580.65.06"}, v)
	require.NoError(t, l.Close())
}

// go-nvml's own model of a DGX A100, with what it leaves out filled in.
func TestAServerOfEightGPUs(t *testing.T) {
	dgx := dgxa100.New()
	l, err := NewLibrary(dgx)
	require.NoError(t, err)
	for _, d := range dgx.Devices {
		device := &d.(*server.Device).Device
		full := busy()
		device.GetComputeModeFunc = full.GetComputeModeFunc
		device.GetMemoryInfo_v2Func = answer(api.Memory_v2{}, api.ERROR_FUNCTION_NOT_FOUND)
	}
	gpus, err := l.GPUs()
	require.NoError(t, err)
	require.Len(t, gpus, 8)
	seen := map[string]bool{}
	for i, b := range gpus {
		require.Equal(t, i, b.Index)
		require.False(t, seen[b.UUID])
		seen[b.UUID] = true
		m, err := b.Memory()
		require.NoError(t, err)
		require.Equal(t, int64(40<<30), m.Total)
	}
}
