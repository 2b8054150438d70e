package hfconfig

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/opt"
	"github.com/vprof/vprof/models/train"
)

func optFamily() family {
	return family{
		heads: map[string]string{"OPTForCausalLM": causalLM, "OPTForSequenceClassification": classification},
		usual: causalLM, half: true,
		read: readOPT,
	}
}

func readOPT(r *reader) architecture {
	c := opt.Config{
		Vocab: r.size("vocab_size", 50272, mostVocab), Width: r.size("hidden_size", 768, mostWidth),
		Layers: r.size("num_hidden_layers", 12, mostLayers), Heads: r.size("num_attention_heads", 12, mostWidth),
		Inner: r.size("ffn_dim", 3072, mostInner), Positions: r.size(positionsKey, 2048, mostPositions),
		Dropout: r.probability("dropout", 0.1), AttentionDropout: r.probability("attention_dropout", 0),
		Activation: r.word("activation_function", "relu", hf.Activations()),
		NormLast:   !r.flag("do_layer_norm_before", true), NoFinalNorm: r.flag("_remove_final_layer_norm", false),
		Bias: r.flag("enable_bias", true), PlainNorms: !r.flag("layer_norm_elementwise_affine", true),
		Untied: !r.flag("tie_word_embeddings", true),
	}
	c.Words = r.sizeOr("word_embed_proj_dim", c.Width, c.Width, mostWidth)
	r.heads("num_attention_heads", c.Heads, "hidden_size", c.Width)
	_, padded := r.token("pad_token_id", 1, c.Vocab)
	labels := r.labels()
	problem := r.problem(labels)
	a := decoder("OPT", c.Layers, c.Width, labels, rowLength(2048, c.Positions, positionsKey))
	a.eager()
	a.levers.Cache = true
	a.notes = append(a.notes,
		"transformers makes this model's masks without positions, so that rows that hold several sequences need none")
	if r.probability("layerdrop", 0) > 0 {
		a.notes = append(a.notes, layerDropNote)
	}
	a.task = func(k models.Case) train.Task {
		c := c
		c.Eager = hf.Eager.Chosen(k)
		if k.Task == classification {
			return opt.Classification(c, classesOf(k, problem), padded, hf.TextOf(k))
		}
		return opt.CausalLM(c, hf.TextOf(k))
	}
	return a
}
