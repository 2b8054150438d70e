package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/phrase"
)

// CalibrationSchema names the format of a calibration's result.
const CalibrationSchema = "vprof.calibration/v1"

// Calibration is the result of fitting coefficients to runs.
type Calibration struct {
	Schema  string    `json:"schema" jsonschema:"const=vprof.calibration/v1"`
	Tool    Tool      `json:"tool"`
	Started time.Time `json:"started"`
	// Entry is the name of the coefficients in File.
	Entry string `json:"entry"`
	File  string `json:"file"`
	// Backup is the name of a copy of File as it was before; absent if File is new.
	Backup    string   `json:"backup,omitempty"`
	GPU       string   `json:"gpu"`
	Stack     string   `json:"stack"`
	Models    []string `json:"models"`
	Simulated bool     `json:"simulated"`

	Coefficients []Coefficient `json:"coefficients"`
	// Undetermined lists what the runs do not determine.
	Undetermined []string           `json:"undetermined,omitempty"`
	Errors       CalibrationErrors  `json:"errors"`
	Points       []CalibrationPoint `json:"points"`
}

// CalibrationErrors are relative errors of estimates against the runs.
type CalibrationErrors struct {
	Before ErrorSummary `json:"before"`
	After  ErrorSummary `json:"after"`
	// HeldOut has the errors of each run estimated from the others; absent if there are too few others.
	HeldOut *ErrorSummary `json:"held_out,omitempty"`
}

