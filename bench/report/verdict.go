package report

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/bytesize"
)

// Verdict reports whether an estimate fits a device.
type Verdict string

// The verdicts, from good to bad.
const (
	Fits Verdict = "fits"
	// Tight means that the expected need fits, but the upper end of the estimate does not.
	Tight Verdict = "tight"
	// Slow means that the step fits only because PyTorch frees cached memory and allocates it again, in every step.
	Slow Verdict = "fits slowly"
	// Unrecorded means that the need depends on the step under torch.compile, which has not been recorded. Checks that
	// gate a pipeline treat it as not safe.
	Unrecorded Verdict = "not known without a recording"
	DoesNotFit Verdict = "does not fit"
)

// verdicts in their order.
var verdicts = []Verdict{Fits, Tight, Slow, Unrecorded, DoesNotFit}

// Worse returns the worse of two verdicts; the empty one is the best.
func (v Verdict) Worse(w Verdict) Verdict {
	if slices.Index(verdicts, w) > slices.Index(verdicts, v) {
		return w
	}
	return v
}

// Reason is the reason why a batch is not safe, as a word for programs; empty if it is safe. Safe is stricter than
// fits: within the allowed share of the GPU, at every point of training, also with every smaller batch.
type Reason string

// hostFull means that the machine, and not the GPU, may have too little memory.
const hostFull Reason = "host-full"

// reasons are the reasons in words.
var reasons = map[Reason]string{
	"over-share":    "over the limit",
	"gpu-full":      "over the memory",
	"gives-back":    string(Slow),
	"oom":           "out of memory",
	"not-recorded":  string(Unrecorded),
	hostFull:        "over the host's memory",
	"smaller-batch": "a smaller batch is not",
}

// String describes the reason.
func (r Reason) String() string {
	if r == "" {
		return "safe"
	}
	return reasons[r]
}

// forOtherBatch describes the reason for a batch other than the requested one.
func (r Reason) forOtherBatch() string {
	if r == "smaller-batch" {
		return "not safe"
	}
	return r.String()
}

// Decision is the moment of training that decides a verdict.
type Decision struct {
	// What is the moment ("training", "evaluation", "a smaller batch"), and Batch the size of its batch.
	What  string `json:"what"`
	Batch int    `json:"batch"`
	// Need is the number of bytes that must be within Limit; absent of a smaller batch.
	Need  int64 `json:"need_bytes,omitempty"`
	Limit int64 `json:"limit_bytes"`
}

// String describes the decision in a few words.
func (d *Decision) String() string {
	if d.Need == 0 {
		return fmt.Sprintf("batch %d is not safe, whose blocks leave more of the cache unused", d.Batch)
	}
	if d.Need <= d.Limit { // a replay on the GPU decides
		return fmt.Sprintf("%s, batch %d", d.What, d.Batch)
	}
	return fmt.Sprintf("%s, batch %d, may need %s, more than the limit of %s", d.What, d.Batch,
		bytesize.Format(d.Need), bytesize.Format(d.Limit))
}
