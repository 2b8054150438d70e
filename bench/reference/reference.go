// Package reference reads records of the memory that real PyTorch needed, in the format vprof.reference/v1: a header
// line, then one JSON object a line. It only checks that records are complete.
package reference

import (
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
)

// Schema names the format that this package reads.
const Schema = "vprof.reference/v1"

// SimulatedDriver is part of the source of records that were made without a GPU. Its addresses rose.
const SimulatedDriver = "simulated driver"

// Header is the first line of a file, which describes the recording program and machine.
type Header struct {
	Schema       string `json:"schema"`
	Torch        string `json:"torch"`
	CUDA         string `json:"cuda"`
	CUDNN        int    `json:"cudnn"`
	Source       string `json:"source"`
	GPU          string `json:"gpu"`
	Transformers string `json:"transformers,omitempty"`
}

// Status is the end of a recorded run.
type Status string

// The ways a run ends.
const (
	StatusOK    Status = "ok"
	StatusOOM   Status = "oom"
	StatusError Status = "error"
)

// Phase holds the counters at the end of a phase, in bytes. The peaks are those within the phase, including its start.
type Phase struct {
	// Step is -1 for set-up, then 0, 1, ...
	Step         int
	Name         string
	Allocated    int64
	MaxAllocated int64
	Reserved     int64
	MaxReserved  int64
}

// Record is one run of a case. Bytes of an OOM record are those up to the failure; an error record has what it reached.
type Record struct {
	// File and Line are the position of the record.
	File string
	Line int

	// Case has the run's PYTORCH_CUDA_ALLOC_CONF, and no optimizer if the run used the system's own.
	models.Case
	GPU string
	// Exported reports whether the model is another library's, in a file of torch.export called [FileName].
	Exported bool
	// FineTuned reports whether the model is in [FineTuned], or a configuration of transformers of that name.
	FineTuned bool
	// Runs is the number of steps of records without phases.
	Runs int
	// Rising reports whether the driver's addresses rose: the simulated driver's did.
	Rising bool
	// Measured is the line itself, for a user's run; nil for vprof's own records.
	Measured *Measured

	Status Status
	// Error is PyTorch's exception; set unless Status is OK.
	Error      string
	Params     report.Parameters
	BatchBytes int64

	PeakAllocated int64
	PeakReserved  int64
	PeakRequested int64
	PeakDevice    int64
	Context       int64
	Retries       int64
	Phases        []Phase
	// StepMS is the measured time of a step in milliseconds; zero if it was not measured.
	StepMS float64
}

// Description returns the configuration or graph that the record's model was built from. It is empty for models that
// vprof knows by name, and where the record does not hold it.
func (r *Record) Description() models.Description {
	if r.Measured == nil {
		return models.Description{}
	}
	return r.Measured.Case.Description()
}

// Steps returns the number of training steps that a comparable replay runs: one more than the last of the phases.
func (r *Record) Steps() int {
	steps := max(1, r.Runs)
	for _, p := range r.Phases {
		steps = max(steps, p.Step+1)
	}
	return steps
}

// modelOptimizers are the names by which a record marks that the case kept its own optimizer.
var modelOptimizers = map[string]bool{"": true, "AdamW": true, "Adam x2": true}

// allocConf extracts the allocator settings from a record's env field, which holds NAME=VALUE words.
func allocConf(env string) (string, bool) {
	if env == "" {
		return "", true
	}
	return strings.CutPrefix(env, report.AllocConf)
}
