package report

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/models"
)

// Saved returns what streaming the data set would save of the estimate's device
// bytes; zero if none is on the GPU.
func (p Point) Saved() int64 {
	if p.Streamed == nil || p.Estimate == nil {
		return 0
	}
	return p.Estimate.Device.Bytes - p.Streamed.Bytes
}

// StreamingNote returns what streaming the data set from the host would save; empty without a data set on the GPU.
func (r *Report) StreamingNote() string {
	var saved []int64
	for _, p := range r.Points {
		if p.Streamed != nil && p.Estimate != nil {
			saved = append(saved, p.Saved())
		}
	}
	if len(saved) == 0 {
		return ""
	}
	least, most := bytesize.Format(slices.Min(saved)), bytesize.Format(slices.Max(saved))
	if least != most {
		most = least + " to " + most
	}
	return fmt.Sprintf("streamed: with the %s of data on the host and one batch at a time on the GPU, which saves %s "+
		"of device memory.", bytesize.Format(r.Case.Dataset), most)
}

func streamedCell(p Point, c column) string {
	if p.Streamed == nil {
		return "-"
	}
	return c.interval(*p.Streamed)
}

// subject returns the model and what all choices have in common: its task, adapters,
// the PyTorch that was asked for, and what of its data lies on the GPU.
func (f *Fit) subject() string {
	if len(f.Choices) == 0 {
		return f.Model
	}
	c, name := f.Choices[0].Case, f.Model
	if c.Task != "" {
		name += ", " + c.Task
	}
	if c.LoRA != nil {
		name += ", LoRA " + c.LoRA.String()
	}
	if c.Torch != "" {
		name += ", PyTorch " + c.ReleaseName()
	}
	if c.Dataset == 0 {
		return name
	}
	return fmt.Sprintf("%s with %s of data on the GPU", name, bytesize.Format(c.Dataset))
}

// loopNote names the loop that was assumed since no flag chose one, and how much more another needs at the batch size
// where that is most; empty if none needs more.
func (r *Report) loopNote() string {
	var most Point
	for _, p := range r.Points {
		if p.plainExtra() > most.plainExtra() {
			most = p
		}
	}
	if most.plainExtra() == 0 {
		return ""
	}
	note := "loop: " + most.Estimate.PlainLoop.note(most.plainExtra())
	if len(r.Points) > 1 {
		note += fmt.Sprintf(" (batch %d)", most.Batch)
	}
	return note + "; the verdict assumes that loop."
}

// plainExtra returns how many device bytes more a plain loop needs; zero where a loop was chosen.
func (p Point) plainExtra() int64 {
	if p.Estimate == nil || p.Estimate.PlainLoop == nil {
		return 0
	}
	return p.Estimate.PlainLoop.Device.Bytes - p.Estimate.Device.Bytes
}

// note names the assumed loop and how many bytes more the plain one needs.
func (o *OpenLoop) note(more int64) string {
	where := "a loop of your own that keeps `outputs`"
	if o.Loop == models.LoopFunction {
		where = "one at the top level of a script, which keeps the last step's `outputs`,"
	}
	return fmt.Sprintf("%s; %s needs %s more: --loop %s", o.Loop, where, bytesize.Format(more), models.LoopPlain)
}
