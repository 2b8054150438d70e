package page

import (
	_ "embed" // the page of a search
	"io"

	"github.com/vprof/vprof/bench/report"
)

// Fit is a page of a search for what fits: what is recommended first, and what each lever
// saves and costs.
type Fit struct{ *report.Fit }

//go:embed fit.html.tmpl
var fitMarkup string

// fitView is what the template shows.
type fitView struct {
	*report.Fit
	frame
	Tables []report.Sheet
}

// Write writes the page.
func (f *Fit) Write(w io.Writer) error {
	v := fitView{Fit: f.Fit, Tables: f.Sheets()}
	title := "What fits"
	if len(v.Tables) > 0 && v.Tables[0].Title != "" {
		title = v.Tables[0].Title
	}
	v.frame = framed(title, false)
	return execute(w, fitMarkup, v)
}
