package reference

import (
	"encoding/json"
	"fmt"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
)

// wireRecord is a record in the file's format. A nil pointer is a missing value, not zero.
type wireRecord struct {
	Case          *string           `json:"case"`
	Stage         *string           `json:"stage"`
	Batch         *int              `json:"batch"`
	AMP           *string           `json:"amp"`
	Checkpointing *bool             `json:"checkpointing"`
	Accumulate    *int              `json:"accumulate"`
	Optimizer     string            `json:"optimizer"`
	GPU           *string           `json:"gpu"`
	Env           string            `json:"env"`
	Status        *string           `json:"status"`
	Error         string            `json:"error"`
	Params        report.Parameters `json:"params"`
	BatchBytes    int64             `json:"batch_bytes"`

	PeakAllocated *int64            `json:"peak_allocated"`
	PeakReserved  *int64            `json:"peak_reserved"`
	PeakRequested int64             `json:"peak_requested"`
	PeakDevice    int64             `json:"peak_device_used"`
	Context       int64             `json:"device_used_context"`
	Retries       int64             `json:"num_alloc_retries"`
	Phases        []json.RawMessage `json:"phases"`
	StepMS        *float64          `json:"step_ms"`
}

// fieldError returns an error about a field of a line; an empty field means the whole line.
func fieldError(field, format string, args ...any) error {
	return &input.FormatError{Key: field, Reason: fmt.Sprintf(format, args...)}
}

func decodeRecord(line []byte) (Record, error) {
	var w wireRecord
	if err := unmarshal(line, &w); err != nil {
		return Record{}, err
	}
	if err := w.complete(); err != nil {
		return Record{}, err
	}
	r := Record{
		Case: models.Case{
			Model: *w.Case, Stage: *w.Stage, Batch: *w.Batch, Checkpointing: *w.Checkpointing,
			Accumulate: *w.Accumulate,
		},
		GPU: *w.GPU, Status: Status(*w.Status), Error: w.Error,
		Params: w.Params, BatchBytes: w.BatchBytes,
		PeakAllocated: *w.PeakAllocated, PeakReserved: *w.PeakReserved, PeakRequested: w.PeakRequested,
		PeakDevice: w.PeakDevice, Context: w.Context, Retries: w.Retries,
	}
	if w.AMP != nil {
		var err error
		if r.AMP, err = models.ParseAutocast(*w.AMP); err != nil {
			return Record{}, fieldError("amp", "%v", err)
		}
	}
	if !modelOptimizers[w.Optimizer] {
		r.Optimizer = w.Optimizer
	}
	conf, ok := allocConf(w.Env)
	if !ok {
		return Record{}, fieldError("env", "want %sSETTINGS, found %q", report.AllocConf, w.Env)
	}
	r.AllocConf = conf
	if w.StepMS != nil {
		if !(*w.StepMS > 0) {
			return Record{}, fieldError("step_ms", "%v is no time of a step; need a positive number of milliseconds",
				*w.StepMS)
		}
		r.StepMS = *w.StepMS
	}
	for i, raw := range w.Phases {
		p, err := decodePhase(raw, fmt.Sprintf("phases[%d]", i))
		if err != nil {
			return Record{}, err
		}
		r.Phases = append(r.Phases, p)
	}
	return r, r.validate()
}

// complete returns an error if a required field is missing.
func (w *wireRecord) complete() error {
	for _, f := range []struct {
		name    string
		missing bool
	}{
		{"case", w.Case == nil},
		{"stage", w.Stage == nil},
		{"batch", w.Batch == nil},
		{"checkpointing", w.Checkpointing == nil},
		{"accumulate", w.Accumulate == nil},
		{"gpu", w.GPU == nil},
		{"status", w.Status == nil},
		{"peak_allocated", w.PeakAllocated == nil},
		{"peak_reserved", w.PeakReserved == nil},
		{"phases", w.Phases == nil},
	} {
		if f.missing {
			return fieldError(f.name, "missing")
		}
	}
	return nil
}

// decodePhase decodes [step, phase, allocated, max allocated, reserved, max reserved].
func decodePhase(raw json.RawMessage, field string) (Phase, error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return Phase{}, fieldError(field, "want an array")
	}
	if len(parts) != 6 {
		return Phase{}, fieldError(field, "want 6 values, found %d", len(parts))
	}
	for i, part := range parts {
		if string(part) == "null" { // encoding/json would take it for zero
			return Phase{}, fieldError(fmt.Sprintf("%s[%d]", field, i), "null")
		}
	}
	var p Phase
	if err := json.Unmarshal(parts[0], &p.Step); err != nil || p.Step < -1 {
		return p, fieldError(field+"[0]", "want a step (-1, 0, 1, ...), found %s", parts[0])
	}
	if err := json.Unmarshal(parts[1], &p.Name); err != nil || p.Name == "" {
		return p, fieldError(field+"[1]", "want the name of a phase, found %s", parts[1])
	}
	for i, to := range []*int64{&p.Allocated, &p.MaxAllocated, &p.Reserved, &p.MaxReserved} {
		if err := json.Unmarshal(parts[i+2], to); err != nil || *to < 0 {
			return p, fieldError(fmt.Sprintf("%s[%d]", field, i+2), "want bytes, found %s", parts[i+2])
		}
	}
	switch {
	case p.Allocated > p.MaxAllocated:
		return p, fieldError(field+"[3]", "peak %d below the %d allocated at the end", p.MaxAllocated, p.Allocated)
	case p.Reserved > p.MaxReserved:
		return p, fieldError(field+"[5]", "peak %d below the %d reserved at the end", p.MaxReserved, p.Reserved)
	}
	return p, nil
}

func (r *Record) validate() error {
	switch {
	case r.Model == "":
		return fieldError("case", "empty")
	case r.GPU == "":
		return fieldError("gpu", "empty")
	case models.CheckBatch(r.Batch) != nil:
		return fieldError("batch", "%v", models.CheckBatch(r.Batch))
	case models.CheckAccumulate(r.Accumulate) != nil:
		return fieldError("accumulate", "%v", models.CheckAccumulate(r.Accumulate))
	case r.Status != StatusOK && r.Status != StatusOOM && r.Status != StatusError:
		return fieldError("status", "want ok, oom or error, found %q", r.Status)
	case r.Status == StatusError && r.Error == "":
		return fieldError("error", "missing: a record of status error must say what PyTorch raised")
	case r.Status == StatusOK && len(r.Phases) == 0 && r.Runs == 0 && !r.Exported && !r.FineTuned:
		return fieldError("phases", "empty")
	case r.PeakReserved < r.PeakAllocated:
		return fieldError("peak_reserved", "%d is below the %d allocated", r.PeakReserved, r.PeakAllocated)
	}
	for _, f := range []struct {
		name  string
		bytes int64
	}{
		{"batch_bytes", r.BatchBytes},
		{"peak_allocated", r.PeakAllocated},
		{"peak_requested", r.PeakRequested},
		{"peak_device_used", r.PeakDevice},
		{"device_used_context", r.Context},
		{"num_alloc_retries", r.Retries},
	} {
		if f.bytes < 0 {
			return fieldError(f.name, "negative: %d", f.bytes)
		}
	}
	return nil
}
