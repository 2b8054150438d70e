package monitor

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Exporter gives the latest samples to Prometheus. Where the figure is that of
// NVIDIA's dcgm-exporter, so are name and labels; ours begin with vprof_.
type Exporter struct {
	mu      sync.Mutex
	samples []Sample
}

// Set replaces the samples.
func (e *Exporter) Set(samples []Sample) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.samples = samples
}

// metric is a figure of a sample; false if it is not known.
type metric struct {
	desc  *prometheus.Desc
	value func(Sample) (float64, bool)
}

func describe(name, help string, value func(Sample) (float64, bool)) metric {
	return metric{prometheus.NewDesc(name, help, []string{"gpu", "UUID", "modelName"}, nil), value}
}

func known[T int | float64](v *T) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return float64(*v), true
}

const mib = 1 << 20

// readable is a figure of memory, which every board tells that can be read.
func readable(of func(Sample) float64) func(Sample) (float64, bool) {
	return func(s Sample) (float64, bool) { return of(s), s.Error == "" }
}

var metrics = []metric{
	describe("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", readable(func(s Sample) float64 { return float64(s.Used) / mib })),
	describe("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", readable(func(s Sample) float64 { return float64(s.Total-s.Used) / mib })),
	describe("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved by the driver (in MiB).", readable(func(s Sample) float64 { return float64(s.Driver) / mib })),
	describe("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", func(s Sample) (float64, bool) { return known(s.GPUPercent) }),
	describe("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", func(s Sample) (float64, bool) { return known(s.MemPercent) }),
	describe("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", func(s Sample) (float64, bool) { return known(s.Celsius) }),
	describe("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", func(s Sample) (float64, bool) { return known(s.Watts) }),
	describe("DCGM_FI_DEV_POWER_MGMT_LIMIT", "Power limit (in W).", func(s Sample) (float64, bool) { return known(s.LimitWatts) }),
	describe("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", func(s Sample) (float64, bool) { return known(s.SMMHz) }),
	describe("vprof_memory_total_bytes", "Memory that programs can have.", readable(func(s Sample) float64 { return float64(s.Total) })),
	describe("vprof_memory_used_bytes", "Memory in use.", readable(func(s Sample) float64 { return float64(s.Used) })),
	describe("vprof_memory_peak_bytes", "Most memory of what is watched that a look saw since the monitor began.", func(s Sample) (float64, bool) { return float64(s.Peak), true }),
	describe("vprof_sampling_gap_seconds", "Longest time between two looks; a peak shorter than that may have escaped.", readable(func(s Sample) float64 { return s.Gap })),
	describe("vprof_watched_memory_bytes", "Memory of the watched processes.", func(s Sample) (float64, bool) {
		if s.Watched == nil || *s.Watched < 0 {
			return 0, false
		}
		return float64(*s.Watched), true
	}),
	describe("vprof_board_readable", "1 if the last reading of the board succeeded.", func(s Sample) (float64, bool) {
		if s.Error != "" {
			return 0, true
		}
		return 1, true
	}),
}

// processMemory is a figure of each process on a board.
var processMemory = prometheus.NewDesc("vprof_process_memory_bytes", "Memory of a process.",
	[]string{"gpu", "UUID", "modelName", "pid", "program"}, nil)

// Describe implements [prometheus.Collector].
func (e *Exporter) Describe(out chan<- *prometheus.Desc) {
	for _, m := range metrics {
		out <- m.desc
	}
	out <- processMemory
}

// Collect implements [prometheus.Collector].
func (e *Exporter) Collect(out chan<- prometheus.Metric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.samples {
		for _, m := range metrics {
			if v, ok := m.value(s); ok {
				out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, v, strconv.Itoa(s.GPU), s.UUID, s.Name)
			}
		}
		for _, p := range s.Processes {
			if p.Used >= 0 {
				out <- prometheus.MustNewConstMetric(processMemory, prometheus.GaugeValue, float64(p.Used),
					strconv.Itoa(s.GPU), s.UUID, s.Name, strconv.Itoa(p.PID), p.Name)
			}
		}
	}
}
