package page

import (
	_ "embed" // the page of a fleet
	"fmt"
	"io"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
)

// Matrix is a page with a table of models by GPUs.
type Matrix struct{ *report.Matrix }

//go:embed matrix.html.tmpl
var matrixMarkup string

// matrixTemplateData is the data of the template matrix.html.tmpl.
type matrixTemplateData struct {
	*report.Matrix
	frame
	GPUs  []matrixGPU
	Cases []matrixCase
}

// matrixGPU is the head of a GPU's column.
type matrixGPU struct{ Name, Title, Memory string }

// matrixCase is the row of a case.
type matrixCase struct {
	Model, Case string
	Cells       []matrixCell
}

// matrixCell is the cell of a case on a GPU. Class is the CSS class of its color, Words the whole text.
type matrixCell struct{ Class, Largest, Needs, Words string }

// Write writes the page.
func (m *Matrix) Write(w io.Writer) error {
	v := matrixTemplateData{Matrix: m.Matrix, frame: newFrame(m.Name, false)}
	gpus, cases := m.Grid()
	for _, g := range gpus {
		v.GPUs = append(v.GPUs, matrixGPU{g.Column(), g.Title, bytesize.Format(g.Memory)})
	}
	for _, cells := range cases {
		of, _ := lists.First(cells, func(c report.MatrixCell) bool { return c.Model != "" })
		v.Cases = append(v.Cases, matrixCase{of.Model, of.Case, lists.Map(cells, newMatrixCell)})
	}
	return execute(w, matrixMarkup, v)
}

func newMatrixCell(r report.MatrixCell) matrixCell {
	switch {
	case r == report.MatrixCell{}:
		return matrixCell{}
	case r.Refused != "":
		return matrixCell{Class: "refused", Largest: "x", Words: r.Refused}
	}
	c := matrixCell{Largest: fmt.Sprint(r.Batch), Needs: bytesize.Format(r.Need.Bytes)}
	c.Class = map[report.Verdict]string{
		report.Fits: "fits", report.Tight: "tight", report.Unrecorded: "tight",
		report.DoesNotFit: "not",
	}[r.Fits]
	c.Words = fmt.Sprintf("%s, %s, on %s: batch %d %s and needs %s, %s", r.Model, r.Case, r.Title, r.Batch, r.Fits,
		c.Needs, r.RunKind)
	if r.Largest > 0 {
		largest := fmt.Sprint(r.Largest, phrase.If(r.Capped, "+")) // as the search ends there
		c.Largest += " (" + largest + ")"
		c.Words += "; the largest safe batch is " + largest
	}
	return c
}
