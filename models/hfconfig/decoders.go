package hfconfig

import (
	"fmt"
	"maps"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/gpt"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/train"
)

// decoder is what all text decoders share: the sizes of their batches, and the
// settings. length is how many tokens a row has.
func decoder(name string, layers, width, classes int64, length models.Setting) architecture {
	return architecture{
		levers:  models.LeverSet{Recompute: true, Objective: true},
		summary: fmt.Sprintf("%s decoder, %d layers of width %d", name, layers, width),
		unit:    "sequence", batch: 1, batches: []int{1, 2, 4, 8, 16, 32},
		settings: append([]models.Setting{
			length, hf.PaddingSetting(0), hf.PackedSetting(0), hf.ClassesSetting(classes), hf.SharedLabelsSetting(),
		}, hf.LossSettings()...),
		only: onlyDecoders(),
		notes: []string{
			"trained without the cache of keys and values, as the Trainer of transformers does; loops of one's own " +
				"have it (--use-cache)",
			"rows that are padded, or hold several sequences, need an attention mask, which flash attention does " +
				"not take: --set padding=1, --set packed=1",
		},
		rules: []rule{
			refusing("packed", "rows that come with a padding mask are not looked at for several sequences; leave out "+
				"padding", func(c models.Case) bool { return c.On("padding") && c.On("packed") }),
			hf.CheckLoss,
		},
	}
}

// onlyDecoders are the settings of decoders that one task alone has a use for.
func onlyDecoders() map[string][]string {
	only := maps.Clone(onlyClassification)
	for _, name := range append(hf.LossSettingNames(), hf.SharedLabels) {
		only[name] = []string{causalLM}
	}
	return only
}

// positionsKey is how many tokens a model is made for.
const positionsKey = "max_position_embeddings"

func readGPT(r *reader) architecture {
	r.refuse("add_cross_attention", "false")
	c := gpt.Config{
		Vocab: r.size("vocab_size", 50257, mostVocab), Width: r.size("n_embd", 768, mostWidth),
		Layers: r.size("n_layer", 12, mostLayers), Heads: r.size("n_head", 12, mostWidth),
		Positions:    r.size("n_positions", 1024, mostPositions),
		Activation:   r.word("activation_function", "gelu_new", hf.Activations()),
		Untied:       !r.flag("tie_word_embeddings", true),
		EmbedDropout: r.probability("embd_pdrop", 0.1), AttentionDropout: r.probability("attn_pdrop", 0.1),
		ResidualDropout: r.probability("resid_pdrop", 0.1),
	}
	c.Inner = r.sizeOr("n_inner", 4*c.Width, 4*c.Width, mostInner)
	r.heads("n_head", c.Heads, "n_embd", c.Width)
	_, padded := r.token("pad_token_id", -1, c.Vocab)
	labels := r.labels()
	problem := r.problem(labels)
	a := decoder("GPT-2", c.Layers, c.Width, labels, rowLength(2048, c.Positions, positionsKey))
	a.levers.Cache = true
	a.task = func(k models.Case) train.Task {
		if k.Task == classification {
			return gpt.Classification(c, classesOf(k, problem), padded, hf.TextOf(k))
		}
		return gpt.CausalLM(c, hf.TextOf(k))
	}
	return a
}
