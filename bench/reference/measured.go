package reference

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
)

// Measured is the peak memory of a training step on a user's GPU. Callbacks of the Python package write such lines, and
// vprof accuracy --share writes them without names.
type Measured struct {
	// MeasuredWith is the kind of measurement: "callback", a trainer with a callback of the Python package; "run", a
	// script under vprof run; "sweep", tensors and kernels that vprof launched itself.
	MeasuredWith string      `json:"by,omitempty"`
	Case         report.Case `json:"case"`
	Batch        int         `json:"batch"`
	// GPU is the GPU's name in the catalog, Torch, CUDA and Driver are the versions that ran, as far as known.
	GPU    string `json:"gpu"`
	Torch  string `json:"torch,omitempty"`
	CUDA   string `json:"cuda,omitempty"`
	Driver string `json:"driver,omitempty"`
	// Simulated reports whether there was no GPU: such a line is not a measurement.
	Simulated bool   `json:"simulated,omitempty"`
	Status    Status `json:"status"`
	Steps     int    `json:"steps"`
	// The peaks in bytes; zero where they were not measured.
	PeakRequested int64 `json:"peak_requested,omitempty"`
	PeakAllocated int64 `json:"peak_allocated"`
	PeakReserved  int64 `json:"peak_reserved"`
	PeakDevice    int64 `json:"peak_device,omitempty"`
}

// MeasuredBy returns the runs of a report on real GPUs.
func MeasuredBy(r *report.Report) []Measured {
	var all []Measured
	by, steps, torch := "sweep", 1, r.Case.Torch
	if s := r.Script; s != nil {
		by, steps, torch = "run", slices.Max(append(s.Steps, 1)), s.Torch
	}
	for _, p := range r.Points {
		d, ok := r.Find(p.Device)
		if !ok || p.Run == nil || p.Run.Simulated {
			continue
		}
		m := Measured{
			MeasuredWith: by, Case: r.Case, Batch: p.Batch, GPU: d.GPU, Torch: torch, CUDA: d.CUDA, Driver: d.Driver,
			Status: StatusOK, Steps: steps, PeakRequested: p.Run.Requested, PeakAllocated: p.Run.Allocated,
			PeakReserved: p.Run.Reserved, PeakDevice: p.Run.Device,
		}
		if !p.Run.Fits {
			m.Status = StatusOOM
		}
		all = append(all, m)
	}
	return all
}

// Anonymous returns the line without anything that identifies its user: names, paths, patterns of names, and the text
// of models that only the user has. Listed models and configurations of transformers can still be planned.
func (m Measured) Anonymous(listed bool) Measured {
	c := m.Case
	switch {
	case listed:
	case strings.HasPrefix(c.Model, "hf:"):
		c.Model = "hf:" + modelType(c.Config)
	default:
		kind := "captured"
		if m.MeasuredWith == "run" {
			kind = "script"
		}
		c.Case = models.Case{
			Model: kind, Stage: c.Stage, AMP: c.AMP, Weights: c.Weights, Checkpointing: c.Checkpointing,
			Accumulate: c.Accumulate, Optimizer: c.Optimizer, GPUs: c.GPUs, Strategy: c.Strategy, Torch: c.Torch,
			AllocConf: c.AllocConf,
		}
		c.Config = nil
	}
	m.Case = c
	return m
}

func modelType(config json.RawMessage) string {
	var c struct {
		Type string `json:"model_type"`
	}
	if json.Unmarshal(config, &c) != nil {
		return ""
	}
	return c.Type
}

// isMeasured reports whether the case of a line is a JSON object; in vprof's own records it is a name.
func isMeasured(line []byte) bool {
	before, rest, found := bytes.Cut(line, []byte(`"case"`))
	rest = bytes.TrimLeft(rest, " :")
	return found && bytes.HasPrefix(rest, []byte("{")) && !bytes.Contains(before, []byte(`"schema"`))
}

// decodeMeasured decodes a line of measurements. The case has the release for plans; the run has its own.
func decodeMeasured(line []byte) (Record, error) {
	m := Measured{MeasuredWith: "callback"}
	if err := unmarshal(line, &m); err != nil {
		return Record{}, err
	}
	r := Record{
		Case: m.Case.Case, GPU: m.GPU, Status: cmp.Or(m.Status, StatusOK), Runs: m.Steps, Measured: &m,
		PeakRequested: m.PeakRequested, PeakAllocated: m.PeakAllocated, PeakReserved: m.PeakReserved,
		PeakDevice: m.PeakDevice,
	}
	r.Batch, r.Accumulate = m.Batch, max(1, r.Accumulate)
	switch {
	case r.Status == StatusOK && m.PeakAllocated < 1:
		return r, fieldError("peak_allocated", "want bytes, found %d", m.PeakAllocated)
	case m.Steps < 1:
		return r, fieldError("steps", "want the number of optimizer steps, found %d", m.Steps)
	}
	if err := r.setTorch(m.Torch); err != nil {
		return r, err
	}
	return r, r.validate()
}
