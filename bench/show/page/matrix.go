package page

import (
	_ "embed" // the page of a fleet
	"fmt"
	"io"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
)

// Matrix is a page of models by GPUs.
type Matrix struct{ *report.Matrix }

//go:embed matrix.html.tmpl
var matrixMarkup string

// matrixView is what the template shows.
type matrixView struct {
	*report.Matrix
	frame
	GPUs  []matrixGPU
	Cases []matrixCase
}

// matrixGPU is a column.
type matrixGPU struct{ Name, Title, Memory string }

// matrixCase is a row.
type matrixCase struct {
	Model, Case string
	Cells       []matrixCell
}

// matrixCell is a case on a GPU. Class is its color, Words the full text.
type matrixCell struct{ Class, Largest, Needs, Words string }

// Write writes the page.
func (m *Matrix) Write(w io.Writer) error {
	v := matrixView{Matrix: m.Matrix, frame: framed(m.Name, false)}
	gpus, cases := map[string]int{}, map[[2]string]int{}
	for _, r := range m.Rows {
		if _, seen := gpus[r.Device]; !seen {
			gpus[r.Device] = len(v.GPUs)
			name := r.GPU
			if r.UUID != "" || r.Host != "" {
				name = r.Device
			}
			v.GPUs = append(v.GPUs, matrixGPU{name, r.Title, bytesize.Format(r.Memory)})
		}
	}
	for _, r := range m.Rows {
		key := [2]string{r.Model, r.Case}
		i, seen := cases[key]
		if !seen {
			i = len(v.Cases)
			cases[key] = i
			v.Cases = append(v.Cases, matrixCase{r.Model, r.Case, make([]matrixCell, len(v.GPUs))})
		}
		v.Cases[i].Cells[gpus[r.Device]] = cellOf(r)
	}
	return execute(w, matrixMarkup, v)
}

func cellOf(r report.MatrixCell) matrixCell {
	if r.Refused != "" {
		return matrixCell{Class: "refused", Largest: "x", Words: r.Refused}
	}
	c := matrixCell{Largest: fmt.Sprint(r.Batch), Needs: bytesize.Format(r.Needs.Bytes)}
	c.Class = map[report.Verdict]string{
		report.Fits: "fits", report.Tight: "tight", report.Unrecorded: "tight",
		report.DoesNotFit: "not",
	}[r.Fits]
	c.Words = fmt.Sprintf("%s, %s, on %s: batch %d %s and needs %s, %s", r.Model, r.Case, r.Title, r.Batch, r.Fits,
		c.Needs, r.Run)
	if r.Largest > 0 {
		c.Largest += fmt.Sprintf(" (%d)", r.Largest)
		c.Words += fmt.Sprintf("; the largest safe batch is %d", r.Largest)
	}
	return c
}
