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
	"github.com/vprof/vprof/models/whisper"
)

// listedConfigs are the configurations of models that vprof lists under short names, such as gpt2.
//
//go:embed listed.json
var listedConfigs []byte

// A listedKind holds what listed models of one model_type share besides their configurations.
type listedKind struct {
	// as is the end of the summary, such as ", as image classifier".
	as    string
	class string
	// captured reports whether vprof capture supports the class.
	captured bool
	// settings are the settings that a case may change; nil for the model_type's own. keys maps settings to the keys of
	// the configuration that they change and whose values are their defaults.
	settings []models.Setting
	keys     map[string]string
	half     bool
	supports models.MemoryOptionSupport
	notes    []string
}

// sizeSetting returns a setting for a number in the configuration.
func sizeSetting(name, usage string, most int64) models.Setting {
	return models.Setting{Name: name, Usage: usage, Min: 1, Max: most}
}

const (
	headNote = "stage head trains the output layer"
	tiedNote = headNote + ", whose weight the embeddings share"
)

// listedKinds maps model_types to the properties of their listed models.
var listedKinds = map[string]listedKind{
	"vit": {
		class: "ViTForImageClassification", as: ", as image classifier", captured: true,
		keys: map[string]string{"image-size": "image_size", "classes": "num_labels"},
	},
	"bert": {
		class: "BertForMaskedLM", as: ", as masked language model", captured: true, half: true,
		settings: []models.Setting{
			hf.LengthSetting(128, 512), sizeSetting("layers", "encoder layers", 256), hf.PaddingSetting(1),
		},
		keys:  map[string]string{"layers": "num_hidden_layers"},
		notes: []string{tiedNote, hf.PaddingNote},
	},
	"gpt2": {
		class: "GPT2LMHeadModel", as: ", as causal language model", captured: true, half: true,
		settings: []models.Setting{
			hf.LengthSetting(1024, 1024), sizeSetting("layers", "decoder layers", 256), hf.PackedSetting(1),
			hf.SharedLabelsSetting(),
		},
		keys:     map[string]string{"layers": "n_layer"},
		supports: models.MemoryOptionSupport{Cache: true, Quantize: true, Recompute: true},
		notes:    []string{tiedNote, hf.PackedNote},
	},
	"llama": {
		class: "LlamaForCausalLM", as: " unless set, as causal language model", captured: true, half: true,
		settings: []models.Setting{
			hf.LengthSetting(0, 1<<20), sizeSetting("layers", "decoder layers", 512),
			{Name: "width", Usage: "width of the residual stream", Min: 2, Max: 1 << 16},
			sizeSetting("heads", "heads of the query, which divide the width", 1<<10),
			sizeSetting("kv-heads", "heads of key and value, which divide the heads", 1<<10),
			sizeSetting("inner", "width of the feed-forward layers", 1<<20),
			sizeSetting("vocab", "tokens in the vocabulary", 1<<24),
			models.SwitchSetting("tied", 0, "1 if the output layer shares the weight of the embeddings, 0 if not"),
			hf.PackedSetting(1), hf.SharedLabelsSetting(),
		},
		keys: map[string]string{
			"seq-len": positionsKey, "layers": "num_hidden_layers", "width": "hidden_size",
			"heads": "num_attention_heads", "kv-heads": "num_key_value_heads", "inner": "intermediate_size",
			"vocab": "vocab_size", "tied": "tie_word_embeddings",
		},
		supports: models.MemoryOptionSupport{
			Cache: true, Quantize: true, Recompute: true, Liger: true, Tiles: true, Context: true,
		},
		notes: []string{headNote, hf.PackedNote},
	},
	"whisper": {
		class: "WhisperForConditionalGeneration",
		settings: []models.Setting{
			hf.LengthSetting(128, 448), sizeSetting("mel-bins", "bins of a log-mel frame", 1024), hf.PackedSetting(1),
			whisper.PositionsSetting(),
		},
		keys: map[string]string{"mel-bins": "num_mel_bins"},
		notes: []string{
			"every clip is padded to 30 s, so its length does not matter", tiedNote, hf.PackedNote,
			"the steps measured for vprof train the encoder's positions; hf:config.json leaves them fixed: --set " +
				"encoder-positions=0,packed=0 is the same step",
		},
	},
	"wav2vec2": {
		class: "Wav2Vec2ForCTC",
		notes: []string{
			"the input of the convolutions requires a gradient in training, so stage head runs backward through all " +
				"of them",
			"layers are never dropped and nothing is masked, so that every step needs the same",
		},
	},
}

