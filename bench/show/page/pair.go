package page

import (
	"cmp"
	_ "embed" // the page of two runs
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
)

// Pair is a page that shows two results, A and B, side by side, with axes of the same scale.
type Pair struct{ A, B *Page }

//go:embed pair.html.tmpl
var pairTemplate string

// Check returns [ErrEmpty] or a [*MixedError] if no page can show A or B.
func (p *Pair) Check() error { return cmp.Or(p.A.Check(), p.B.Check()) }

// pairTemplateData is the data of the template pair.html.tmpl.
type pairTemplateData struct {
	frame
	// Heading is the name of the model, or of both models.
	Heading string
	Verdict string
	// Facts are the properties that both sides share, Differs the properties in which they differ.
	Facts   []fact
	Differs []difference
	Sides   []side
	// At names the batch sizes whose components are compared.
	At         string
	Components []difference
	Legend     []part
}

// side is the page of A or of B.
type side struct {
	Letter string
	*pageTemplateData
}

// difference is a property with its values on both sides. Key is a CSS class. By is B's value minus A's for numbers.
type difference struct{ Name, Key, A, B, By string }

// Write writes the page. The error is from [Pair.Check] or from w.
func (p *Pair) Write(w io.Writer) error {
	if err := p.Check(); err != nil {
		return err
	}
	v, err := p.view()
	if err != nil {
		return err
	}
	return execute(w, pairTemplate, v)
}

func (p *Pair) view() (*pairTemplateData, error) {
	one := p.A.scales().max(p.B.scales())
	a, err := p.A.view(one)
	if err != nil {
		return nil, err
	}
	b, err := p.B.view(one)
	if err != nil {
		return nil, err
	}
	for _, s := range []side{{"a", a}, {"b", b}} {
		if s.Step != nil {
			s.Step.ID = "-" + s.Letter
		}
	}
	heading := a.Case.Model + phrase.If(b.Case.Model != a.Case.Model, " and %s", b.Case.Model)
	v := &pairTemplateData{
		frame: newFrame("A: "+a.Title+" · B: "+b.Title, true), Heading: heading,
		Sides: []side{{"A", a}, {"B", b}}, Legend: legend(append(a.Breakdowns, b.Breakdowns...)),
	}
	for _, f := range a.Facts {
		if slices.Contains(b.Facts, f) {
			v.Facts = append(v.Facts, f)
		}
	}
	v.Differs = p.settingDifferences()
	x, y := p.A.largestShown(p.Batch()), p.B.largestShown(p.Batch())
	v.Verdict = p.verdict(x, y)
	v.At = fmt.Sprintf("batch %d", x.Batch)
	if x.Batch != y.Batch {
		v.At = fmt.Sprintf("batch %d of A and %d of B", x.Batch, y.Batch)
	}
	v.Components = differingComponents(x, y)
	return v, nil
}

// Batch returns the batch size at which the sides are compared: the largest that fits the
// first device of both, or else the largest that both have, or zero.
func (p *Pair) Batch() int {
	fits, common := int64(0), 0
	for _, x := range p.A.series()[0].points {
		for _, y := range p.B.series()[0].points {
			if x.Batch == y.Batch {
				common, fits = max(common, x.Batch), max(fits, min(x.FittingBatch(), y.FittingBatch()))
			}
		}
	}
	return cmp.Or(int(fits), common)
}

func (p *Page) largestShown(batch int) report.Point {
	points := p.series()[0].points
	if p.Step != nil {
		batch = p.Step.Batch
	}
	if q, ok := lists.First(points, func(q report.Point) bool { return q.Batch == batch }); ok {
		return q
	}
	if best, ok := lists.Largest(points, report.Point.FittingBatch); ok {
		return best
	}
	return points[0]
}

