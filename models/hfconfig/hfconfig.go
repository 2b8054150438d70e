// Package hfconfig creates models from config.json files of Hugging Face transformers. Keys, defaults and checks follow
// transformers 5.23.
package hfconfig

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/train"
)

// Scheme is the prefix of names of models from configurations, as in hf:config.json.
const Scheme = "hf"

// Limits of a configuration's numbers, far above the sizes of trained models. Recordings stay small, sums below 2^63.
const (
	mostBytes        = 16 << 20
	mostLayers       = 512
	mostWidth        = 1 << 16
	mostInner        = 1 << 20
	mostVocab        = 1 << 24
	mostPositions    = 1 << 24
	mostClasses      = 1 << 20
	mostImage        = 1 << 13
	mostChannels     = 1 << 10
	mostConvolutions = 64
	mostKernel       = 1 << 12
	mostMerged       = 1 << 6
	mostParameters   = 1 << 40
)

// The tasks, named as users write them in --task.
const (
	causalLM       = "causal-lm"
	maskedLM       = "masked-lm"
	classification = "classification"
	tokens         = "token-classification"
	transcription  = "transcription"
	ctc            = "ctc"
)

// Tasks returns the names of all tasks, such as causal-lm.
func Tasks() []string {
	return []string{causalLM, maskedLM, classification, tokens, transcription, ctc}
}

// Source returns the source of models whose names begin with hf:, for the registry of models.
func Source() models.Source {
	return models.Source{
		Scheme: Scheme, Open: Open,
		AcceptsName: func(name string) bool { return hubName.MatchString(name) && !modelFileName.MatchString(name) },
		Names: func() []string {
			return lists.Map(HubModels(), func(m HubModel) string { return Scheme + ":" + m.Name })
		},
		Restore: func(name, config string) (models.Model, error) { return parse(name, name, []byte(config)) },
	}
}

// Open returns the model of a config.json, of a folder with one, or of a model's name on the hub. For a name it looks
// in the hub's caches, in [OfHub], and online if [hub.Default] is set. The error is a [*input.FormatError].
func Open(path string) (models.Model, error) {
	if path == "" {
		return models.Model{}, input.FileErrorf(Scheme+":", "the path after the colon is missing; write --model "+
			"%s:path/to/config.json", Scheme)
	}
	path, teacher, taught := strings.Cut(path, TeacherMark)
	path = configPath(path)
	data, named, err := readModel(path)
	if err == nil && taught {
		data, err = addTeacher(path, data, teacher)
	}
	if err != nil {
		return models.Model{}, err
	}
	name := ""
	if named { // which has no suffix to cut off
		name = Scheme + ":" + filepath.Base(path)
	}
	return parse(path, name, data)
}

// Parse returns the model of a configuration. The file is not opened, only its path is used for the model's name. The
// error is a [*input.FormatError].
func Parse(file string, data []byte) (models.Model, error) { return parse(file, "", data) }

func parse(file, name string, data []byte) (models.Model, error) {
	r, err := newReader(file, data)
	if err != nil {
		return models.Model{}, err
	}
	kind, f, err := r.family()
	if err != nil {
		return models.Model{}, err
	}
	r.aliases = f.aliases
	r.refuseCommonKeys()
	a := f.read(r)
	if a.teacher, err = r.readTeacher(); err != nil {
		return models.Model{}, err
	}
	weights := models.WeightType(r.weightType())
	if !f.half {
		weights = ""
	}
	trained, instead := r.defaultTask(f)
	if r.err != nil {
		return models.Model{}, r.err
	}
	name = cmp.Or(name, Scheme+":"+r.modelName())
	config, err := r.usedKeys()
	if err != nil {
		return models.Model{}, fmt.Errorf("%s: %w", file, err)
	}
	packed, tasks := r.storedQuantization(), slices.Sorted(maps.Values(f.heads))
	if trained != "" && len(instead) > 0 {
		a.addCaveat(func(c models.Case) []string {
			return []string{fmt.Sprintf("%s has no loss of its own; planned as %s (--task: %s)",
				strings.Join(instead, ", "), c.Task, strings.Join(tasks, ", "))}
		})
	}
	a.addCheck(packed.check)
	a.addRefusal("task", fmt.Sprintf("the configuration's architectures name %s, which vprof cannot train; choose "+
		"the class to train with --task: %s", strings.Join(instead, ", "), strings.Join(tasks, ", ")),
		func(c models.Case) bool { return c.Task == "" })
	a.caveats = slices.Insert(a.caveats, 0, packed.caveat)
	m := train.CompleteModel(models.Model{
		Name: name, Summary: a.summary, Source: "transformers 5.23, model_type " + kind,
		Tasks: tasks, Default: models.Case{Task: trained, Weights: weights},
		Description: models.NewDescription(string(config)),
		Batches:     a.batches, BatchUnit: a.unit, Settings: a.settings, SupportsLoRA: true, HasTowers: a.towers,
		IsTransformers: true,
		HalfWeights:    f.half, Supports: a.supportedOptions(), Notes: a.notes,
		Caveat: a.caveatsOf, Check: a.check,
	}, a.batch, a.newTask)
	if build := m.Build; a.adapters != nil {
		m.Build = func(c models.Case) (models.Trainer, error) {
			if c.LoRA != nil {
				c.LoRA = new(a.adapters(c))
			}
			return build(c)
		}
	}
	return m, r.affordable(m)
}

// affordable returns an error for a model with too many parameters to record.
func (r *reader) affordable(m models.Model) error {
	c := m.Default
	c.Task = m.Tasks[0]
	c, err := m.Complete(c)
	if err != nil {
		return nil //nolint:nilerr // it is about the settings of a case, which a user may choose
	}
	trainer, err := m.Build(c)
	if err != nil {
		return err
	}
	if n := trainer.Counts().Total; n > mostParameters {
		return input.FileErrorf(r.file, "the configuration describes %d parameters; vprof accepts at most %d", n,
			int64(mostParameters))
	}
	return nil
}
