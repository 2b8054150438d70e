package hfconfig

import (
	"fmt"
	"maps"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/gpt"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/trace"
)

// newDecoder returns what all text decoders share: their batch sizes, settings and notes. length is the setting of the
// sequence length.
func newDecoder(name string, layers, width, classes int64, length models.Setting) architecture {
	return architecture{
		supports: models.MemoryOptionSupport{Recompute: true, Objective: true},
		summary:  fmt.Sprintf("%s decoder, %d layers of width %d", name, layers, width),
		unit:     "sequence", batch: 1, batches: []int{1, 2, 4, 8, 16, 32},
		settings: append([]models.Setting{
			length, hf.PaddingSetting(0), hf.PackedSetting(0), hf.ClassesSetting(classes), hf.SharedLabelsSetting(),
			hf.FlatSetting(), hf.HeadlessSetting(),
			models.SwitchSetting(models.HalfEmbeddingsSetting, 0, "1 if embeddings and the output layer are in half "+
				"precision again beside fp32 norms, as in TRL before 1 with bf16 (peft_module_casting_to_bf16), 0 if "+
				"they have the type of --weights"),
			models.SwitchSetting(models.FP32EmbeddingsSetting, 0, "1 if norms, embeddings and the output layer are in "+
				"fp32, as in axolotl without adapters and flash attention"),
		}, hf.LossSettings()...),
		only: decoderTaskSettings(),
		notes: []string{
			"trained without the cache of keys and values, as the Trainer of transformers does; loops of one's own " +
				"have it (--set use-cache)",
			"rows that are padded, or hold several sequences, need an attention mask, which flash attention does " +
				"not take: --set padding=1, --set packed=1",
		},
		checks: []caseCheck{
			refuseIf("packed", "sequences with a padding mask cannot hold several texts each; leave out --set "+
				"padding, or --set packed",
				func(c models.Case) bool { return c.Settings[hf.Padding] > 0 && c.IsSwitchOn("packed") }),
			refuseIf("flat", "a flattened batch (flat) has no padding and no ranks that share sequences, and needs "+
				"next-token training; leave out --set flat, or the other option", func(c models.Case) bool {
				s := c.Strategy
				return c.IsSwitchOn("flat") &&
					(c.Settings[hf.Padding] > 0 || c.IsSwitchOn(hf.SharedLabels) || !c.Objective.IsZero() ||
						s != nil && (s.CP > 1 || s.Sequence))
			}),
			refuseIf(models.HalfEmbeddingsSetting, "half-embeddings sets the type of layers that --quantize leaves "+
				"in fp32; add --quantize and --weights fp32, or leave out --set half-embeddings",
				func(c models.Case) bool {
					return c.IsSwitchOn(models.HalfEmbeddingsSetting) && (c.Quantize == "" || c.Weights != models.FP32)
				}),
			hf.CheckLoss,
		},
	}
}

// decoderTaskSettings returns the tasks of decoders to which a setting applies, by the setting's name.
func decoderTaskSettings() map[string][]string {
	only := maps.Clone(classificationSettings)
	for _, name := range append(hf.LossSettingNames(), hf.SharedLabels, "flat", hf.HeadSetting) {
		only[name] = []string{causalLM}
	}
	return only
}

// positionsKey is the configuration's key of the longest sequence.
const positionsKey = "max_position_embeddings"

func readGPT(r *reader) architecture {
	r.refuse("add_cross_attention", "false")
	var c gpt.Config
	r.setFields(&c, "Vocab=vocab_size:50257 Width=n_embd:768 Layers=n_layer:12 Heads=n_head:12 "+
		"Positions=n_positions:1024 Activation=activation_function:gelu_new !Untied=tie_word_embeddings:true "+
		"EmbedDropout=embd_pdrop:0.1 AttentionDropout=attn_pdrop:0.1 ResidualDropout=resid_pdrop:0.1")
	c.Inner = r.sizeOr("n_inner", 4*c.Width, 4*c.Width, mostInner)
	r.checkHeads("n_head", c.Heads, "n_embd", c.Width)
	_, padded := r.padToken(-1, c.Vocab)
	labels := r.labelCount()
	problem := r.problemType(labels)
	a := newDecoder("GPT-2", c.Layers, c.Width, labels, lengthSetting(2048, c.Positions, positionsKey))
	a.addEagerSetting()
	a.supports.Cache = true
	a.task = func(k models.Case) train.Task {
		c := c
		c.Eager = hf.IsEager(k, trace.FusedByGPT)
		c.CausalBuffers = !k.Libraries().NoCausalBuffers
		if k.Task == classification {
			return gpt.Classification(c, classesOf(k, problem), padded, hf.TextOf(k))
		}
		return gpt.CausalLM(c, hf.TextOf(k))
	}
	return a
}
