package monitor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/profiler/device/nvml"
)

// Sample is one reading of a GPU. Amounts are in bytes; amounts that the driver does not report are absent.
type Sample struct {
	Time time.Time `json:"time"`
	GPU  int       `json:"gpu"`
	Name string    `json:"name"`
	UUID string    `json:"uuid"`
	// Total is the memory for programs in bytes, Driver the driver's part, Used the memory of contexts, and Highest the
	// maximum of Used since the previous sample.
	Total   int64 `json:"total_bytes"`
	Driver  int64 `json:"driver_reserved_bytes,omitempty"`
	Used    int64 `json:"used_bytes"`
	Highest int64 `json:"highest_bytes"`
	// Peak is the highest memory of the watched processes. Gap is the longest time between two readings, in seconds: a
	// shorter peak may be missing.
	Peak int64   `json:"peak_bytes"`
	Gap  float64 `json:"longest_gap_seconds"`
	// Watched is the memory of the watched processes in bytes; absent if all are watched, -1 if NVML reports none.
	Watched    *int64   `json:"watched_bytes,omitempty"`
	GPUPercent *int     `json:"gpu_percent,omitempty"`
	MemPercent *int     `json:"memory_percent,omitempty"`
	Celsius    *int     `json:"celsius,omitempty"`
	Watts      *float64 `json:"watts,omitempty"`
	LimitWatts *float64 `json:"limit_watts,omitempty"`
	SMMHz      *int     `json:"sm_mhz,omitempty"`
	// Slowdowns are the reasons why the clocks are low.
	Slowdowns []nvml.Slowdown `json:"slowdowns,omitempty"`
	Processes []Process       `json:"processes,omitempty"`
	// Error is the reason why the GPU could not be read; all other fields are then empty.
	Error string `json:"error,omitempty"`
}

// Process is a process that uses a GPU. Used is -1 if NVML does not report it. Peak is the highest sampled Used.
type Process struct {
	PID  int    `json:"pid"`
	Name string `json:"name,omitempty"`
	Used int64  `json:"used_bytes"`
	Peak int64  `json:"peak_bytes"`
}

// Title names a process in messages.
func (p Process) Title() string {
	return fmt.Sprintf("process %d", p.PID) + phrase.If(p.Name != "", " (%s)", p.Name)
}

// Share returns the share of the GPU's memory in use, from 0 to 1.
func (s Sample) Share() float64 { return float64(s.Used) / float64(max(1, s.Total)) }

// Line formats a sample as a line of text.
func (s Sample) Line() string {
	at := s.Time.Format("15:04:05.000")
	if s.Error != "" {
		return fmt.Sprintf("%s gpu %d  lost: %s", at, s.GPU, s.Error)
	}
	parts := phrase.List{fmt.Sprintf("%s gpu %d", at, s.GPU)}
	parts.Add("%s of %s (%.0f %%)", bytesize.Format(s.Used), bytesize.Format(s.Total), 100*s.Share())
	if w := s.Watched; w != nil {
		parts.If(*w < 0, "watched: NVML does not tell")
		parts.If(*w >= 0, "watched %s", bytesize.Format(max(0, *w)))
	}
	apart := FormatInterval(time.Duration(s.Gap * float64(time.Second)))
	parts.Add("peak %s%s", bytesize.Format(s.Peak), phrase.If(s.Gap > 0, " (samples up to %s apart)", apart))
	parts.AddTexts(phrase.IfKnown("busy %d %%", s.GPUPercent), phrase.IfKnown("%d °C", s.Celsius), s.Power())
	return strings.Join(parts, "  ")
}

// Power formats the GPU's power draw and its limit: "285 of 450 W". It is empty if NVML does not report them.
func (s Sample) Power() string {
	if s.Watts == nil {
		return ""
	}
	return fmt.Sprintf("%.0f%s W", *s.Watts, phrase.IfKnown(" of %.0f", s.LimitWatts))
}

// FormatInterval formats the time between samples, rounded up, in milliseconds, from ten seconds on in tenths of one.
func FormatInterval(d time.Duration) string {
	unit := time.Millisecond
	if d >= 10*time.Second {
		unit = 100 * time.Millisecond
	}
	return ((d + unit - 1) / unit * unit).String()
}

// Header returns the first row of a CSV file of samples.
func Header() []string {
	return []string{
		"time", "gpu", "name", "uuid", "total_bytes", "driver_reserved_bytes", "used_bytes", "highest_bytes",
		"watched_bytes", "peak_bytes", "longest_gap_seconds", "gpu_percent", "memory_percent", "celsius", "watts",
		"limit_watts", "sm_mhz", "error",
	}
}

