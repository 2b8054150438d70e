package hfconfig

import (
	"fmt"
	"maps"
	"sync"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/gpt"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/train"
)

// A family is a model_type of transformers.
type family struct {
	// heads are the tasks by the names that stand in architectures.
	heads map[string]string
	// usual is the task if a file has no architectures.
	usual string
	// half says that weights may be in half precision.
	half bool
	// aliases are further names of keys: the attribute_map, inverted.
	aliases map[string]string
	read    func(*reader) architecture
}

// families returns all types: the ones here, and the tables of decoders.
func families() map[string]family {
	familyTable.Do(func() { familyTable.all = allFamilies() })
	return familyTable.all
}

// familyTable keeps what families returns. A variable with a value would need itself, as wrappers read their parts.
var familyTable struct {
	sync.Once
	all map[string]family
}

func allFamilies() map[string]family {
	all := map[string]family{
		"bert": {
			heads: headsOf("Bert", maskedLM, classification, tokens), usual: maskedLM, half: true, read: readBERT,
		},
		"roberta": {
			heads: headsOf("Roberta", maskedLM, classification, tokens), usual: maskedLM, half: true, read: readRoBERTa,
		},
		"distilbert": {
			heads: headsOf("DistilBert", maskedLM, classification, tokens), usual: maskedLM, half: true,
			read: readDistil,
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
	for kind, d := range relatives {
		all[kind] = d.family()
	}
	for kind, w := range wrappers {
		all[kind] = w.family()
	}
	for kind, d := range gemmas {
		all[kind] = d.family()
	}
	return all
}

// headsOf returns the classes of transformers for some tasks, whose names begin alike.
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

// decoder returns what all text decoders share: the sizes of their batches, and the
// settings. length is how many tokens a row has.
func decoder(name string, layers, width, classes int64, length models.Setting) architecture {
	return architecture{
		levers:  models.LeverSet{Recompute: true, Objective: true},
		summary: fmt.Sprintf("%s decoder, %d layers of width %d", name, layers, width),
		unit:    "sequence", batch: 1, batches: []int{1, 2, 4, 8, 16, 32},
		settings: append([]models.Setting{
			length, hf.PaddingSetting(0), hf.PackedSetting(0), hf.ClassesSetting(classes), hf.SharedLabelsSetting(),
			hf.FlatSetting(), hf.Head(),
		}, hf.LossSettings()...),
		only: onlyDecoders(),
		notes: []string{
			"trained without the cache of keys and values, as the Trainer of transformers does; loops of one's own " +
				"have it (--set use-cache)",
			"rows that are padded, or hold several sequences, need an attention mask, which flash attention does " +
				"not take: --set padding=1, --set packed=1",
		},
		rules: []rule{
			refusing("packed", "rows that come with a padding mask are not looked at for several sequences; leave out "+
				"padding", func(c models.Case) bool { return c.On("padding") && c.On("packed") }),
			refusing("flat", "a batch in one row has no padding and no ranks that share rows, and needs the loss of "+
				"the next token; leave it out", func(c models.Case) bool {
				s := c.Strategy
				return c.On("flat") && (c.On("padding") || c.On(hf.SharedLabels) || !c.Objective.IsZero() ||
					s != nil && (s.CP > 1 || s.Sequence))
			}),
			hf.CheckLoss,
		},
	}
}

// onlyDecoders returns the settings of decoders that one task alone has a use for.
func onlyDecoders() map[string][]string {
	only := maps.Clone(onlyClassification)
	for _, name := range append(hf.LossSettingNames(), hf.SharedLabels, "flat", hf.HeadSetting) {
		only[name] = []string{causalLM}
	}
	return only
}

// positionsKey is how many tokens a model is made for.
const positionsKey = "max_position_embeddings"

func readGPT(r *reader) architecture {
	r.refuse("add_cross_attention", "false")
	var c gpt.Config
	r.fields(&c, "Vocab=vocab_size:50257 Width=n_embd:768 Layers=n_layer:12 Heads=n_head:12 "+
		"Positions=n_positions:1024 Activation=activation_function:gelu_new !Untied=tie_word_embeddings:true "+
		"EmbedDropout=embd_pdrop:0.1 AttentionDropout=attn_pdrop:0.1 ResidualDropout=resid_pdrop:0.1")
	c.Inner = r.sizeOr("n_inner", 4*c.Width, 4*c.Width, mostInner)
	r.heads("n_head", c.Heads, "n_embd", c.Width)
	_, padded := r.padToken(-1, c.Vocab)
	labels := r.labels()
	problem := r.problem(labels)
	a := decoder("GPT-2", c.Layers, c.Width, labels, rowLength(2048, c.Positions, positionsKey))
	a.eager()
	a.levers.Cache = true
	a.task = func(k models.Case) train.Task {
		c := c
		c.Eager = hf.Eager.Chosen(k)
		c.CausalBuffers = !k.Libraries().NoCausalBuffers
		if k.Task == classification {
			return gpt.Classification(c, classesOf(k, problem), padded, hf.TextOf(k))
		}
		return gpt.CausalLM(c, hf.TextOf(k))
	}
	return a
}
