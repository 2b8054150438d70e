//go:build linux && cgo

package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	api "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/vprof/vprof/internal/nvmllib"
)

// A CallError reports that a call of NVML failed.
type CallError struct {
	Call string
	Code api.Return
}

func (e *CallError) Error() string { return e.Call + ": " + e.Code.Error() }

// Is reports whether target is [ErrNoDriver] and the call failed because the driver is missing or not loaded.
func (e *CallError) Is(target error) bool {
	return target == ErrNoDriver && (e.Code == api.ERROR_LIBRARY_NOT_FOUND || e.Code == api.ERROR_DRIVER_NOT_LOADED)
}

func check(call string, code api.Return) error {
	if code == api.SUCCESS {
		return nil
	}
	return &CallError{call, code}
}

// isUnsupported reports whether a call failed only because this GPU, driver or user cannot read the value. That
// includes an invalid argument, which NVML returns for values that a MIG slice does not have.
func isUnsupported(code api.Return) bool {
	switch code {
	case api.ERROR_NOT_SUPPORTED, api.ERROR_NO_PERMISSION, api.ERROR_FUNCTION_NOT_FOUND, api.ERROR_NOT_FOUND,
		api.ERROR_NO_DATA, api.ERROR_ARGUMENT_VERSION_MISMATCH, api.ERROR_DEPRECATED, api.ERROR_INVALID_ARGUMENT:
		return true
	}
	return false
}

// A Library is the initialized NVML.
type Library struct {
	api api.Interface
}

// Open loads and initializes NVML. Close shuts it down.
func Open() (*Library, error) {
	if err := nvmllib.Load(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDriver, err)
	}
	return NewLibrary(api.New(api.WithLibraryPath(nvmllib.Path())))
}

// NewLibrary initializes the given implementation of NVML, such as a test's.
func NewLibrary(a api.Interface) (*Library, error) {
	// After a failed nvmlInit no function may be called, not even nvmlShutdown.
	if err := check("nvmlInit", a.Init()); err != nil {
		return nil, err
	}
	return &Library{a}, nil
}

// Close shuts NVML down.
func (l *Library) Close() error { return check("nvmlShutdown", l.api.Shutdown()) }

// Versions returns the installed versions of the driver and its libraries.
func (l *Library) Versions() (Versions, error) {
	driver, code := l.api.SystemGetDriverVersion()
	if err := check("nvmlSystemGetDriverVersion", code); err != nil {
		return Versions{}, err
	}
	library, code := l.api.SystemGetNVMLVersion()
	if err := check("nvmlSystemGetNVMLVersion", code); err != nil {
		return Versions{}, err
	}
	return Versions{driver, library}, nil
}

// GPUs returns the GPUs of this machine in NVML's order, by bus, which may differ from CUDA's. With an error, it also
// returns the GPUs that NVML could read: one that fell off the bus does not hide the others.
func (l *Library) GPUs() ([]*GPU, error) {
	n, code := l.api.DeviceGetCount()
	if err := check("nvmlDeviceGetCount", code); err != nil {
		return nil, err
	}
	if n > maxGPUs {
		return nil, fmt.Errorf("NVML (nvmlDeviceGetCount) reports the impossible number of %d GPUs; reinstall the "+
			"NVIDIA driver", n)
	}
	var gpus []*GPU
	var failed error
	for i := range n {
		b, err := l.gpuAt(i)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("GPU %d: %w", i, err))
			continue
		}
		b.Index = i
		gpus = append(gpus, b)
	}
	return gpus, failed
}

// Visible returns the GPUs, or MIG slices, that CUDA makes visible for a CUDA_VISIBLE_DEVICES, in its order. Numbers
// are in NVML's order, which is CUDA's if CUDA_DEVICE_ORDER is PCI_BUS_ID or all GPUs are alike. UUIDs select by
// prefix. The list ends at the first missing GPU, as in CUDA. An empty value makes all visible.
func (l *Library) Visible(list string) ([]*GPU, error) {
	gpus, err := l.GPUs()
	if list == "" || err != nil {
		return gpus, err
	}
	var shown []*GPU
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		b, err := l.visible(gpus, word)
		if err != nil {
			return nil, err
		}
		if b == nil {
			break
		}
		shown = append(shown, b)
	}
	return shown, nil
}

