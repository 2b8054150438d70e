package reference

import (
	"bytes"
	"cmp"

	"github.com/vprof/vprof/models"
)

// A wireMeasured is what somebody's PyTorch needed for a case of ours, as plans have it: the line
// that callbacks of the Python package write.
type wireMeasured struct {
	Case          models.Case `json:"case"`
	Batch         int         `json:"batch"`
	GPU           string      `json:"gpu"`
	Torch         string      `json:"torch"`
	Status        Status      `json:"status"`
	Steps         int         `json:"steps"`
	PeakAllocated int64       `json:"peak_allocated"`
	PeakReserved  int64       `json:"peak_reserved"`
}

// isMeasured reports whether a line has a case as an object, where records of ours have its name.
func isMeasured(line []byte) bool {
	_, rest, found := bytes.Cut(line, []byte(`"case"`))
	rest = bytes.TrimLeft(rest, " :")
	return found && bytes.HasPrefix(rest, []byte("{"))
}

// decodeMeasured reads such a line. The case says the release that was planned for; the run's own counts.
func decodeMeasured(line []byte) (Record, error) {
	var w wireMeasured
	if err := unmarshal(line, &w); err != nil {
		return Record{}, err
	}
	r := Record{
		Case: w.Case, GPU: w.GPU, Status: cmp.Or(w.Status, OK), Runs: w.Steps,
		PeakAllocated: w.PeakAllocated, PeakReserved: w.PeakReserved,
	}
	r.Batch, r.Accumulate = w.Batch, max(1, r.Accumulate)
	switch {
	case r.Status == OK && w.PeakAllocated < 1:
		return r, bad("peak_allocated", "want bytes, found %d", w.PeakAllocated)
	case w.Steps < 1:
		return r, bad("steps", "want the number of optimizer steps, found %d", w.Steps)
	}
	if w.Torch != "" {
		release, err := models.ParseRelease(w.Torch)
		if err != nil {
			return r, bad("torch", "%v", err)
		}
		r.Torch = release
	}
	return r, r.validate()
}