// A listedModel is a configuration with a short name and a default batch size.
type listedModel struct {
	listedKind
	Name   string
	Batch  int
	Config map[string]json.RawMessage
}

// allListed returns the listed models.
var allListed = sync.OnceValue(func() (all []listedModel) {
	if err := json.Unmarshal(listedConfigs, &all); err != nil {
		panic(err)
	}
	return all
})

// Listed returns the listed models of the given model_types.
func Listed(kinds ...string) (out []models.Model) {
	for _, l := range allListed() {
		if kind := unquoted(l.Config["model_type"]); slices.Contains(kinds, kind) {
			l.listedKind = listedKinds[kind]
			out = append(out, l.model())
		}
	}
	return out
}

// configWith returns the configuration with the values of settings. A setting of 1 or 0 sets a boolean key.
func (l listedModel) configWith(s models.Settings) map[string]json.RawMessage {
	c := maps.Clone(l.Config)
	for name, key := range l.keys {
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

// architecture reads the configuration with the values of settings. The error is a [*input.FormatError].
func (l listedModel) architecture(s models.Settings) (architecture, error) {
	r := &reader{file: l.Name, raw: l.configWith(s), used: map[string]json.RawMessage{}}
	_, f, err := r.family()
	if err != nil {
		return architecture{}, err
	}
	r.aliases = f.aliases
	r.refuseCommonKeys()
	a := f.read(r)
	if r.err != nil {
		return a, r.err
	}
	return a, nil
}

func (l listedModel) check(c models.Case) error {
	a, err := l.architecture(c.Settings)
	var wrong *input.FormatError
	switch {
	case errors.As(err, &wrong):
		for name, key := range l.keys {
			if key == wrong.Key {
				return c.FieldError(name, "%s", wrong.Reason)
			}
		}
	case err == nil:
		for _, refused := range a.checks {
			if field, reason := refused(c); reason != "" {
				return c.FieldError(field, "%s", reason)
			}
		}
	}
	return err
}

func (l listedModel) model() models.Model {
	a, err := l.architecture(nil)
	if err != nil {
		panic(err)
	}
	settings := slices.Clone(l.settings)
	if settings == nil {
		settings = a.settings
	}
	for i, s := range settings {
		if key := l.keys[s.Name]; key != "" && s.Default == 0 {
			_ = json.Unmarshal(l.Config[key], &settings[i].Default) // false is zero
		}
	}
	l.supports.Loop = models.LoopTrainer
	m := models.Model{
		Name: l.Name, Summary: a.summary + l.as, Source: "transformers 5.23, " + l.class,
		Batches: a.batches, BatchUnit: a.unit, Settings: settings, SupportsLoRA: true, HalfWeights: l.half,
		IsTransformers: true,
		Supports:       l.supports, Notes: l.notes, Check: l.check,
	}
	if l.captured {
		m.Class = l.captureClass
	}
	return train.CompleteModel(m, max(l.Batch, a.batch), func(c models.Case) train.Task {
		a, err := l.architecture(c.Settings)
		if err != nil {
			panic(err) // the check has found nothing
		}
		return a.task(c)
	})
}

func (l listedModel) captureClass(s models.Settings) models.LibraryClass {
	config := map[string]any{}
	for key, value := range l.configWith(s) {
		config[key] = value
	}
	class := models.TransformersClass(l.class, s, config)
	if s[hf.Padding] > 0 {
		class.Inputs = []string{fmt.Sprintf("attention_mask=int64[batch,seq=%d]", class.Seq)}
	}
	return class
}
