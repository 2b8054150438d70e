package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
)

// StreamingSavings returns the device bytes of the estimate that streaming the data set would save; zero if no data is
// on the GPU.
func (p Point) StreamingSavings() int64 {
	if p.Streamed == nil || p.Estimate == nil {
		return 0
	}
	return p.Estimate.Device.Bytes - p.Streamed.Bytes
}

// StreamingNote describes what streaming the data set from the host would save; empty if no data is on the GPU.
func (r *Report) StreamingNote() string {
	var saved []int64
	for _, p := range r.Points {
		if p.Streamed != nil && p.Estimate != nil {
			saved = append(saved, p.StreamingSavings())
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

func streamedCell(p Point, c byteColumn) string {
	if p.Streamed == nil {
		return "-"
	}
	return c.interval(*p.Streamed)
}

// searchSubject describes the model and the settings that all choices share: task, adapters, release of PyTorch, and
// data on the GPU.
func (f *Fit) searchSubject() string {
	if len(f.Choices) == 0 {
		return f.Model
	}
	c, name := f.Choices[0].Case, f.Model
	return name + phrase.Prefix(", ", c.Task) + phrase.If(c.LoRA != nil, ", LoRA %v", c.LoRA) +
		", PyTorch " + c.ReleaseName() +
		phrase.If(c.Dataset != 0, " with %s of data on the GPU", bytesize.Format(c.Dataset))
}

// loopNote names the training loop that is judged if no flag chose one, and the largest saving of another loop with its
// batch size; empty if the loops need the same.
func (r *Report) loopNote() string {
	most, ok := lists.Largest(r.Points, Point.otherLoopSavings)
	if !ok {
		return ""
	}
	e, less := most.Estimate, most.otherLoopSavings()
	note := fmt.Sprintf("loop: %s%s, which needs most; %s needs %s less", e.Loop, loopNames[e.Loop], e.OtherLoop.Loop,
		bytesize.Format(less))
	note += phrase.If(len(r.Points) > 1, " at batch %d", most.Batch)
	return fmt.Sprintf("%s: --loop %s.", note, e.OtherLoop.Loop)
}

// loopNames describe loops that users write themselves.
var loopNames = map[models.Loop]string{models.LoopPlain: " (one of your own that keeps `outputs`)"}

// otherLoopSavings returns the number of device bytes that the other loop needs less; zero if a flag chose the loop.
func (p Point) otherLoopSavings() int64 {
	if p.Estimate == nil || p.Estimate.OtherLoop == nil {
		return 0
	}
	return p.Estimate.Device.Bytes - p.Estimate.OtherLoop.Device
}

// loopNamesOf returns a note with the loops of rows whose loop no flag chose: the loop with the largest need is judged.
func loopNamesOf(loops []models.Loop) []string {
	var names []string
	for _, l := range loops {
		if l != "" {
			names = lists.Union(names, string(l)+loopNames[l])
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("loop: %s, which needs most (no --loop given).", strings.Join(names, " or "))}
}
