//go:build !js

package monitor

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Exporter serves the latest samples to Prometheus. Values that NVIDIA's dcgm-exporter also has keep its names and
// labels; the names of others begin with vprof_.
//
// It writes Prometheus's text without its client library, which starts collectors in each process, and without its
// encoder, which links protobuf.
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

// metric is a value of a sample under Prometheus's name. Its function returns false if the value is unknown.
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

// readable returns the function of a memory metric, which every readable GPU has.
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

// textFormat is Prometheus's text exposition format, which each of its releases reads.
const textFormat = "text/plain; version=0.0.4; charset=utf-8"

// ServeHTTP implements [http.Handler] in Prometheus's text format.
func (e *Exporter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", textFormat)
	_, _ = io.WriteString(w, e.exposition()) // it fails if the client has gone
}

// exposition formats the metrics that have values, each with its GPUs.
func (e *Exporter) exposition() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var text strings.Builder
	for _, m := range metrics {
		g := gauge{name: m.name, help: m.help}
		for _, s := range e.samples {
			if v, ok := m.value(s); ok {
				g.add(v, labels(s)...)
			}
		}
		text.WriteString(g.text.String())
	}
	g := gauge{name: "vprof_process_memory_bytes", help: "Memory of a process."}
	for _, s := range e.samples {
		for _, p := range s.Processes {
			if p.Used >= 0 {
				of := append(labels(s), label{"pid", strconv.Itoa(p.PID)}, label{"program", p.Name})
				g.add(float64(p.Used), of...)
			}
		}
	}
	text.WriteString(g.text.String())
	return text.String()
}

// gauge is the text of one metric; empty without values.
type gauge struct {
	name, help string
	text       strings.Builder
}

// add appends a value with labels. The first value follows the metric's header.
func (g *gauge) add(v float64, labels ...label) {
	if g.text.Len() == 0 {
		fmt.Fprintf(&g.text, "# HELP %s %s\n# TYPE %[1]s gauge\n", g.name, g.help)
	}
	separator := "{"
	g.text.WriteString(g.name)
	for _, l := range labels {
		value := escapeLabel.Replace(strings.ToValidUTF8(l.value, "\uFFFD"))
		g.text.WriteString(separator + l.name + `="` + value + `"`)
		separator = ","
	}
	g.text.WriteString("} " + strconv.FormatFloat(v, 'g', -1, 64) + "\n")
}

// label is a label of a value. The format requires UTF-8, and escapes three characters.
type label struct{ name, value string }

var escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// labels returns the labels of a GPU, by dcgm-exporter's names and sorted by them.
func labels(s Sample) []label {
	return []label{{"UUID", s.UUID}, {"gpu", strconv.Itoa(s.GPU)}, {"modelName", s.Name}}
}
