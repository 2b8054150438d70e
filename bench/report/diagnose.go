package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
)

// DiagnosisSchema names the format of a diagnosis.
const DiagnosisSchema = "vprof.diagnosis/v1"

// Diagnosis holds the findings in a run, a snapshot or a log, with remedies.
type Diagnosis struct {
	Schema   string    `json:"schema" jsonschema:"const=vprof.diagnosis/v1"`
	Tool     Tool      `json:"tool"`
	Subject  string    `json:"of"`
	Findings []Finding `json:"findings"`
	// Remedies are in the order in which to try them, Now is the device bytes without them; absent if the case is
	// unknown.
	Remedies    []Remedy  `json:"remedies,omitempty"`
	PresentNeed *Interval `json:"now_device,omitempty"`
	// Case is the case for which the remedies were estimated, and GPU how its GPU was found, or that it was not; absent
	// if the user or the file names it.
	Case string `json:"case,omitempty"`
	GPU  string `json:"board,omitempty"`
}

// Finding is one observation about a run.
type Finding struct {
	Kind string `json:"kind"`
	// Problem is false for an observation that only suggests an improvement.
	Problem  bool     `json:"problem"`
	What     string   `json:"what"`
	Evidence []string `json:"evidence"`
	// Advice is the guides' advice, in the order to try it.
	Advice []string `json:"advice,omitempty"`
	// GPU is the GPU, if the file has several.
	GPU string `json:"gpu,omitempty"`
}

// shortKinds are the kinds of findings that a lower need of memory would solve.
var shortKinds = []string{
	"out of memory", "cache given back", "nearly full", "spike", "variable input",
	"fragmentation",
}

// IsShort reports whether a finding would be solved by a lower need of memory.
func (d *Diagnosis) IsShort() bool { return d.Has(shortKinds...) }

// Has reports whether there is a finding of one of the kinds.
func (d *Diagnosis) Has(kinds ...string) bool {
	return slices.ContainsFunc(d.Findings, func(f Finding) bool { return slices.Contains(kinds, f.Kind) })
}

func (f Finding) kindTitle() string { return f.Kind + phrase.Prefix(" on ", f.GPU) }

// Remedy is a change that may help.
type Remedy struct {
	What string `json:"what"`
	// Saves are the device bytes that the remedy saves, by the estimate.
	Saves int64 `json:"saves_bytes"`
	// NeedAfter are the device bytes with the remedy applied, and Unsafe is why they are not safe; absent if safe.
	NeedAfter Interval `json:"then_device"`
	Unsafe    Reason   `json:"unsafe,omitempty" jsonschema:"enum=over-share,enum=gpu-full,enum=oom,enum=gives-back,enum=not-recorded,enum=host-full,enum=smaller-batch"`
	// Requires is a step to do first, because the project's own trainer does not read the setting; absent if it does.
	Requires string `json:"needs,omitempty"`
	// How is the way in which a script's saving was found: tried in a step of the script, replayed, or an estimate.
	How string `json:"how,omitempty" jsonschema:"enum=tried,enum=replayed,enum=estimate"`
}

// Problems counts the findings that are problems.
func (d *Diagnosis) Problems() int {
	return len(lists.Filter(d.Findings, func(f Finding) bool { return f.Problem }))
}

// Sheets returns the tables of the report, for [Document].
func (d *Diagnosis) Sheets() []Sheet {
	s := Sheet{Title: d.Subject, Columns: Columns("finding | what")}
	for _, f := range d.Findings {
		s.Row(f.kindTitle(), f.What)
		for _, e := range f.Evidence {
			s.Row("", "evidence: "+e)
		}
		for _, a := range f.Advice {
			s.Row("", "do: "+a)
		}
	}
	if len(d.Findings) == 0 {
		s.Notes = []string{"nothing found."}
	}
	sheets := []Sheet{s}
	switch {
	case len(d.Remedies) > 0:
		sheets = append(sheets, d.remedySheet())
	case d.GPU != "":
		sheets[0].Notes.Add("%s.", d.GPU)
	case d.Case == "" && (d.IsShort() || d.Has("under-use")):
		sheets[0].Notes.Add("give --model, --batch and --gpu for remedies with their savings.")
	}
	return sheets
}

func (d *Diagnosis) remedySheet() Sheet {
	r := Sheet{Title: "remedies for " + d.Case, Columns: Columns("remedy | saves> | then needs> | at most> | verdict")}
	if d.PresentNeed != nil {
		r.Row("now", "", d.PresentNeed.Bytes, d.PresentNeed.High, "")
	}
	for _, remedy := range d.Remedies {
		what := remedy.What + phrase.If(remedy.Requires != "", " (needs %s)", remedy.Requires) +
			phrase.Prefix(", ", remedy.How)
		r.Row(what, remedy.Saves, remedy.NeedAfter.Bytes, remedy.NeedAfter.High, remedy.Unsafe.String())
	}
	if d.Remedies[0].How != "" {
		r.Notes.Add(
			"device bytes at the peak, each change alone, tried in the script, replayed or estimated (vprof run).")
		return r
	}
	r.Notes.Add(
		"device bytes at the peak, each remedy alone, in the order to try them; verdicts are by the upper ends.")
	r.Notes.If(!slices.ContainsFunc(d.Remedies, func(r Remedy) bool { return r.Unsafe == "" }),
		"none is enough alone; vprof fit --levers searches for the largest batch with several together.")
	r.Notes.If(d.GPU != "", "%s.", d.GPU)
	return r
}

// Data returns the values that JSON files hold, for [Document].
func (d *Diagnosis) Data() Data {
	rows := [][]string{{"of", "type", "name", "problem", "text", "saves_bytes", "then_device_bytes", "unsafe"}}
	for _, f := range d.Findings {
		rows = append(rows, []string{
			d.Subject, "finding", f.kindTitle(), strconv.FormatBool(f.Problem),
			strings.Join(f.Evidence, "; "), "", "", "",
		})
		for _, a := range f.Advice {
			rows = append(rows, []string{d.Subject, "advice", f.kindTitle(), "", a, "", "", ""})
		}
	}
	for _, r := range d.Remedies {
		rows = append(rows, []string{
			d.Subject, "remedy", "", "", r.What, fmt.Sprint(r.Saves), fmt.Sprint(r.NeedAfter.High), string(r.Unsafe),
		})
	}
	return Data{jsonLines(*d, func(d *Diagnosis) *[]Finding { return &d.Findings }), rows}
}