// Record returns the sample's row. Unknown values are empty cells.
func (s Sample) Record() []string {
	bytes := func(n int64) string {
		if s.Error != "" {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	return []string{
		s.Time.Format(time.RFC3339Nano), strconv.Itoa(s.GPU), s.Name, s.UUID,
		bytes(s.Total), bytes(s.Driver), bytes(s.Used), bytes(s.Highest),
		phrase.IfKnown("%v", s.Watched), strconv.FormatInt(s.Peak, 10), strconv.FormatFloat(s.Gap, 'f', -1, 64),
		phrase.IfKnown("%v", s.GPUPercent), phrase.IfKnown("%v", s.MemPercent), phrase.IfKnown("%v", s.Celsius),
		phrase.IfKnown("%v", s.Watts), phrase.IfKnown("%v", s.LimitWatts), phrase.IfKnown("%v", s.SMMHz), s.Error,
	}
}

// GPUTotals summarizes all samples of a GPU.
type GPUTotals struct {
	GPU int
	// Samples counts readings, Failed failed ones. Gap is the longest time between two: a shorter peak may be missing.
	Samples, Failed int
	Gap             time.Duration
	// First is the used memory at the first reading, Peak its maximum, in bytes.
	First, Peak int64
	// WatchedPeak is the highest total memory of the watched processes, or of all processes if none are selected; zero
	// if NVML does not report them.
	WatchedPeak int64
}

func (s GPUTotals) watchedBytes(watched func(int) bool) int64 {
	if watched == nil {
		return s.Peak
	}
	return s.WatchedPeak
}

// Rise returns the increase of the used memory from the first reading to the peak, in bytes.
func (s GPUTotals) Rise() int64 { return s.Peak - s.First }

// Totals returns the totals of each GPU over all samples so far.
func (m *Monitor) Totals() []GPUTotals {
	return lists.Map(m.gpus, func(b *watchedGPU) GPUTotals { return b.totals })
}

// The pauses between attempts to open NVML again double from first to last, since opening NVML wakes sleeping GPUs.
const (
	firstRetryPause = time.Second
	maxRetryPause   = time.Minute
)

// markGPULost records that a GPU cannot be read.
func (m *Monitor) markGPULost(b *watchedGPU, now time.Time, why error) {
	b.totals.Failed++
	if !b.lostSince.IsZero() {
		return
	}
	b.lostSince = now
	m.addNotice("gpu %d is lost: %v", b.Index, why)
}

// markGPUFound records that a GPU is readable again, and for how long it was not.
func (m *Monitor) markGPUFound(b *watchedGPU, now time.Time) {
	if b.lostSince.IsZero() {
		return
	}
	m.addNotice("gpu %d is back after %s; %d samples were missed, and peaks in that time are not known", b.Index,
		FormatInterval(now.Sub(b.lostSince)), b.missed)
	b.lostSince, b.missed = time.Time{}, 0
	m.pause = 0
}

// reopenNVML opens NVML again if a GPU was lost at the last sample, since reloading the driver invalidates all handles.
// It matches GPUs by UUID.
func (m *Monitor) reopenNVML(now time.Time) {
	lost := false
	for _, b := range m.gpus {
		lost = lost || !b.lostSince.IsZero()
	}
	if !lost || m.source == nil || now.Before(m.retry) {
		return
	}
	m.pause = min(max(2*m.pause, firstRetryPause), maxRetryPause)
	m.retry = now.Add(m.pause)
	// Closing a broken session may fail.
	_ = m.Close()
	session, err := m.source()
	if err != nil {
		for _, b := range m.gpus {
			b.Reader = unreadableGPU{err}
		}
		return
	}
	m.session = session
	for _, b := range m.gpus {
		b.Reader = unreadableGPU{errors.Join(errors.New("there is no such GPU in NVML's list"), session.Missing)}
		for _, anew := range session.GPUs {
			if anew.UUID == b.UUID {
				b.Reader = anew.Reader
			}
		}
	}
}

// unreadableGPU replaces a GPU that NVML could not open. Every reading returns an error.
type unreadableGPU struct{ why error }

func (u unreadableGPU) Read() (nvml.Reading, error)        { return nvml.Reading{}, u.why }
func (u unreadableGPU) Memory() (nvml.Memory, error)       { return nvml.Memory{}, u.why }
func (u unreadableGPU) Processes() ([]nvml.Process, error) { return nil, u.why }
