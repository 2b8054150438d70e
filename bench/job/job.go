// Package job represents a whole plan or sweep as a value that another machine can run. A job names the model, the
// device and the batch sizes. An executor runs it and returns a report, and the reports of several jobs are merged into
// one. Jobs consist of trials, see package bench/experiment/step.
package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner/coefficients"
)

// Schema names this version of the JSON of a [Job].
const Schema = "vprof.job/v1"

// Job is one case on one device. Its JSON is complete: the case includes the description of a user's model.
type Job struct {
	Schema string      `json:"schema"`
	Kind   report.Kind `json:"kind"`
	Case   report.Case `json:"case"`
	Target Target      `json:"target"`
	// Batches are the batch sizes to estimate, and to run in a sweep.
	Batches []int `json:"batches"`
	// Lengths are the sample lengths of a plan; absent if all samples have the case's length.
	Lengths *epoch.Lengths `json:"lengths,omitempty"`
	// CurriculumParts are the other stages of a curriculum, which train with the same batch; absent if there is none.
	CurriculumParts []step.Part `json:"parts,omitempty"`
	// Conditions are the limits of a sweep, and how it runs each batch.
	Conditions sweep.Conditions `json:"conditions,omitzero"`
	// Calibrated are the coefficients that correct estimates; absent for the shipped defaults.
	Calibrated *coefficients.Selection `json:"calibrated,omitempty"`
}

// Target is the device on which a job runs.
type Target struct {
	// Device names a GPU of the machine that runs the job ("cuda:0"), or is [AutoDevice]; absent for a simulated GPU.
	Device string `json:"device,omitempty"`
	// GPU is the GPU to simulate, with all its properties, since catalogs differ; absent for a GPU of the machine.
	GPU *device.GPU `json:"board,omitempty"`
}

// AutoDevice is the [Target.Device] that selects the first GPU of the machine, or a simulated one if it has none.
const AutoDevice = "auto"

// Simulated returns the target for a simulated GPU of the catalog.
func Simulated(gpu device.GPU) Target { return Target{GPU: &gpu} }

// Plan returns jobs that estimate a case, one for each GPU.
func Plan(c report.Case, gpus []device.GPU, batches []int) []Job {
	return lists.Map(gpus, func(gpu device.GPU) Job {
		return Job{Schema: Schema, Kind: report.Plan, Case: c, Target: Simulated(gpu), Batches: batches}
	})
}

// Sweep returns the job that runs the batch sizes of a case on a device.
func Sweep(c report.Case, t Target, batches []int, k sweep.Conditions) Job {
	return Job{Schema: Schema, Kind: report.Sweep, Case: c, Target: t, Batches: batches, Conditions: k}
}

// Read reads a job as JSON. Unknown keys are an error.
func Read(r io.Reader) (Job, error) {
	var j Job
	text, err := io.ReadAll(io.LimitReader(r, maxJobBytes+1))
	if err != nil {
		return j, err
	}
	if len(text) > maxJobBytes {
		return j, fmt.Errorf("job: the JSON is longer than %d MiB; split the job into fewer cases", maxJobBytes>>20)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return Job{}, fmt.Errorf("job: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Job{}, errors.New("job: text follows the end of the JSON; remove it")
	}
	return j, j.check()
}

// maxJobBytes is the largest accepted size of a job's JSON. Nearly all of it is the description of a model.
const maxJobBytes = 256 << 20

// check returns an error if vprof cannot have written the job.
func (j Job) check() error {
	switch {
	case j.Schema != Schema:
		return fmt.Errorf("job: the schema is %q: need %s", j.Schema, Schema)
	case j.Kind != report.Plan && j.Kind != report.Sweep:
		return fmt.Errorf("job: the kind is %q: need plan or sweep", j.Kind)
	case j.Case.Model == "":
		return errors.New("job: the case names no model; set case.model")
	case (j.Target.Device == "") == (j.Target.GPU == nil):
		return errors.New("job: the target is not clear; set either a device or a GPU to simulate")
	case j.Kind == report.Plan && j.Target.GPU == nil:
		return errors.New("job: a plan needs a simulated GPU; set target.gpu")
	case j.Target.GPU != nil && j.Target.GPU.Memory <= j.Target.GPU.Context:
		return fmt.Errorf("job: the GPU has %d bytes of memory, less than its CUDA context needs; correct target.gpu",
			j.Target.GPU.Memory)
	case j.Kind != report.Plan && j.Lengths != nil:
		return errors.New("job: only a plan may have lengths of samples; remove them, or set the kind to plan")
	case len(j.Batches) == 0:
		return errors.New("job: no batch size is named; add at least one")
	case j.Case.Description().Hash() != j.Case.ConfigHash:
		return errors.New("job: the model's description does not match the case's config_hash; make the job again")
	}
	for _, b := range j.Batches {
		if err := models.CheckBatch(b); err != nil {
			return fmt.Errorf("job: %w", err)
		}
	}
	if j.Lengths != nil {
		if err := j.Lengths.Check(); err != nil {
			return fmt.Errorf("job: %w", err)
		}
	}
	return nil
}
