package recorded

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2/cudnnanswers"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
)

// FileOf returns the name of the file with a model's compiled steps: "vit.vprof" for "vit.pt2".
func FileOf(model string) string { return strings.TrimSuffix(model, filepath.Ext(model)) + Suffix }

// FileOfListed returns the file in a folder with the compiled steps of a listed model's case: one for each setting.
func FileOfListed(folder string, m models.Model, c models.Case) string {
	words := append([]string{m.Name}, m.Canonical(c).Settings.Assignments()...)
	return filepath.Join(folder, strings.Join(words, ",")+Suffix)
}

// CompiledSteps returns a function that finds steps recorded under torch.compile: for users' models in the file beside
// the model's, for listed models in a folder (none if it is empty). o, which may be nil, is asked about the
// convolutions of batch sizes that were not recorded.
func CompiledSteps(folder string, o cudnnanswers.Source) models.StepsFunc {
	return func(m models.Model, c models.Case, content []byte) (models.Model, error) {
		usual, path := m.Default, ""
		switch {
		case m.Class != nil:
			usual.Settings = c.Settings
			if folder != "" {
				path = FileOfListed(folder, m, c)
			}
		case m.File != "":
			path = FileOf(m.File)
		}
		if content == nil {
			var err error
			if content, err = os.ReadFile(path); path == "" || errors.Is(err, fs.ErrNotExist) {
				return m, nil
			} else if err != nil {
				return m, err
			}
		}
		f, err := Read(bytes.NewReader(content), cmp.Or(path, m.Name))
		if err != nil || f.Steps == nil || f.Steps.Form == Eager {
			return m, err
		}
		m.Description = m.Description.WithSteps(content)
		return f.withCompiledSteps(m, usual, o), nil
	}
}

// withLoop returns the case with a training loop: its own, or the model's. transformers' Trainer clips gradients, too.
func withLoop(c models.Case, own models.Loop) models.Case {
	c.Loop = cmp.Or(c.Loop, own)
	if own == models.LoopTrainer {
		c.Clip = cmp.Or(c.Clip, models.ClipNorm)
	}
	return c
}

// withCompiledSteps returns the model with the file's compiled steps, recorded with the settings of the case usual.
func (f *File) withCompiledSteps(m models.Model, usual models.Case, o cudnnanswers.Source) models.Model {
	if m.Class == nil { // of a listed model other sizes are recorded in other files
		m.Settings = f.recordedSizes(m.Settings)
	}
	own, build, caveat, caches := m.Supports.Loop, m.Build, m.Caveat, m.Supports.Cache
	m.Unrecorded = func(c models.Case) string { return f.missingReason(c, usual) }
	m.Build = func(c models.Case) (models.Trainer, error) {
		if !c.Compile || f.missingReason(c, usual) != "" {
			return build(c)
		}
		r, err := f.AtBatch(string(c.AMP), c.Batch)
		if err != nil {
			return nil, &input.FormatError{File: m.Name, Reason: err.Error()}
		}
		return newTrainer(f, r, withLoop(c, own), o), nil
	}
	m.Reordered = func(c models.Case) (models.Trainer, error) {
		_, r, err := f.inBothOrders(string(c.AMP), c.Batch)
		if err != nil || r == nil {
			return nil, nil
		}
		return newTrainer(f, r, withLoop(c, own), o), nil
	}
	m.Kernels = f.kernels
	m.Caveat = func(c models.Case) []string {
		var all []string
		if caveat != nil {
			all = caveat(c)
		}
		if c.Compile && f.missingReason(c, usual) == "" {
			all = append(all, f.caveats(c)...)
			if caches && c.UsesCache() {
				all = append(all, "torch-compile: recorded with use_cache=False; a loop that keeps what the model "+
					"returned holds the keys and values of all layers, too, unless the configuration says so")
			}
		}
		return all
	}
	return m
}

// kernels returns the recorded programs for [models.Model.Kernels].
func (f *File) kernels(c models.Case) (one, other *program.Program, share float64) {
	near, far, err := f.neighbors(string(c.AMP), c.Batch)
	if err != nil || len(near.Program.Ops) == 0 || len(far.Program.Ops) == 0 {
		return nil, nil, 0
	}
	if near != far {
		share = float64(c.Batch-near.Batch) / float64(far.Batch-near.Batch)
	}
	return near.Program, far.Program, share
}

