package hfconfig

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/vprof/vprof/internal/input"
)

// A family holds the tasks and the reader of a model_type of transformers.
type family struct {
	// heads maps class names in the key architectures to tasks.
	heads map[string]string
	// usual is the task of a file without the key architectures.
	usual string
	// half reports whether weights may be in half precision.
	half bool
	// aliases maps common key names to the model_type's own: transformers' attribute_map, inverted.
	aliases map[string]string
	read    func(*reader) architecture
}

func familyOf(kind string) (f family, ok bool) {
	if f, ok = smallFamilies()[kind]; ok {
		return f, true
	}
	if w, ok := multimodalTypes[kind]; ok {
		return w.family(), true
	}
	if g, ok := gemmaTypes[kind]; ok {
		return g.family(), true
	}
	d, ok := llamaTypeOf(kind)
	return d.family(), ok && !d.InWrappers
}

// smallFamilies returns the families that are not decoders of Llama's or Gemma's kind.
var smallFamilies = sync.OnceValue(func() map[string]family {
	return map[string]family{
		"bert": {heads: headsOf("Bert", maskedLM, classification, tokens), usual: maskedLM, half: true, read: readBERT},
		"roberta": {
			heads: headsOf("Roberta", maskedLM, classification, tokens), usual: maskedLM, half: true, read: readRoBERTa,
		},
		"xlm-roberta": {
			heads: headsOf("XLMRoberta", maskedLM, classification, tokens), usual: maskedLM, half: true,
			read: readXLMRoBERTa,
		},
		"camembert": {
			heads: headsOf("Camembert", maskedLM, classification, tokens), usual: maskedLM, half: true,
			read: readXLMRoBERTa,
		},
		"distilbert": {
			heads: headsOf("DistilBert", maskedLM, classification, tokens), usual: maskedLM, half: true,
			read: readDistilBERT,
			aliases: map[string]string{
				"dim": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers",
			},
		},
		"gpt2": {
			heads: map[string]string{"GPT2LMHeadModel": causalLM, "GPT2ForSequenceClassification": classification},
			usual: causalLM, half: true, read: readGPT,
			aliases: map[string]string{
				"n_embd": "hidden_size", "n_positions": "max_position_embeddings", "n_head": "num_attention_heads",
				"n_layer": "num_hidden_layers",
			},
		},
		"opt": {heads: headsOf("OPT", causalLM, classification), usual: causalLM, half: true, read: readOPT},
		"vit": {
			heads: map[string]string{"ViTForImageClassification": classification}, usual: classification, read: readViT,
		},
		"whisper": {
			heads: headsOf("Whisper", transcription), usual: transcription, read: readWhisper,
			aliases: map[string]string{
				"d_model": "hidden_size", "encoder_attention_heads": "num_attention_heads",
				"encoder_layers": "num_hidden_layers",
			},
		},
		"wav2vec2": {heads: headsOf("Wav2Vec2", ctc), usual: ctc, read: readWav2Vec2},
	}
})

// headsOf maps the names of transformers' classes for some tasks, which begin with name, to the tasks.
func headsOf(name string, tasks ...string) map[string]string {
	ends := map[string]string{
		causalLM: "CausalLM", maskedLM: "MaskedLM", classification: "SequenceClassification",
		tokens: "TokenClassification", transcription: "ConditionalGeneration", ctc: "CTC",
	}
	heads := map[string]string{}
	for _, task := range tasks {
		heads[name+"For"+ends[task]] = task
	}
	return heads
}

// Types returns the model_types that vprof supports, sorted.
func Types() []string {
	all := slices.Collect(maps.Keys(smallFamilies()))
	all = slices.AppendSeq(slices.AppendSeq(all, maps.Keys(multimodalTypes)), maps.Keys(gemmaTypes))
	for kind := range llamaTypeRows() {
		if _, alone := familyOf(kind); alone {
			all = append(all, kind)
		}
	}
	slices.Sort(all)
	return all
}

func (r *reader) family() (kind string, f family, err error) {
	value, _, ok := r.get("model_type")
	switch {
	case !ok:
		return "", f, input.KeyErrorf(r.file, "model_type", "missing: it must name the architecture, like \"llama\"")
	case json.Unmarshal(value, &kind) != nil:
		return "", f, input.KeyErrorf(r.file, "model_type", "%s: need a name like \"llama\"", excerpt(value))
	}
	if f, ok = familyOf(kind); !ok {
		return "", f, input.KeyErrorf(r.file, "model_type", "vprof has no model for the architecture %s; \"vprof run "+
			"-- python train.py\" measures your training script on a simulated GPU, and \"vprof capture %s:%s -o "+
			"model.pt2\" makes a file for the other commands", excerpt(value), Scheme, r.file)
	}
	return kind, f, nil
}
