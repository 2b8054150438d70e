package llama

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/train"
)

// shape is the size of a decoder and of its sequences.
type shape struct{ layers, width, heads, kvHeads, inner, vocab, length, batch int64 }

// Models are llama-tiny, llama-1b, and a llama that is all settings; by
// default that is Llama 3 8B.
func Models() []models.Model {
	return []models.Model{
		entry("llama-tiny", shape{
			layers: 4, width: 256, heads: 8, kvHeads: 4, inner: 688, vocab: 32000,
			length: 512, batch: 8,
		}),
		entry("llama-1b", shape{
			layers: 22, width: 2048, heads: 32, kvHeads: 4, inner: 5632, vocab: 32000,
			length: 2048, batch: 1,
		}),
		entry("llama", shape{
			layers: 32, width: 4096, heads: 32, kvHeads: 8, inner: 14336, vocab: 128256,
			length: 2048, batch: 1,
		}),
	}
}

func entry(name string, s shape) models.Model {
	return train.Model(models.Model{
		Name: name,
		Summary: fmt.Sprintf("Llama decoder, %d layers of width %d unless set, as causal language model",
			s.layers, s.width),
		Source:    "transformers 5.23, LlamaForCausalLM",
		Batches:   []int{1, 2, 4, 8, 16, 32},
		BatchUnit: "sequence",
		Settings: []models.Setting{
			hf.LengthSetting(s.length, 1<<20),
			{Name: "layers", Usage: "decoder layers", Default: s.layers, Min: 1, Max: 512},
			{Name: "width", Usage: "width of the residual stream", Default: s.width, Min: 2, Max: 1 << 16},
			{
				Name: "heads", Usage: "heads of the query, which divide the width", Default: s.heads, Min: 1,
				Max: 1 << 10,
			},
			{
				Name: "kv-heads", Usage: "heads of key and value, which divide the heads", Default: s.kvHeads, Min: 1,
				Max: 1 << 10,
			},
			{Name: "inner", Usage: "width of the feed-forward layers", Default: s.inner, Min: 1, Max: 1 << 20},
			{Name: "vocab", Usage: "tokens in the vocabulary", Default: s.vocab, Min: 1, Max: 1 << 24},
			models.Switch("tied", 0, "1 if the output layer shares the weight of the embeddings, 0 if not"),
			hf.PackedSetting(1),
			hf.SharedLabelsSetting(),
		},
		Check:  check,
		Adapts: true, HalfWeights: true,
		Levers: models.LeverSet{
			Loop: models.LoopTrainer, Cache: true, Quantize: true, Recompute: true, Liger: true, Tiles: true,
			Context: true,
		},
		Notes: []string{"stage head trains the output layer", hf.PackedNote},
	}, int(s.batch), func(c models.Case) train.Task { return CausalLM(configOf(c.Settings), hf.TextOf(c)) })
}

func configOf(s models.Settings) Config {
	return Config{
		Sizes: Sizes{
			Vocab: s["vocab"], Width: s["width"], Layers: s["layers"], Heads: s["heads"],
			KVHeads: s["kv-heads"], HeadSize: s["width"] / s["heads"], Inner: s["inner"],
		}, Tied: s["tied"] == 1,
		Activation: "silu",
	}
}

// check wants heads that divide what they share.
func check(c models.Case) error {
	s := c.Settings
	wrong := func(field, reason string) error {
		return c.Wrong(field, "%s", reason)
	}
	switch {
	case s["width"]%s["heads"] != 0:
		return wrong("heads", fmt.Sprintf("%d does not divide width %d", s["heads"], s["width"]))
	case s["width"]/s["heads"]%2 != 0:
		return wrong("heads", fmt.Sprintf("%d heads of width %d are %d wide; rotary positions need an even number",
			s["heads"], s["width"], s["width"]/s["heads"]))
	case s["heads"]%s["kv-heads"] != 0:
		return wrong("kv-heads", fmt.Sprintf("%d does not divide heads %d", s["kv-heads"], s["heads"]))
	}
	return nil
}
