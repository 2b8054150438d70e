package report

import (
	"fmt"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
)

// BisectionSchema names the format of a bisection.
const BisectionSchema = "vprof.bisection/v1"

// maxChangedLines bounds the lines of a table of changes.
const maxChangedLines = 8

// Bisection names which releases of packages changed what a script needs.
type Bisection struct {
	Schema  string   `json:"schema" jsonschema:"const=vprof.bisection/v1"`
	Tool    Tool     `json:"tool"`
	Command []string `json:"command"`
	GPU     string   `json:"gpu"`
	// Old and New are the two environments as they were named.
	Old EnvironmentPeak `json:"old"`
	New EnvironmentPeak `json:"new"`
	// Runs counts the runs of the script.
	Runs int `json:"runs"`
	// Causes are the changes of packages that changed the peak, in the order in which packages were replaced.
	Causes []BisectionCause `json:"causes"`
}

// EnvironmentPeak has the peaks of the script in one environment, in simulated bytes.
type EnvironmentPeak struct {
	Name      string `json:"name"`
	Allocated int64  `json:"allocated_bytes"`
	Reserved  int64  `json:"reserved_bytes"`
}

// BisectionCause is a package whose change of release changed the peak.
type BisectionCause struct {
	Package string `json:"package"`
	Old     string `json:"old"`
	New     string `json:"new"`
	// RequiredChanges are other packages' changes without which the script fails or has the old peak: "b 1.0 -> 1.9".
	RequiredChanges []string `json:"with,omitempty"`
	// Before and After are allocated bytes at the peak with the two releases, beside the same other packages.
	Before int64 `json:"before_bytes"`
	After  int64 `json:"after_bytes"`
	// Lines are the lines that hold different bytes at the peak, the largest difference first.
	Lines []LineChange `json:"lines"`
}

// String returns the cause as a part of a sentence: "peak +0.9 GiB, since trl 1.15 -> 1.16".
func (c BisectionCause) String() string {
	return fmt.Sprintf("peak %s, since %s %s -> %s", signedBytes(c.After-c.Before), c.Package, c.Old, c.New) +
		phrase.If(len(c.RequiredChanges) > 0, " with %s", strings.Join(c.RequiredChanges, ", "))
}

// Sentence returns the causes in words.
func (b *Bisection) Sentence() string {
	if len(b.Causes) == 0 {
		return fmt.Sprintf("no change: the peak is %s in both environments", bytesize.Format(b.New.Allocated))
	}
	return strings.Join(lists.Map(b.Causes, BisectionCause.String), "; ")
}

// Sheets returns the tables of the report, for [Document].
func (b *Bisection) Sheets() []Sheet {
	s := sheetIn("", "environment | allocated, {}> | reserved, {}>", b.Old.Reserved, b.New.Reserved)
	s.Answer = []string{b.Sentence() + "."}
	for _, e := range []EnvironmentPeak{b.Old, b.New} {
		s.Row(e.Name, e.Allocated, e.Reserved)
	}
	s.Notes.Add("simulated on %s, %d runs.", b.GPU, b.Runs)
	sheets := []Sheet{s}
	for _, c := range b.Causes {
		title := fmt.Sprintf("%s %s -> %s, at the peak, by line and phase", c.Package, c.Old, c.New)
		sheets = append(sheets, changesSheet(title, c.Old, c.New, c.Lines, maxChangedLines))
	}
	return sheets
}

// Data returns the values that JSON files hold, for [Document].
func (b *Bisection) Data() Data {
	return Data{
		jsonLines(*b, func(b *Bisection) *[]BisectionCause { return &b.Causes }),
		Rows("package old new before_bytes after_bytes gpu", b.Causes, b),
	}
}
