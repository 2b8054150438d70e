package report

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/bytesize"
)

// Saved is what streaming the data set would save of the estimate's device
// bytes; zero if none is on the GPU.
func (p Point) Saved() int64 {
	if p.Streamed == nil || p.Estimate == nil {
		return 0
	}
	return p.Estimate.Device.Bytes - p.Streamed.Bytes
}

// StreamingNote says what streaming the data set from the host would save; empty
// if it does come from there.
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
	return fmt.Sprintf("streamed: with the %s of data on the host and a batch at a time on the GPU; that saves %s "+
		"of device memory.", bytesize.Format(r.Case.Dataset), most)
}

func streamedCell(p Point, c column) string {
	if p.Streamed == nil {
		return "-"
	}
	return c.interval(*p.Streamed)
}

// subject is the model and what all choices have in common: its task, adapters,
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
