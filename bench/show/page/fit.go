package page

import (
	_ "embed" // the page of a fit
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
)

// Fit is a page of a search for the largest batch: the verdict, the memory of the recommendations on all GPUs, and the
// ranked configurations with the savings and costs of each option.
type Fit struct{ *report.Fit }

//go:embed fit.html.tmpl
var fitMarkup string

// fitTemplateData is the data of the template fit.html.tmpl.
type fitTemplateData struct {
	*report.Fit
	frame
	// Verdict is the recommendation, line by line; Good reports whether there is one.
	Verdict []string
	Good    bool
	Needs   breakdown
	Legend  []part
	Tables  []report.Sheet
}

// Write writes the page.
func (f *Fit) Write(w io.Writer) error {
	v := fitTemplateData{Fit: f.Fit, frame: newFrame("What fits", false), Tables: f.Sheets()}
	v.Good = slices.ContainsFunc(f.Choices, func(c report.Choice) bool { return c.Recommended })
	for _, line := range f.Answer() {
		v.Verdict = append(v.Verdict, strings.TrimSpace(strings.TrimPrefix(line, "▶")))
	}
	if len(v.Tables) > 0 && v.Tables[0].Title != "" {
		v.Title = v.Tables[0].Title
	}
	v.Needs = f.needs()
	v.Legend = legend([]breakdown{v.Needs})
	return execute(w, fitMarkup, v)
}

// needs returns a bar for each recommended configuration, on an axis that ends at the largest GPU's memory.
func (f *Fit) needs() breakdown {
	b := breakdown{Unit: "configuration"}
	var top int64
	for _, c := range f.Choices {
		if !c.Recommended || c.Estimate == nil {
			continue
		}
		gpu := f.Devices[slices.IndexFunc(f.Devices, func(d report.Device) bool { return d.Name == c.Device })]
		top = max(top, gpu.Memory)
		name := fmt.Sprintf("%s, stage %s, batch %d", gpu.GPU, c.Case.Stage, c.Batch)
		b.Rows = append(b.Rows, newBar(name, c.Estimate.Components))
	}
	b.scale(top)
	return b
}
