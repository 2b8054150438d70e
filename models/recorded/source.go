package recorded

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

const (
	// Scheme is what the names of these models begin with.
	Scheme = "vprof"
	// Suffix is what their files end in.
	Suffix = ".vprof"
)

// Source opens files for a registry.
func Source() models.Source {
	return models.Source{Scheme: Scheme, Suffix: Suffix, Open: Open, Restore: restore}
}

// Open makes the model of a file. The error is an [*input.FormatError] or that of reading.
func Open(path string) (models.Model, error) {
	if path == "" {
		return models.Model{}, input.FileErrorf(Scheme+":", "names no file; use --model path/to/run.vprof")
	}
	content, err := input.ReadFile(path)
	if err != nil {
		return models.Model{}, err
	}
	return newModel(path, Scheme+":"+strings.TrimSuffix(filepath.Base(path), Suffix), content)
}

// restore makes a model of the description in a result, which is the file as a string of JSON.
func restore(name, description string) (models.Model, error) {
	var content []byte
	if err := json.Unmarshal([]byte(description), &content); err != nil {
		return models.Model{}, &input.FormatError{File: name, Reason: "its description is no recorded program"}
	}
	return newModel(name, name, content)
}

func newModel(file, name string, content []byte) (models.Model, error) {
	h, p, err := Read(bytes.NewReader(content), file)
	if err != nil {
		return models.Model{}, err
	}
	torch, err := models.ParseRelease(h.Torch)
	if err != nil {
		return models.Model{}, err
	}
	description, err := json.Marshal(content)
	if err != nil {
		return models.Model{}, err
	}
	batch := cmp.Or(h.Batch, 1)
	return models.Model{
		Name: name, Summary: "a recorded run of " + h.Name, Source: "recorded on " + h.GPU + ", torch " + h.Torch,
		Torch: h.Torch, Stages: []string{"recorded"}, Trains: map[string]string{"recorded": "what the run trained"},
		Default: models.Case{Stage: "recorded", Batch: batch, Accumulate: 1, Torch: torch, AllocConf: h.AllocConf},
		Batches: []int{batch}, BatchUnit: "sample",
		Recorded: true, Description: models.Describe(string(description)),
		Caveat: func(models.Case) []string { return caveats(&h) },
		Build:  func(models.Case) (models.Trainer, error) { return trainer{&h, p}, nil },
	}, nil
}

// caveats say what the figures of a recorded run are.
func caveats(h *Header) []string {
	all := []string{
		fmt.Sprintf("replayed: this is the program of a run of %s that was recorded on %s; on other boards "+
			"libraries may choose other kernels, whose scratch memory differs", h.Name, h.GPU),
	}
	if h.Allocated > 0 {
		all = append(all, fmt.Sprintf("in the run, PyTorch itself counted %s allocated and %s reserved",
			bytesize.Format(h.Allocated), bytesize.Format(h.Reserved)))
	}
	return all
}

// trainer is a run that is over: its program is on the tape already.
type trainer struct {
	h *Header
	p *program.Program
}

// Counts implements [models.Trainer].
func (t trainer) Counts() models.Counts {
	return models.Counts{Total: t.h.Parameters, Trainable: t.h.Trainable}
}

// Record implements [models.Trainer]. The steps are those that the run had.
func (t trainer) Record(tape *trace.Tape, _ int) error {
	tape.Play(t.p)
	return nil
}
