package report

import (
	"fmt"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/models"
)

// loopNote says which loop was taken that nobody has said, and what another needs more, where that is
// most; empty where it is nothing.
func (r *Report) loopNote() string {
	var most Point
	for _, p := range r.Points {
		if p.open() > most.open() {
			most = p
		}
	}
	if most.open() == 0 {
		return ""
	}
	note := "loop: " + most.Estimate.Open.note(most.open())
	if len(r.Points) > 1 {
		note += fmt.Sprintf(" (batch %d)", most.Batch)
	}
	return note + "; the verdict is of that loop."
}

// open is what a loop that keeps more needs beside the estimate's device bytes; zero where the loop is said.
func (p Point) open() int64 {
	if p.Estimate == nil || p.Estimate.Open == nil {
		return 0
	}
	return p.Estimate.Open.Device.Bytes - p.Estimate.Device.Bytes
}

// note says what the loop is and what a plain one needs more, in bytes.
func (o *OpenLoop) note(more int64) string {
	where := "a loop of your own that keeps `outputs`"
	if o.Loop == models.LoopFunction {
		where = "one at the top level of a script, which keeps the last step's `outputs`,"
	}
	return fmt.Sprintf("%s; %s needs %s more: --loop %s", o.Loop, where, bytesize.Format(more), models.LoopPlain)
}
