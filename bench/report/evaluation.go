package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
)

// Evaluation is the need of a batch without gradients that runs between training steps.
type Evaluation struct {
	// Batch is the number of samples of an evaluation batch.
	Batch     int      `json:"batch"`
	Allocated Interval `json:"allocated"`
	Reserved  Interval `json:"reserved"`
	Device    Interval `json:"device"`
	// Judged reports whether the verdict counts it: users asked for an evaluation, or the project evaluates. Otherwise
	// the values show the need of an evaluation that training may not have.
	Judged bool `json:"judged"`
	// Verdict and Unsafe judge the evaluation alone.
	Verdict Verdict `json:"verdict" jsonschema:"enum=fits,enum=tight,enum=fits slowly,enum=not known without a recording,enum=does not fit"`
	Unsafe  Reason  `json:"unsafe,omitempty" jsonschema:"enum=over-share,enum=gpu-full,enum=oom,enum=gives-back,enum=not-recorded,enum=host-full,enum=smaller-batch"`
}

// evaluationNote describes the need of evaluation, at the training batch size where it is largest; empty without one.
func (r *Report) evaluationNote() string {
	point, ok := lists.Largest(r.Points, func(p Point) int64 {
		if p.Estimate == nil || p.Estimate.Evaluation == nil {
			return 0
		}
		return p.Estimate.Evaluation.Device.Bytes
	})
	if !ok {
		return ""
	}
	most, e := point.Estimate, point.Estimate.Evaluation
	note := fmt.Sprintf("evaluation, batch %d: %s allocated, %s on the device", e.Batch,
		bytesize.Format(e.Allocated.Bytes), bytesize.Format(e.Device.Bytes))
	if w := r.Case.Evaluate.Summary(); w != "" {
		note += " (" + w + ")"
	}
	switch {
	case !e.Judged:
		return fmt.Sprintf("if you evaluate, batch %d: may need %s, %s (%s); this verdict is of training. --evaluate "+
			"batch=N judges it, too.", e.Batch, bytesize.Format(e.Device.High), e.Verdict, e.Unsafe)
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
	if !slices.Contains(verdicts, e.Verdict) {
		return fmt.Errorf("the evaluation's verdict is %q: need one of %q", e.Verdict, verdicts)
	}
	return cmp.Or(
		e.Allocated.check("its evaluation: allocated"), e.Reserved.check("its evaluation: reserved"),
		e.Device.check("its evaluation: device"),
	)
}
