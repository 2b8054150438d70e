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
	"github.com/vprof/vprof/models/pt2/cudnnanswers"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

const (
	// Scheme is the prefix of names of recorded models, as in vprof:run.vprof.
	Scheme = "vprof"
	// Suffix is the file name suffix of recorded models.
	Suffix = ".vprof"
)

// Source returns the source of models that are complete runs or eager steps. o, which may be nil, is asked about the
// convolutions of batch sizes that were not recorded. Errors are [*input.FormatError] or errors of reading.
func Source(o cudnnanswers.Source) models.Source {
	return models.Source{
		Scheme: Scheme, Suffix: Suffix,
		Open: func(path string) (models.Model, error) {
			if path == "" {
				return models.Model{}, input.FileErrorf(Scheme+":",
					"the path after the colon is missing; write --model path/to/model%s", Suffix)
			}
			content, err := input.ReadFile(path)
			if err != nil {
				return models.Model{}, err
			}
			return openModel(path, Scheme+":"+strings.TrimSuffix(filepath.Base(path), Suffix), content, o)
		},
		Restore: func(name, description string) (models.Model, error) {
			var content []byte
			if json.Unmarshal([]byte(description), &content) != nil {
				return models.Model{}, &input.FormatError{File: name, Reason: "its description is no recorded program"}
			}
			return openModel(name, name, content, o)
		},
	}
}

// openModel returns the model of a file from its content, which is also the model's description.
func openModel(file, name string, content []byte, o cudnnanswers.Source) (m models.Model, err error) {
	f, err := Read(bytes.NewReader(content), file)
	switch {
	case err != nil:
		return m, err
	case f.Steps == nil:
		m, err = runModel(f, name)
	case f.Steps.Form == Eager:
		m, err = stepModel(f, name, o)
	default:
		return m, input.KeyErrorf(file, "form", "the file holds a step compiled as %q, for which vprof also needs "+
			"the model; name the model's file with --model, and add --torch-compile", f.Steps.Form)
	}
	if err != nil {
		return m, err
	}
	text, err := json.Marshal(content)
	m.Description = models.NewDescription(string(text))
	return m, err
}

func runModel(f *File, name string) (models.Model, error) {
	torch, err := models.ParseRelease(f.Torch)
	if err != nil {
		return models.Model{}, err
	}
	r := f.Recordings[0]
	batch := cmp.Or(r.Batch, 1)
	return models.Model{
		Name: name, Summary: "a recorded run of " + f.Name, Source: "recorded on " + f.GPU + ", torch " + f.Torch,
		Torch: f.Torch, Stages: []string{"recorded"},
		TrainedByStage: map[string]string{"recorded": "what the run trained"},
		Default: models.Case{
			Stage: "recorded", Batch: batch, Accumulate: 1, Torch: torch, AllocConf: f.AllocConf,
		},
		Batches: []int{batch}, BatchUnit: "sample",
		Recorded: true,
		Caveat:   func(models.Case) []string { return caveatsOfRun(&f.Header) },
		Build:    func(models.Case) (models.Trainer, error) { return run{r.Program}, nil },
	}, nil
}

// caveatsOfRun returns warnings that limit the estimates of a recorded run.
func caveatsOfRun(h *Header) []string {
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

// run is the trainer of a complete run, whose program it copies to the tape.
type run struct{ p *program.Program }

func (run) Counts() models.Counts { return models.Counts{} }

// Record copies the run's program to the tape, for [models.Trainer]. The number of steps is the run's own.
func (t run) Record(tape *trace.Tape, _ int) error {
	tape.Play(t.p)
	return nil
}
