// Package page writes results as one self-contained HTML file: it needs no network, fonts or other files. It computes
// no memory; it shows reports, a profile of one step, and reference records.
//
// Charts over batch sizes are SVG, which needs no scripts. The script page.js draws the timeline, the flame graph and
// the allocator map from data in the page.
package page

import (
	"crypto/sha256"
	_ "embed" // the pages and their parts
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/models"
)

// Page is the content of an HTML page about runs of one case.
type Page struct {
	// Runs are reports of one case, each with at least one point. They may be of several devices.
	Runs []*report.Report
	// Step is the profile of a step of the case; nil shows none, and NoStep is the reason.
	Step   *profile.Profile
	NoStep string
	// Ranks are plans of the ranks that differ, at one batch size; nil shows none.
	Ranks report.Ranks
	// References are measured peaks of the case under PyTorch.
	References []reference.Record
}

// ErrEmpty is the error of runs with nothing to show.
var ErrEmpty = errors.New("the files hold no result for any batch size; name results of vprof plan, sweep or run")

// A MixedError is the error of runs of several cases.
type MixedError struct{ One, Other report.Case }

func (e *MixedError) Error() string {
	return fmt.Sprintf("a page shows one case, or two side by side; these are more: %v, %v, ...", e.One, e.Other)
}

// Check returns [ErrEmpty] or a [*MixedError] if no page can show the runs.
func (p *Page) Check() error {
	points := 0
	for _, r := range p.Runs {
		points += len(r.Points)
		if !r.Case.Same(p.Runs[0].Case) {
			return &MixedError{p.Runs[0].Case, r.Case}
		}
	}
	if points == 0 {
		return ErrEmpty
	}
	return nil
}

//go:embed page.html.tmpl
var pageMarkup string

// Write writes the page. The error is from [Page.Check] or from w.
func (p *Page) Write(w io.Writer) error {
	if err := p.Check(); err != nil {
		return err
	}
	v, err := p.view(p.scales())
	if err != nil {
		return err
	}
	return execute(w, pageMarkup, v)
}

// pageTemplateData is the data of the template page.html.tmpl.
type pageTemplateData struct {
	frame
	Verdict string
	// Good and Bad select the color of the verdict.
	Good, Bad bool
	Case      report.Case
	Facts     []fact
	// Next is advice for the user, Command a command that follows it.
	Next    []string
	Command string

	Peaks      []peakChart
	Breakdowns []breakdown
	Legend     []part
	Times      []timeTable
	Ranks      *breakdown
	Sheets     []report.Sheet

	Step   *step
	NoStep string
	Runs   []provenance
}

type fact struct{ Name, Value string }

// provenance is the origin of a run: the tool, the time, and the inputs of its estimates.
type provenance struct {
	Tool, Commit, Started string
	Kind                  report.Kind
	Devices               []report.Device
	Coefficients          []report.Coefficient
	Warnings              []report.Warning
	Case                  string
}

// axisScales holds the smallest ends of the charts' axes in bytes, so that charts of two pages have the same scale.
type axisScales struct{ peaks, parts, step int64 }

func (s axisScales) max(t axisScales) axisScales {
	return axisScales{max(s.peaks, t.peaks), max(s.parts, t.parts), max(s.step, t.step)}
}

// scales returns the ends of the axes that the page's own data needs.
func (p *Page) scales() axisScales {
	var out axisScales
	for _, s := range p.series() {
		out = out.max(axisScales{peaks: s.peaksTop(), parts: s.partsTop()})
	}
	if p.Step != nil {
		_, from, to := p.Step.PeakStep()
		for _, point := range p.Step.Run.Timeline {
			if point.Instruction >= from && point.Instruction < to {
				out.step = max(out.step, point.Usage.Reserved)
			}
		}
	}
	return out
}