func (f *File) recordedSizes(all []models.Setting) []models.Setting {
	all = slices.Clone(all)
	for i := range all {
		if at, ok := f.Steps.Sizes[strings.TrimSuffix(all[i].Name, "-len")]; ok {
			all[i].Default = at
		}
	}
	return all
}

// changeableFields lists the JSON keys of a case's fields that may differ from the recorded case, since they do not
// change the recorded forward and backward passes.
var changeableFields = []string{
	"model", "batch", "accumulate", "optimizer", "clip", "alloc_conf", "torch_compile", "config_sha256",
	"dataset_bytes", "amp", "loss", "torch", "settings", "blocks", "loop", "use_cache",
	"stack",
}

// missingReason returns why the file has no recording of a case, empty if it has. usual is the model's default case.
func (f *File) missingReason(c, usual models.Case) string {
	recordedBy, err := stack.Lookup(f.Torch)
	if err != nil || recordedBy.Release() != c.ReleaseName() {
		return fmt.Sprintf("PyTorch %s compiled what is recorded, and another release compiles otherwise", f.Torch)
	}
	return f.difference(c, usual)
}

// difference returns how a case differs from the recorded one; empty if the step is the same.
func (f *File) difference(c, usual models.Case) string {
	if c.Loss != f.Steps.Loss && c.Loss != usual.Loss {
		return "recorded with another loss"
	}
	if c.UseCache == "true" {
		return "recorded with use_cache=False"
	}
	if len(f.recordings(string(c.AMP))) == 0 {
		return fmt.Sprintf("no step with --amp %v is recorded", c.AMP)
	}
	for name, size := range c.Settings {
		if at, ok := f.Steps.Sizes[strings.TrimSuffix(name, "-len")]; ok && at != size {
			return fmt.Sprintf("recorded with %s=%d", name, at)
		} else if set, given := usual.Settings[name]; !ok && given && set != size {
			return "recorded without --set " + name
		}
	}
	switch key := models.FirstDifferingKey(c, usual, sameStep); key {
	case "":
	case "gpus", "strategy":
		return "recorded on one GPU"
	default:
		return "recorded without " + key
	}
	if c.Batch > 0 {
		if _, err := f.AtBatch(string(c.AMP), c.Batch); err != nil {
			return err.Error()
		}
	}
	return ""
}

// sameStep reports whether two values of a field give the same step: the field is in [changeableFields], or the values
// are equal, or each is absent, zero or the default.
func sameStep(key string, a, b json.RawMessage) bool {
	nothing := func(v json.RawMessage) bool {
		return len(v) == 0 || slices.Contains([]string{`""`, "false", "0", "1", `"full"`}, string(v))
	}
	return slices.Contains(changeableFields, key) || bytes.Equal(a, b) || nothing(a) && nothing(b)
}

// caveats returns notes about the recording, and about limits of estimates from it.
func (f *File) caveats(c models.Case) []string {
	forms := map[string]string{
		"whole": "the model", "loss": "the model with its loss",
		"blocks": "each block of the model",
	}
	all := []string{fmt.Sprintf("torch-compile: %s as Inductor of PyTorch %s compiled it for %s", forms[f.Steps.Form],
		f.Torch, f.GPU)}
	r, err := f.AtBatch(string(c.AMP), c.Batch)
	if err != nil {
		return all
	}
	if r.Breaks > 0 {
		all = append(all, fmt.Sprintf("torch-compile: %d graph breaks; what lies between the graphs ran eagerly",
			r.Breaks))
	}
	if near, _, err := f.neighbors(string(c.AMP), c.Batch); err == nil && near.splitDifferences(c.Batch) > 0 {
		all = append(all, fmt.Sprintf("torch-compile: at batch %d Inductor splits sums over samples otherwise than at "+
			"batch %d, whose order is planned, and may hold some percent less or more; record it: --batch %[1]d of "+
			"vprof capture", c.Batch, near.Batch))
	}
	batches := f.batches(string(c.AMP))
	if from, to := batches[0], batches[len(batches)-1]; c.Batch < from || c.Batch > to {
		all = append(all, fmt.Sprintf("torch-compile: recorded from batch %d to %d, and continued in a line", from, to))
	}
	return all
}
