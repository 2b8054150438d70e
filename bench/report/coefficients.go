package report

import "fmt"

// CoefficientsSchema names the format of a list of coefficients.
const CoefficientsSchema = "vprof.coefficient-list/v1"

// Coefficients is a listing of a coefficients file, or a comparison of two.
type Coefficients struct {
	Schema string           `json:"schema" jsonschema:"const=vprof.coefficient-list/v1"`
	Rows   []CoefficientRow `json:"rows"`
	// Compared is true if the rows have changes.
	Compared bool     `json:"compared"`
	Notes    []string `json:"notes,omitempty"`
}

// CoefficientRow is a coefficient of an entry. Old is its former value: absent if files
// are not compared, or if it is new.
type CoefficientRow struct {
	Entry string       `json:"entry"`
	Name  string       `json:"name"`
	Now   *Coefficient `json:"now,omitempty"`
	Old   *Coefficient `json:"old,omitempty"`
	// Significant is true if the change is more than both errors explain.
	Significant bool `json:"significant,omitempty"`
}

// Sheets implement [Document].
func (c *Coefficients) Sheets() []Sheet {
	s := Sheet{Columns: Columns("entry | coefficient | value> | 95 % interval> | source"), Notes: c.Notes}
	if c.Compared {
		s.Columns = Columns("entry | coefficient | old> | new> | change")
	}
	for _, r := range c.Rows {
		if c.Compared {
			s.Row(r.Entry, r.Name, r.cell(r.Old), r.cell(r.Now), r.change())
		} else {
			s.Row(r.Entry, r.Name, r.cell(r.Now), "± "+amount(r.Name, 1.96*r.Now.StdErr), r.Now.Source)
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
	return amount(r.Name, c.Value)
}

func (r CoefficientRow) change() string {
	switch {
	case r.Old == nil:
		return "new"
	case r.Now == nil:
		return "gone"
	case r.Old.Value == r.Now.Value:
		return "same"
	case r.Significant:
		return "significant"
	}
	return "within errors"
}

// Lines implement [Document].
func (c *Coefficients) Lines() []any {
	return linesOf(*c, func(c *Coefficients) *[]CoefficientRow { return &c.Rows })
}

// Records implement [Document].
func (c *Coefficients) Records() [][]string {
	rows := make([][]any, len(c.Rows))
	for i, r := range c.Rows {
		rows[i] = []any{r, r.Now.exact("now"), r.Old.exact("old")}
	}
	return Rows(`entry name value=now_value stderr=now_stderr source=now_source old_value old_stderr significant`, rows)
}

// exact are the figures of a coefficient with all of their digits.
func (c *Coefficient) exact(of string) extra {
	if c == nil {
		return nil
	}
	return extra{of + "_value": fmt.Sprint(c.Value), of + "_stderr": fmt.Sprint(c.StdErr)}
}