func (p *Page) view(least axisScales) (*pageTemplateData, error) {
	first := p.Runs[0]
	v := &pageTemplateData{
		frame: newFrame(first.Case.String(), true), Case: first.Case, NoStep: p.NoStep, Facts: p.facts(),
	}
	v.Verdict, v.Good, v.Bad = p.verdict()
	v.Next, v.Command = p.nextSteps()
	for _, s := range p.series() {
		b := newBreakdown(s, least.parts)
		if first.Script == nil {
			v.Peaks = append(v.Peaks, p.peakChart(s, least.peaks))
		} else { // a command keeps its batch size to itself
			b.Unit, b.Rows[0].Batch = "", "the run"
		}
		v.Breakdowns = append(v.Breakdowns, b)
	}
	for _, s := range p.series() {
		if t := newTimeTable(s, p.Runs[0].Case.BatchUnit); len(t.Rows) > 0 {
			v.Times = append(v.Times, t)
		}
	}
	v.Ranks = ranksOf(p.Ranks)
	v.Legend = legend(v.Breakdowns)
	if v.Ranks != nil {
		v.Legend = legend(append(slices.Clip(v.Breakdowns), *v.Ranks))
	}
	for _, r := range p.Runs {
		v.Sheets = append(v.Sheets, r.Sheets()...)
		text, err := json.MarshalIndent(r.Case, "", "  ")
		if err != nil {
			return nil, err
		}
		v.Runs = append(v.Runs, provenance{
			strings.TrimSpace("vprof " + r.Tool.Version), r.Tool.Commit,
			r.Started.UTC().Format("2006-01-02 15:04:05 UTC"),
			r.Kind, r.Devices, r.Coefficients, r.Warnings, string(text),
		})
	}
	if p.Step != nil {
		v.Step = newStep(p.Step)
		v.Step.Data.Scale = least.step
		v.Step.Note = p.differingCase()
		if len(v.Peaks) > 1 {
			v.Step.On = p.Step.GPU.Product
		}
	}
	return v, nil
}

// differingCase returns a warning if the runs are from another version of vprof, whose case differs from Step's;
// otherwise it is empty.
func (p *Page) differingCase() string {
	for _, r := range p.Runs {
		for _, point := range r.Points {
			d, _ := r.Find(point.Device)
			u := point.Run
			if u == nil || point.Batch != p.Step.Batch || d.GPU != p.Step.GPU.Name ||
				u.Fits != (p.Step.Run.OOM == nil) {
				continue
			}
			if now := p.Step.Run.Max.Allocated; now != u.Allocated {
				return fmt.Sprintf("This vprof records another step than the run had: it peaks at %s, "+
					"the run at %s.", bytesize.Format(now), bytesize.Format(u.Allocated))
			}
		}
	}
	return ""
}

// facts returns the fields of the case by their names in tables.
func (p *Page) facts() []fact {
	r := p.Runs[0]
	facts := []fact{{"Model", r.Case.Model}}
	if r.Parameters.Total > 0 {
		facts = append(facts, fact{
			"Parameters",
			fmt.Sprintf("%s, %s trainable", count(r.Parameters.Total), count(r.Parameters.Trainable)),
		})
	}
	for _, f := range models.Fields() {
		text, name := f.Text(r.Case.Case), f.TableLabel()
		switch {
		case f.JSON == "amp":
			text = r.Case.Precision()
		case f.JSON == "dataset_bytes" && text != "":
			name, text = "data on the GPU", bytesize.Format(r.Case.Dataset)
		case f.JSON == "settings" && f.Name != "", f.JSON == "accumulate" && text == "1", text == "", text == "false":
			continue
		}
		facts = append(facts, fact{strings.ToUpper(name[:1]) + name[1:], text})
	}
	if note := r.StreamingNote(); note != "" && r.Case.Dataset > 0 {
		facts = append(facts, fact{"If streamed", strings.TrimPrefix(note, "streamed: ")})
	}
	return facts
}

// count formats a number of elements: "5.02 M".
func count(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f billion", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.2f million", float64(n)/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.1f thousand", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}

//go:embed parts.html.tmpl
var templateParts string

//go:embed page.css
var style string

//go:embed page.js
var script string

// frame holds the parts of a page outside its content: title, style and script.
type frame struct {
	Title string
	// Policy is the content security policy, which allows only the page's own style and script, by their digests.
	Policy string
	Style  template.CSS
	Script template.JS
}

func newFrame(title string, scripted bool) frame {
	all := style + chartStyle
	f := frame{Title: title, Style: template.CSS(all)} //nolint:gosec // it is ours
	allowed := "style-src " + cspDigest(all)
	if scripted {
		f.Script = template.JS(script) //nolint:gosec // it is ours
		allowed = "script-src " + cspDigest(script) + "; " + allowed
	}
	f.Policy = "default-src 'none'; " + allowed + "; img-src data:; base-uri 'none'; form-action 'none'"
	return f
}

// cspDigest returns the digest of a style or script for the content security policy.
func cspDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// execute writes a page from a template and its data.
func execute(w io.Writer, markup string, view any) error {
	t := template.New("page").Funcs(template.FuncMap{
		"bytes":       bytesize.Format,
		"coefficient": report.FormatCoefficient,
		"percent":     func(x float64) string { return fmt.Sprintf("%.2f%%", 100*x) },
	})
	for _, text := range []string{templateParts, markup} {
		template.Must(t.Parse(text)) // the templates are ours
	}
	var b strings.Builder
	if err := t.Execute(&b, view); err != nil {
		return err
	}
	// Names from files may contain escape sequences, and a page may be printed on a terminal.
	_, err := io.WriteString(w, printable.Text(b.String()))
	return err
}