// visible returns the GPU, or the MIG slice, with a number or a prefix of a UUID; nil if there is none.
func (l *Library) visible(gpus []*GPU, word string) (*GPU, error) {
	if i, err := strconv.Atoi(word); err == nil {
		at := slices.IndexFunc(gpus, func(b *GPU) bool { return b.Index == i })
		if at < 0 {
			return nil, nil
		}
		return gpus[at], nil
	}
	if word == "" {
		return nil, nil
	}
	for _, b := range gpus {
		slices, err := b.Slices()
		if err != nil {
			return nil, err
		}
		for _, one := range append(slices, b) {
			if strings.HasPrefix(one.UUID, word) {
				return one, nil
			}
		}
	}
	return nil, nil
}

func (l *Library) gpuAt(i int) (*GPU, error) {
	d, code := l.api.DeviceGetHandleByIndex(i)
	if err := check("nvmlDeviceGetHandleByIndex", code); err != nil {
		return nil, err
	}
	return l.gpu(d)
}

// Find returns the GPU, or the MIG slice, with a UUID: "GPU-..." or "MIG-...".
func (l *Library) Find(uuid string) (*GPU, error) {
	d, code := l.api.DeviceGetHandleByUUID(uuid)
	if err := check("nvmlDeviceGetHandleByUUID", code); err != nil {
		return nil, err
	}
	b, err := l.gpu(d)
	if err != nil {
		return nil, fmt.Errorf("GPU %s: %w", uuid, err)
	}
	return b, nil
}

func (l *Library) gpu(d api.Device) (*GPU, error) {
	b := &GPU{Index: -1, library: l, device: d}
	var code api.Return
	if b.Name, code = d.GetName(); code != api.SUCCESS {
		return nil, check("nvmlDeviceGetName", code)
	}
	if b.UUID, code = d.GetUUID(); code != api.SUCCESS {
		return nil, check("nvmlDeviceGetUUID", code)
	}
	switch mode, code := d.GetComputeMode(); {
	case code != api.SUCCESS && !isUnsupported(code):
		return nil, check("nvmlDeviceGetComputeMode", code)
	case code == api.SUCCESS && mode == api.COMPUTEMODE_PROHIBITED:
		b.Mode = ProhibitedMode
	case code == api.SUCCESS && mode == api.COMPUTEMODE_EXCLUSIVE_PROCESS:
		b.Mode = ExclusiveMode
	default:
		b.Mode = DefaultMode
	}
	switch current, _, code := d.GetMigMode(); {
	case code == api.SUCCESS:
		b.MIG = current == api.DEVICE_MIG_ENABLE
	case !isUnsupported(code):
		return nil, check("nvmlDeviceGetMigMode", code)
	}
	return b, nil
}

// A GPU is a GPU, or a MIG slice of one, in NVML. It is not safe for concurrent use.
type GPU struct {
	// Index is NVML's index of the GPU; -1 if it was found by UUID.
	Index int
	// Name is the product's name. UUID is unique.
	Name, UUID string
	Mode       Mode
	// MIG reports whether the GPU is divided into MIG slices, which CUDA then uses in its place.
	MIG bool

	library *Library
	device  api.Device
	// names caches the names of the processes in the last list, since reading a name takes longer than everything else.
	names map[int]string
}

// Slices returns the MIG slices of the GPU; none if it is not divided.
func (b *GPU) Slices() ([]*GPU, error) {
	if !b.MIG {
		return nil, nil
	}
	most, code := b.device.GetMaxMigDeviceCount()
	if err := check("nvmlDeviceGetMaxMigDeviceCount", code); err != nil {
		return nil, err
	}
	var slices []*GPU
	for i := range most {
		d, code := b.device.GetMigDeviceHandleByIndex(i)
		if code == api.ERROR_NOT_FOUND || code == api.ERROR_INVALID_ARGUMENT {
			continue // no slice there
		}
		if err := check("nvmlDeviceGetMigDeviceHandleByIndex", code); err != nil {
			return nil, err
		}
		s, err := b.library.gpu(d)
		if err != nil {
			return nil, err
		}
		slices = append(slices, s)
	}
	return slices, nil
}

