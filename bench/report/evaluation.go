package report

import (
	"cmp"
	"fmt"

	"github.com/vprof/vprof/internal/bytesize"
)

// Evaluation is what a batch without gradients needs that runs between training steps.
type Evaluation struct {
	// Batch is the number of its samples.
	Batch     int      `json:"batch"`
	Allocated Interval `json:"allocated"`
	Reserved  Interval `json:"reserved"`
	Device    Interval `json:"device"`
}

// evaluationNote returns the need of evaluation, at the batch size of training where that is most; empty without one.
func (r *Report) evaluationNote() string {
	var most *Estimate
	for _, p := range r.Points {
		e := p.Estimate
		if e == nil || e.Evaluation == nil {
			continue
		}
		if most == nil || e.Evaluation.Device.Bytes > most.Evaluation.Device.Bytes {
			most = e
		}
	}
	if most == nil {
		return ""
	}
	e := most.Evaluation
	note := fmt.Sprintf("evaluation, batch %d: %s allocated, %s on the device", e.Batch,
		bytesize.Format(e.Allocated.Bytes), bytesize.Format(e.Device.Bytes))
	if w := r.Case.Evaluate.Words(); w != "" {
		note += " (" + w + ")"
	}
	switch {
	case e.Device.Bytes > most.Device.Bytes:
		return note + ", more than training; the verdict counts it."
	case e.Allocated.Bytes > most.Allocated.Bytes:
		return note + ", within what training has reserved."
	}
	return note + ", less than training."
}

func (e *Evaluation) check() error {
	if e == nil {
		return nil
	}
	return cmp.Or(
		e.Allocated.check("its evaluation: allocated"), e.Reserved.check("its evaluation: reserved"),
		e.Device.check("its evaluation: device"),
	)
}