// ErrorSummary summarizes absolute relative errors.
type ErrorSummary struct {
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// CalibrationPoint is one run with its estimates, in bytes of the highest level that the run measured (device, else
// reserved, else allocated).
type CalibrationPoint struct {
	Label    string `json:"label"`
	Batch    int    `json:"batch"`
	Observed int64  `json:"observed_bytes"`
	Before   int64  `json:"before_bytes"`
	After    int64  `json:"after_bytes"`
	// HeldOut is zero if there are too few other runs.
	HeldOut int64 `json:"held_out_bytes"`
}

// Sheets returns the tables of the report, for [Document].
func (c *Calibration) Sheets() []Sheet {
	what := "measured"
	if c.Simulated {
		what = "SIMULATED"
	}
	values := Sheet{
		Title:   fmt.Sprintf("%s: %s, %s runs of %s", c.Entry, c.Stack, what, strings.Join(c.Models, ", ")),
		Columns: Columns("coefficient | value> | 95 % interval> | source"),
	}
	for _, k := range c.Coefficients {
		values.Row(k.Name, FormatCoefficient(k.Name, k.Value), "± "+FormatCoefficient(k.Name, 1.96*k.StdErr), k.Source)
	}
	for _, u := range c.Undetermined {
		values.Notes.Add("not determined: %s.", u)
	}
	if len(c.Points) == 0 {
		values.Notes = append(values.Notes, c.fileNotes()...)
		return []Sheet{values}
	}
	return []Sheet{values, c.pointSheet()}
}

// FormatCoefficient formats a coefficient in the unit that its name implies: a time, a share, or bytes.
func FormatCoefficient(name string, v float64) string {
	term, of, _ := strings.Cut(strings.TrimPrefix(name, "synthetic "), ":")
	switch {
	case name == "host":
		return fmt.Sprintf("%.2f times", v)
	case of == "launch" || of == "dispatch" || of == "module":
		return fmt.Sprintf("%.2f µs", 1e6*v)
	case term == "efficiency", term == "speed":
		return fmt.Sprintf("%.1f %%", 100*v)
	case strings.HasSuffix(term, "_slack"), strings.HasSuffix(term, "_residual"), name == communication:
		return fmt.Sprintf("%.3f %%", 100*v)
	}
	return bytesize.Format(int64(v))
}

func (c *Calibration) pointSheet() Sheet {
	s := sheetIn("", "run | bytes {}: observed> | bytes {}: default>-3 | bytes {}: calibrated> | "+
		"error: default>-2 | error: calibrated> | error: held out>",
		largest(c.Points, func(p CalibrationPoint) int64 { return max(p.Observed, p.Before, p.After) }))
	for _, p := range c.Points {
		s.Row(p.Label, p.Observed, p.Before, p.After,
			percentOff(p.Before, p.Observed), percentOff(p.After, p.Observed), percentOff(p.HeldOut, p.Observed))
	}
	s.Notes.Add("median and largest error: default %s, calibrated %s, held out %s.",
		&c.Errors.Before, &c.Errors.After, c.Errors.HeldOut)
	s.Notes = append(s.Notes, c.fileNotes()...)
	return s
}

func (c *Calibration) fileNotes() (notes phrase.List) {
	notes.If(c.File != "", "written to %s.", c.File)
	notes.If(c.Backup != "", "the previous file is in %s.", c.Backup)
	return notes
}

// String returns the median and the largest error in percent.
func (e *ErrorSummary) String() string {
	if e == nil {
		return "- (too few runs)"
	}
	return fmt.Sprintf("%.2f %% and %.2f %%", 100*e.Median, 100*e.Max)
}

// percentOff returns the relative error of an estimate; "-" if there is none.
func percentOff(estimate, observed int64) string {
	if estimate == 0 || observed == 0 {
		return "-"
	}
	return fmt.Sprintf("%+.2f %%", 100*float64(estimate-observed)/float64(observed))
}

// Data returns the values that JSON files hold, for [Document].
func (c *Calibration) Data() Data {
	return Data{
		jsonLines(*c, func(c *Calibration) *[]CalibrationPoint { return &c.Points }),
		Rows("entry label batch observed_bytes before_bytes after_bytes held_out_bytes", c.Points, c),
	}
}

// CoefficientsSchema names the format of a list of coefficients.
const CoefficientsSchema = "vprof.coefficient-list/v1"

// Coefficients lists a coefficients file, or compares two.
type Coefficients struct {
	Schema string           `json:"schema" jsonschema:"const=vprof.coefficient-list/v1"`
	Rows   []CoefficientRow `json:"rows"`
	// Compared is true if the rows have changes.
	Compared bool     `json:"compared"`
	Notes    []string `json:"notes,omitempty"`
}

// CoefficientRow is a coefficient of an entry. Old is its former value; absent if new or not compared.
type CoefficientRow struct {
	Entry string       `json:"entry"`
	Name  string       `json:"name"`
	New   *Coefficient `json:"now,omitempty"`
	Old   *Coefficient `json:"old,omitempty"`
	// Significant is true if the change is more than both errors explain.
	Significant bool `json:"significant,omitempty"`
}

// Sheets returns the tables of the report, for [Document].
func (c *Coefficients) Sheets() []Sheet {
	s := Sheet{Columns: Columns("entry | coefficient | value> | 95 % interval> | source"), Notes: c.Notes}
	if c.Compared {
		s.Columns = Columns("entry | coefficient | old> | new> | change")
	}
	for _, r := range c.Rows {
		if c.Compared {
			s.Row(r.Entry, r.Name, r.cell(r.Old), r.cell(r.New), r.change())
		} else {
			s.Row(r.Entry, r.Name, r.cell(r.New), "± "+FormatCoefficient(r.Name, 1.96*r.New.StdErr), r.New.Source)
		}
	}
	if len(s.Rows) == 0 {
		s.Notes = append([]string{"no coefficients."}, s.Notes...)
	}
	return []Sheet{s}
}

func (r CoefficientRow) cell(c *Coefficient) string {
	if c == nil {
		return "-"
	}
	return FormatCoefficient(r.Name, c.Value)
}

func (r CoefficientRow) change() string {
	switch {
	case r.Old == nil:
		return "new"
	case r.New == nil:
		return "gone"
	case r.Old.Value == r.New.Value:
		return "same"
	case r.Significant:
		return "significant"
	}
	return "within errors"
}

// Data returns the values that JSON files hold, for [Document].
func (c *Coefficients) Data() Data {
	rows := make([][]any, len(c.Rows))
	for i, r := range c.Rows {
		rows[i] = []any{r, r.New.exactValues("now"), r.Old.exactValues("old")}
	}
	return Data{
		jsonLines(*c, func(c *Coefficients) *[]CoefficientRow { return &c.Rows }),
		Rows(`entry name value=now_value stderr=now_stderr source=now_source old_value old_stderr significant`, rows),
	}
}

func (c *Coefficient) exactValues(of string) extraValues {
	if c == nil {
		return nil
	}
	return extraValues{of + "_value": fmt.Sprint(c.Value), of + "_stderr": fmt.Sprint(c.StdErr)}
}