// Memory reads the total and the used memory of the GPU.
func (b *GPU) Memory() (Memory, error) {
	m2, code := b.device.GetMemoryInfo_v2()
	if code == api.SUCCESS {
		return checkMemory("nvmlDeviceGetMemoryInfo_v2", m2.Total, m2.Reserved, m2.Used)
	}
	if !isUnsupported(code) {
		return Memory{}, check("nvmlDeviceGetMemoryInfo_v2", code)
	}
	m, code := b.device.GetMemoryInfo()
	if code == api.ERROR_NOT_SUPPORTED {
		return b.sharedMemory()
	}
	if err := check("nvmlDeviceGetMemoryInfo", code); err != nil {
		return Memory{}, err
	}
	return checkMemory("nvmlDeviceGetMemoryInfo", m.Total, 0, m.Used)
}

// sharedMemory returns the memory of a GPU that uses the host's (such as GB10): its size, and its processes' bytes.
func (b *GPU) sharedMemory() (Memory, error) {
	var host syscall.Sysinfo_t
	processes, err := b.Processes()
	if err = errors.Join(err, syscall.Sysinfo(&host)); err != nil {
		return Memory{}, err
	}
	m := Memory{Total: int64(host.Totalram) * int64(host.Unit), Shared: true}
	for _, p := range processes {
		m.Used += max(0, p.Used)
	}
	return m, nil
}

// checkMemory converts the memory that a call reported, in bytes. It is an error if no GPU can have such values.
func checkMemory(call string, total, reserved, used uint64) (Memory, error) {
	if total == 0 || total > maxBytes || reserved > total || used > total {
		return Memory{}, fmt.Errorf("%s reports impossible memory: %d bytes in use and %d reserved of %d in total; "+
			"reinstall the NVIDIA driver", call, used, reserved, total)
	}
	return Memory{Total: int64(total), Reserved: int64(reserved), Used: int64(used)}, nil
}

// maxBytes is more than the memory of any GPU. NVML also reports all ones for the unknown memory of a process.
const maxBytes = 1 << 44

// Processes returns the processes that use the GPU for computing, also through an MPS server, or for graphics.
func (b *GPU) Processes() ([]Process, error) {
	byPID, computes := map[uint32]uint64{}, map[uint32]bool{}
	for _, list := range []struct {
		call      string
		computing bool
		of        func() ([]api.ProcessInfo, api.Return)
	}{
		{"nvmlDeviceGetComputeRunningProcesses", true, b.device.GetComputeRunningProcesses},
		{"nvmlDeviceGetMPSComputeRunningProcesses", true, b.device.GetMPSComputeRunningProcesses},
		{"nvmlDeviceGetGraphicsRunningProcesses", false, b.device.GetGraphicsRunningProcesses},
	} {
		infos, code := list.of()
		if code != api.SUCCESS && !isUnsupported(code) {
			return nil, check(list.call, code)
		}
		for _, p := range infos {
			// A process that computes and draws is in both lists with the same number of bytes.
			byPID[p.Pid] = max(byPID[p.Pid], p.UsedGpuMemory)
			computes[p.Pid] = computes[p.Pid] || list.computing
		}
	}
	var processes []Process
	names := make(map[int]string, len(byPID))
	for pid, used := range byPID {
		p := Process{PID: int(pid), Used: int64(used), Computes: computes[pid]}
		if used > maxBytes {
			p.Used = -1
		}
		var known bool
		if p.Name, known = b.names[p.PID]; !known {
			p.Name = b.library.processName(p.PID)
		}
		names[p.PID] = p.Name
		processes = append(processes, p)
	}
	b.names = names
	slices.SortFunc(processes, func(p, q Process) int { return cmp.Compare(p.PID, q.PID) })
	return processes, nil
}

