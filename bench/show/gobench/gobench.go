// Package gobench writes reports as Go writes its benchmarks, for benchstat to compare.
package gobench

import (
	"fmt"
	"io"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
)

// Write writes reports in the format of Go's benchmarks, which
// benchstat compares: a line for each count of each point. What benchstat
// calls a unit is the count: estimate-allocated-B, simulated-reserved-B and so
// on; a run that did not fit has no line.
func Write(w io.Writer, reports []*report.Report) error {
	var b strings.Builder
	units := map[string]bool{}
	unit := func(name string) {
		if !units[name] {
			units[name] = true
			fmt.Fprintf(&b, "Unit %s assume=exact better=lower\n", name)
		}
	}
	for _, r := range reports {
		for _, p := range r.Points {
			var values []string
			add := func(name string, bytes int64) {
				unit(name)
				values = append(values, fmt.Sprintf("%d %s", bytes, name))
			}
			if e := p.Estimate; e != nil {
				add("estimate-allocated-B", e.Allocated.Bytes)
				add("estimate-reserved-B", e.Reserved.Bytes)
				add("estimate-device-B", e.Device.Bytes)
			}
			if u := p.Run; u != nil && u.Fits {
				add(u.Kind()+"-allocated-B", u.Allocated)
				add(u.Kind()+"-reserved-B", u.Reserved)
				add(u.Kind()+"-device-B", u.Device)
			}
			if len(values) > 0 {
				fmt.Fprintf(&b, "BenchmarkStep/%s/device=%s/batch=%d 1 %s\n", caseName(r.Case), deviceName(r, p),
					p.Batch, strings.Join(values, " "))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// deviceName returns the device of a point as parts of a benchmark's name: of a measured
// one, the GPU and its machine, too.
func deviceName(r *report.Report, p report.Point) string {
	name := word(p.Device)
	d, ok := r.Find(p.Device)
	if !ok || !d.Driven() {
		return name
	}
	name += "/gpu=" + word(d.GPU)
	if d.Host != "" {
		name += "/host=" + word(d.Host)
	}
	return name
}

// caseName returns the case as parts of a benchmark's name: what is not usual, and the precision. Names do not say the
// release of PyTorch, so that benchstat compares releases.
func caseName(c report.Case) string {
	usual := models.Case{Accumulate: 1, Torch: c.Torch}
	parts := []string{"model=" + c.Model}
	for _, f := range models.Fields() {
		text := f.Text(c.Case)
		switch {
		case f.JSON == "settings":
			if f.Name == "" {
				parts = append(parts, c.Settings.Words()...)
			}
		case f.Name == "amp" || text != f.Text(usual):
			parts = append(parts, f.JSON+"="+text)
		}
	}
	for i, p := range parts {
		parts[i] = word(p)
	}
	return strings.Join(parts, "/")
}

// word has nothing that would end a benchmark's name or a part of it.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '/' {
			return '_'
		}
		return r
	}, s)
}