// verdict compares the sides in two sentences: the difference between their needs, and the largest batch that fits
// each.
func (p *Pair) verdict(a, b report.Point) string {
	needA, needB := deviceBytes(a), deviceBytes(b)
	words := "as much as A"
	if d := needB - needA; d != 0 {
		words = fmt.Sprintf("%s %s than A", bytesize.Format(max(d, -d)),
			map[bool]string{true: "more", false: "less"}[d > 0])
		if share := 100 * float64(d) / float64(max(1, needA)); max(share, -share) >= 0.1 {
			words += fmt.Sprintf(" (%+.1f %%)", share)
		}
	}
	at := fmt.Sprintf("At batch %d", a.Batch)
	if a.Batch != b.Batch {
		at = fmt.Sprintf("The runs have no batch size in common; with batch %d where A has %d", b.Batch, a.Batch)
	}
	fit := largestBatchText(p.A) + " with A and " + largestBatchText(p.B) + " with B"
	if largestBatchText(p.A) == largestBatchText(p.B) {
		fit = largestBatchText(p.A) + " with either"
	}
	return fmt.Sprintf("%s, B needs %s of the device, %s. Of the batch sizes shown, %s.", at,
		bytesize.Format(needB), words, fit)
}

// largestBatchText names the largest batch size of a page that fits.
func largestBatchText(p *Page) string {
	if best, ok := lists.Largest(p.series()[0].points, report.Point.FittingBatch); ok {
		return fmt.Sprintf("%d is the largest that fits", best.Batch)
	}
	return "none fits"
}

// differingComponents returns the components of two points with their differences.
func differingComponents(a, b report.Point) []difference {
	var names []string
	amounts := [2]map[string]int64{{}, {}}
	for i, p := range []report.Point{a, b} {
		for _, c := range p.Components() {
			names = lists.Union(names, c.Name)
			amounts[i][c.Name] += c.Bytes
		}
	}
	row := func(name, key string, x, y int64) difference {
		return difference{name, key, bytesize.Format(x), bytesize.Format(y), signed(y - x)}
	}
	var rows []difference
	var totals [2]int64
	for _, n := range names {
		x, y := amounts[0][n], amounts[1][n]
		totals[0], totals[1] = totals[0]+x, totals[1]+y
		rows = append(rows, row(n, cssKey(n), x, y))
	}
	return append(rows, row("together", "", totals[0], totals[1]))
}

// signed formats a difference in bytes: "+1.00 MiB", "-1.00 MiB", "same".
func signed(n int64) string {
	switch {
	case n == 0:
		return "same"
	case n < 0:
		return "-" + bytesize.Format(-n)
	}
	return "+" + bytesize.Format(n)
}

// settingDifferences returns the differences between the cases, their GPUs, and the versions of vprof.
func (p *Pair) settingDifferences() (out []difference) {
	add := func(name, a, b string) {
		if a != b {
			out = append(out, difference{Name: name, A: cmp.Or(a, "–"), B: cmp.Or(b, "–")})
		}
	}
	a, b := p.A.Runs[0], p.B.Runs[0]
	add("model", a.Case.Model, b.Case.Model)
	for _, d := range models.Differences(a.Case.Case, b.Case.Case) {
		if d.Label != "torch" { // which is said below, whoever decided it
			add(d.Label, d.A, d.B)
		}
	}
	keys := [2]map[string]string{{}, {}}
	for i, r := range []*report.Report{a, b} {
		var config any
		if json.Unmarshal(r.Case.Config, &config) == nil {
			flattenJSON(keys[i], "config", config)
		}
	}
	all := maps.Clone(keys[0])
	maps.Copy(all, keys[1])
	for _, k := range slices.Sorted(maps.Keys(all)) {
		add(strings.ReplaceAll(k, "_", " "), keys[0][k], keys[1][k])
	}
	add("PyTorch", a.Case.ReleaseName(), b.Case.ReleaseName())
	add("device", p.A.gpus(), p.B.gpus())
	add("kind", string(a.Kind), string(b.Kind))
	add("made by", strings.TrimSpace("vprof "+a.Tool.Version+" "+a.Tool.Commit),
		strings.TrimSpace("vprof "+b.Tool.Version+" "+b.Tool.Commit))
	return out
}

func (p *Page) gpus() string {
	all := lists.Map(p.series(), func(s deviceSeries) string { return s.device.String() })
	return strings.Join(all, ", ")
}

// flattenJSON adds the values of a JSON tree to a map, by their paths ("settings.length").
func flattenJSON(into map[string]string, path string, tree any) {
	object, ok := tree.(map[string]any)
	if !ok {
		text, err := json.Marshal(tree)
		if err != nil {
			panic(err) // it was JSON
		}
		into[path] = strings.Trim(string(text), `"`)
		return
	}
	for k, v := range object {
		flattenJSON(into, strings.TrimPrefix(path+"."+k, "."), v)
	}
}
