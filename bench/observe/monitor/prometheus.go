//go:build !js

package monitor

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// Exporter serves the latest samples to Prometheus. Where the value is the same as in
// NVIDIA's dcgm-exporter, so are name and labels; ours begin with vprof_.
//
// It encodes Prometheus's types without its client library, whose collectors of
// what a program counts of itself cost each start of any verb a millisecond.
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

// metric is a value of a sample; false if it is not known.
type metric struct {
	name, help string
	value      func(Sample) (float64, bool)
}

func known[T int | float64](v *T) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return float64(*v), true
}

const mib = 1 << 20

// readable returns a memory value, which every readable GPU reports.
func readable(of func(Sample) float64) func(Sample) (float64, bool) {
	return func(s Sample) (float64, bool) { return of(s), s.Error == "" }
}

var metrics = []metric{
	{"DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", readable(func(s Sample) float64 {
		return float64(s.Used) / mib
	})},
	{"DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", readable(func(s Sample) float64 {
		return float64(s.Total-s.Used) / mib
	})},
	{"DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved by the driver (in MiB).", readable(func(s Sample) float64 {
		return float64(s.Driver) / mib
	})},
	{"DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", func(s Sample) (float64, bool) { return known(s.GPUPercent) }},
	{"DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", func(s Sample) (float64, bool) {
		return known(s.MemPercent)
	}},
	{"DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", func(s Sample) (float64, bool) { return known(s.Celsius) }},
	{"DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", func(s Sample) (float64, bool) { return known(s.Watts) }},
	{"DCGM_FI_DEV_POWER_MGMT_LIMIT", "Power limit (in W).", func(s Sample) (float64, bool) {
		return known(s.LimitWatts)
	}},
	{"DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", func(s Sample) (float64, bool) { return known(s.SMMHz) }},
	{"vprof_memory_total_bytes", "Memory that programs can have.", readable(func(s Sample) float64 {
		return float64(s.Total)
	})},
	{"vprof_memory_used_bytes", "Memory in use.", readable(func(s Sample) float64 { return float64(s.Used) })},
	{
		"vprof_memory_peak_bytes", "Highest memory use, of the watched processes if any, since the monitor started.",
		func(s Sample) (float64, bool) { return float64(s.Peak), true },
	},
	{
		"vprof_sampling_gap_seconds", "Longest time between two samples; shorter peaks may have been missed.",
		readable(func(s Sample) float64 { return s.Gap }),
	},
	{"vprof_watched_memory_bytes", "Memory of the watched processes.", func(s Sample) (float64, bool) {
		if s.Watched == nil || *s.Watched < 0 {
			return 0, false
		}
		return float64(*s.Watched), true
	}},
	{"vprof_board_readable", "1 if the last reading of the GPU succeeded.", func(s Sample) (float64, bool) {
		if s.Error != "" {
			return 0, true
		}
		return 1, true
	}},
}

// ServeHTTP implements [http.Handler] in the format that the client requests.
func (e *Exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...)
	w.Header().Set("Content-Type", string(format))
	to := expfmt.NewEncoder(w, format)
	for _, f := range e.families() {
		if err := to.Encode(f); err != nil {
			return // the client has gone
		}
	}
}

// families returns the metrics that have a value, each with its GPUs.
func (e *Exporter) families() []*dto.MetricFamily {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []*dto.MetricFamily
	for _, m := range metrics {
		f := gauge(m.name, m.help)
		for _, s := range e.samples {
			if v, ok := m.value(s); ok {
				add(f, v, labels(s))
			}
		}
		all = append(all, f)
	}
	f := gauge("vprof_process_memory_bytes", "Memory of a process.")
	for _, s := range e.samples {
		for _, p := range s.Processes {
			if p.Used >= 0 {
				add(f, float64(p.Used), append(labels(s), label("pid", strconv.Itoa(p.PID)), label("program", p.Name)))
			}
		}
	}
	all = append(all, f)
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 })
}

func gauge(name, help string) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum()}
}

func add(f *dto.MetricFamily, value float64, labels []*dto.LabelPair) {
	f.Metric = append(f.Metric, &dto.Metric{Label: labels, Gauge: &dto.Gauge{Value: &value}})
}

// labels returns the labels of a GPU, by dcgm-exporter's names and sorted by them.
func labels(s Sample) []*dto.LabelPair {
	return []*dto.LabelPair{label("UUID", s.UUID), label("gpu", strconv.Itoa(s.GPU)), label("modelName", s.Name)}
}

// label returns a label whose value is UTF-8, as Prometheus requires.
func label(name, value string) *dto.LabelPair {
	value = strings.ToValidUTF8(value, "\uFFFD")
	return &dto.LabelPair{Name: &name, Value: &value}
}
