package recorded

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/vprof/vprof/internal/bytesize"
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

// Source opens files for a registry. Errors are [*input.FormatError] or those of reading.
func Source() models.Source { return models.FileSource(Scheme, Suffix, "recorded program", newModel) }

func newModel(file, name string, content []byte) (models.Model, error) {
	h, p, err := Read(bytes.NewReader(content), file)
	if err != nil {
		return models.Model{}, err
	}
	torch, err := models.ParseRelease(h.Torch)
	if err != nil {
		return models.Model{}, err
	}
	batch := cmp.Or(h.Batch, 1)
	return models.Model{
		Name: name, Summary: "a recorded run of " + h.Name, Source: "recorded on " + h.GPU + ", torch " + h.Torch,
		Torch: h.Torch, Stages: []string{"recorded"}, Trains: map[string]string{"recorded": "what the run trained"},
		Default: models.Case{Stage: "recorded", Batch: batch, Accumulate: 1, Torch: torch, AllocConf: h.AllocConf},
		Batches: []int{batch}, BatchUnit: "sample",
		Recorded: true,
		Caveat:   func(models.Case) []string { return caveats(&h) },
		Build:    func(models.Case) (models.Trainer, error) { return trainer{&h, p}, nil },
	}, nil
}

// caveats say what the figures of a recorded run are.
func caveats(h *Header) []string {
	all := []string{
		fmt.Sprintf("replayed: this is the program of a run of %s that was recorded on %s; on other GPUs "+
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
