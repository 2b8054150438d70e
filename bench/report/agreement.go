package report

import (
	"fmt"

	"github.com/vprof/vprof/internal/phrase"
)

// EstimateAgreement compares the device bytes and the largest batch of a sweep on a GPU with the estimates.
type EstimateAgreement struct {
	// Tolerance is the largest difference that counts as none, relative to the measurement.
	Tolerance float64 `json:"tolerance"`
	// WithinTolerance is the number of batch sizes within the tolerance, of those with an error.
	WithinTolerance int `json:"within"`
	Total           int `json:"of"`
	// Predicted is the largest batch by the estimates, Found the largest in fact; absent if the sweep did not reach the
	// end of the GPU's memory.
	Predicted int `json:"predicted_batch,omitempty"`
	Found     int `json:"found_batch,omitempty"`
}

// AgreementWithin compares a GPU's measurements with the estimates; false for simulated devices, which measure nothing.
func (r *Report) AgreementWithin(tolerance float64) (EstimateAgreement, bool) {
	d, driven := r.realDevice()
	if !driven || d.Simulated {
		return EstimateAgreement{}, false
	}
	a := EstimateAgreement{Tolerance: tolerance}
	ended := r.Largest != nil && r.Largest.FirstFailing > 0
	for _, p := range r.Points {
		if share, ok := p.Error(); ok {
			a.Total++
			if max(share, -share) <= tolerance {
				a.WithinTolerance++
			}
		}
		ended = ended || p.Run != nil && !p.Run.Fits
	}
	if !ended {
		return a, a.Total > 0
	}
	for _, p := range r.Points {
		if p.Run != nil && p.Run.Fits {
			a.Found = max(a.Found, p.Batch)
		}
		if p.Estimate != nil && p.Estimate.Verdict != DoesNotFit {
			a.Predicted = max(a.Predicted, p.Batch)
		}
	}
	if r.Largest != nil {
		a.Predicted = r.Largest.Predicted
	}
	return a, true
}

// ExceedsTolerance reports whether a difference exceeds the tolerance.
func (a EstimateAgreement) ExceedsTolerance() bool {
	apart := float64(max(a.Predicted-a.Found, a.Found-a.Predicted))
	return a.WithinTolerance < a.Total || apart > a.Tolerance*float64(a.Found)
}

// String describes the agreement in a sentence without its full stop.
func (a EstimateAgreement) String() string {
	s := fmt.Sprintf("device within ±%.3g %% of the estimate at %d of %d", 100*a.Tolerance, a.WithinTolerance, a.Total)
	return s + phrase.If(a.Found > 0 || a.Predicted > 0, "; largest batch predicted %d, found %d", a.Predicted, a.Found)
}