// processName returns the name of a process's program; empty if NVML does not report it.
func (l *Library) processName(pid int) string {
	name, code := l.api.SystemGetProcessName(pid)
	if code != api.SUCCESS || name == "" {
		return ""
	}
	return printable(path.Base(name))
}

// printable replaces bytes that are not printable text. A process can set any name, including invalid UTF-8 and
// terminal sequences.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, name)
}

// Read returns the state of the GPU. An error means that the GPU failed, for example because it fell off the bus. A
// value that the GPU does not report is no error.
func (b *GPU) Read() (Reading, error) {
	var r Reading
	var err error
	if r.Memory, err = b.Memory(); err != nil {
		return r, err
	}
	if r.Processes, err = b.Processes(); err != nil {
		return r, err
	}
	d, f := b.device, readingValues{}
	use, code := d.GetUtilizationRates()
	r.GPUPercent = f.add("nvmlDeviceGetUtilizationRates", use.Gpu, maxPercent, code)
	r.MemoryPercent = f.add("nvmlDeviceGetUtilizationRates", use.Memory, maxPercent, code)
	mhz, code := d.GetClockInfo(api.CLOCK_SM)
	r.SMMHz = f.add("nvmlDeviceGetClockInfo", mhz, maxMHz, code)
	celsius, code := d.GetTemperature(api.TEMPERATURE_GPU)
	r.Celsius = f.add("nvmlDeviceGetTemperature", celsius, maxCelsius, code)
	power, code := d.GetPowerUsage()
	r.Milliwatts = f.add("nvmlDeviceGetPowerUsage", power, maxMilliwatts, code)
	limit, code := d.GetEnforcedPowerLimit()
	r.LimitMilliwatts = f.add("nvmlDeviceGetEnforcedPowerLimit", limit, maxMilliwatts, code)
	mask, code := d.GetCurrentClocksThrottleReasons()
	if f.add("nvmlDeviceGetCurrentClocksThrottleReasons", 0, 0, code) != nil {
		r.Slowdowns = slowdownsOf(mask)
	}
	r.Impossible = f.impossible
	return r, f.err
}

// Clocks reads only the clocks of the GPU.
func (b *GPU) Clocks() (Clocks, error) {
	f := readingValues{}
	var c Clocks
	for _, one := range []struct {
		kind api.ClockType
		to   *int
	}{{api.CLOCK_SM, &c.SM}, {api.CLOCK_MEM, &c.Memory}} {
		mhz, code := b.device.GetClockInfo(one.kind)
		if v := f.add("nvmlDeviceGetClockInfo", mhz, maxMHz, code); v != nil {
			*one.to = *v
		}
	}
	mask, code := b.device.GetCurrentClocksThrottleReasons()
	if f.add("nvmlDeviceGetCurrentClocksThrottleReasons", 0, 0, code) != nil {
		c.Slowdowns = slowdownsOf(mask)
	}
	return c, f.err
}

// Larger values are not measurements: broken sensors and drivers report -1 or -5 as unsigned numbers.
const (
	maxPercent    = 100
	maxCelsius    = 200
	maxMHz        = 100_000
	maxMilliwatts = 10_000_000
	maxGPUs       = 1024
)

// readingValues collects the first failure of several calls, and the values that no GPU can have.
type readingValues struct {
	err        error
	impossible []string
}

// add returns the value that a call reported; nil if the GPU does not report it or the value is above most, which no
// GPU exceeds.
func (f *readingValues) add(call string, v, most uint32, code api.Return) *int {
	switch {
	case code == api.SUCCESS && v <= most:
		return new(int(v))
	case code == api.SUCCESS:
		f.impossible = append(f.impossible, fmt.Sprintf("%s reports %d", call, v))
	case !isUnsupported(code) && f.err == nil:
		f.err = check(call, code)
	}
	return nil
}
