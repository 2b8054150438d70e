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

var metrics = []metric{
	describe("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", func(s Sample) (float64, bool) { return float64(s.Used) / mib, s.Error == "" }),
	describe("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", func(s Sample) (float64, bool) { return float64(s.Total-s.Used) / mib, s.Error == "" }),
	describe("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", func(s Sample) (float64, bool) { return known(s.GPUPercent) }),
	describe("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", func(s Sample) (float64, bool) { return known(s.Celsius) }),
	describe("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", func(s Sample) (float64, bool) { return known(s.Watts) }),
	describe("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", func(s Sample) (float64, bool) { return known(s.SMMHz) }),
	describe("vprof_memory_peak_bytes", "Most memory in use that a sample saw since the monitor began.", func(s Sample) (float64, bool) { return float64(s.Peak), true }),
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

// Describe implements [prometheus.Collector].
func (e *Exporter) Describe(out chan<- *prometheus.Desc) {
	for _, m := range metrics {
		out <- m.desc
	}
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
	}
}
