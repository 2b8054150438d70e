package hfconfig

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/train"
)

// listedConfigs are the configurations of models with a name of their own.
//
//go:embed listed.json
var listedConfigs []byte

// A listedKind holds the properties that listed models of a model_type share, besides their configurations.
type listedKind struct {
	// As ends the summary.
	As    string
	Class string
	// Captured reports whether vprof capture takes the class.
	Captured bool
	// Settings are the settings of a case, nil for the ones of the type. Keys are the keys of the configuration that
	// settings change, which have their defaults.
	Settings []models.Setting
	Keys     map[string]string
	Half     bool
	Levers   models.LeverSet
	Notes    []string
}

// A listed model is a configuration with a name.
type listed struct {
	listedKind
	Name   string
	Batch  int
	Config map[string]json.RawMessage
}

// allListed reads the listed models.
var allListed = sync.OnceValue(func() []listed {
	var all struct {
		Kinds  map[string]listedKind
		Models []listed
	}
	if err := json.Unmarshal(listedConfigs, &all); err != nil {
		panic(err)
	}
	for i, l := range all.Models {
		all.Models[i].listedKind = all.Kinds[unquoted(l.Config["model_type"])]
	}
	return all.Models
})

// Listed returns the listed models of some types.
func Listed(kinds ...string) (out []models.Model) {
	for _, l := range allListed() {
		if slices.Contains(kinds, unquoted(l.Config["model_type"])) {
			out = append(out, l.model())
		}
	}
	return out
}

// with returns the configuration with the values of settings, where booleans are 1 and 0.
func (l listed) with(s models.Settings) map[string]json.RawMessage {
	c := maps.Clone(l.Config)
	for name, key := range l.Keys {
		value, given := s[name]
		switch old := string(l.Config[key]); {
		case given && (old == "true" || old == "false"):
			c[key] = json.RawMessage(fmt.Sprint(value == 1))
		case given:
			c[key] = json.RawMessage(fmt.Sprint(value))
		}
	}
	return c
}

// read reads the configuration with the values of settings. The error is a [*input.FormatError].
func (l listed) read(s models.Settings) (architecture, error) {
	r := &reader{file: l.Name, raw: l.with(s), used: map[string]json.RawMessage{}}
	_, f, err := r.family()
	if err != nil {
		return architecture{}, err
	}
	r.aliases = f.aliases
	r.common()
	a := f.read(r)
	if r.err != nil {
		return a, r.err
	}
	return a, nil
}

// check finds settings that do not go together. The error is a [*models.CaseError].
func (l listed) check(c models.Case) error {
	a, err := l.read(c.Settings)
	var wrong *input.FormatError
	switch {
	case errors.As(err, &wrong):
		for name, key := range l.Keys {
			if key == wrong.Key {
				return c.Wrong(name, "%s", wrong.Reason)
			}
		}
	case err == nil:
		for _, refused := range a.rules {
			if field, reason := refused(c); reason != "" {
				return c.Wrong(field, "%s", reason)
			}
		}
	}
	return err
}

// model returns the model of the configuration.
func (l listed) model() models.Model {
	a, err := l.read(nil)
	if err != nil {
		panic(err)
	}
	settings := slices.Clone(l.Settings)
	if settings == nil {
		settings = a.settings
	}
	for i, s := range settings {
		settings[i].Length = s.Length || s.Name == "seq-len" // which JSON leaves out
		if key := l.Keys[s.Name]; key != "" && s.Default == 0 {
			_ = json.Unmarshal(l.Config[key], &settings[i].Default) // false is zero
		}
	}
	l.Levers.Loop = models.LoopTrainer
	m := models.Model{
		Name: l.Name, Summary: a.summary + l.As, Source: "transformers 5.23, " + l.Class,
		Batches: a.batches, BatchUnit: a.unit, Settings: settings, Adapts: true, HalfWeights: l.Half,
		Transformers: true,
		Levers:       l.Levers, Notes: l.Notes, Check: l.check,
	}
	if l.Captured {
		m.Class = l.captures
	}
	return train.Model(m, max(l.Batch, a.batch), func(c models.Case) train.Task {
		a, err := l.read(c.Settings)
		if err != nil {
			panic(err) // the check has found nothing
		}
		return a.task(c)
	})
}

// captures returns the class of transformers with the values of settings.
func (l listed) captures(s models.Settings) models.Class {
	config := map[string]any{}
	for key, value := range l.with(s) {
		config[key] = value
	}
	class := models.OfTransformers(l.Class, s, config)
	if s[hf.Padding] == 1 {
		class.Inputs = []string{fmt.Sprintf("attention_mask=int64[batch,seq=%d]", class.Seq)}
	}
	return class
}
