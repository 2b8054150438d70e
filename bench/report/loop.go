package report

import (
	"fmt"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/models"
)

// loopNote names the loop that was assumed since no flag chose one, and how much more another needs at the batch size
// where that is most; empty if none needs more.
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

// open is how many device bytes more a loop that keeps more needs; zero where a loop was chosen.
func (p Point) open() int64 {
	if p.Estimate == nil || p.Estimate.Open == nil {
		return 0
	}
	return p.Estimate.Open.Device.Bytes - p.Estimate.Device.Bytes
}

// note names the assumed loop and how many bytes more the plain one needs.
func (o *OpenLoop) note(more int64) string {
	where := "a loop of your own that keeps `outputs`"
	if o.Loop == models.LoopFunction {
		where = "one at the top level of a script, which keeps the last step's `outputs`,"
	}
	return fmt.Sprintf("%s; %s needs %s more: --loop %s", o.Loop, where, bytesize.Format(more), models.LoopPlain)
}
