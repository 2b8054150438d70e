package hfconfig

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
)

// readInternLM3 reads InternLM 3, which transformers runs with Llama's classes.
func readInternLM3(r *reader, c *llama.Config) {
	readLlama(r, c)
	r.must(c.QKVBias == c.MLPBias, "qkv_bias", "%t, but bias is %t: transformers uses one value for both, so set "+
		"both to the same", c.QKVBias, c.MLPBias)
}

func readCWM(r *reader, c *llama.Config) {
	r.readWindows(c, 8192, func(i int64) bool { return i%4 != 0 })
}

// readDots1 reads dots.llm1: experts like DeepSeek's, attention like Qwen's.
func readDots1(r *reader, c *llama.Config) {
	r.readGroupedExperts(c, 2)
	r.readFirstDense(c, 0)
	from := r.number("max_window_layers", 62, 0, mostPositions)
	r.readWindows(c, 4096, func(i int64) bool { return c.Window > 0 && i >= from })
}

const repeatedSetting = "repeated-heads"

// layoutSettings returns the settings among the above that affect a configuration.
func layoutSettings(c llama.Config) []models.Setting {
	var all []models.Setting
	if c.KVHeads < c.Heads && !c.Eager && c.Latent.Rank == 0 {
		all = append(all, models.SwitchSetting(repeatedSetting, 0, "1 if keys and values are repeated for every head "+
			"of the query, as torchtune does, 0 if attention shares them"))
	}
	all = append(all, models.Setting{Name: models.TuneSetting, Max: 2, Usage: "1 if norms, projections and " +
		"the table of rotary angles are torchtune's, 2 if each layer has such a table, 0 if as in transformers"})
	all = append(all, models.SwitchSetting(models.EarlySetting, 0, "1 if layers in 4 bits unpack to fp16 first and "+
		"keep their inputs, as in bitsandbytes 0.42, 0 if they are today's"))
	all = append(all, models.Setting{Name: models.DeviceMapSetting, Max: 2, Usage: "1 if from_pretrained brings the " +
		"model to the GPU (device_map), 2 if model.to(device) does, 0 if the first does with --quantize alone"})
	if !c.Tied {
		all = append(all, models.SwitchSetting(models.PackedHeadSetting, 0, "1 if --quantize holds the output layer, "+
			"too, as litgpt has it, 0 if it leaves that alone, as transformers does"))
	}
	return all
}

// withTuneModules returns the configuration with torchtune's norms, projections and rotary tables, in which the classes
// for Qwen2 and Phi-3 (Qwen2RotaryPositionalEmbeddings) hold each cosine and sine twice.
func withTuneModules(c llama.Config, tables int64) llama.Config {
	if c.Norm == llama.RMSNorm {
		c.Norm = llama.TuneNorm
	}
	c.StateCap, c.ScoreCap, c.Rotary.TuneTables = c.ScoreCap, false, c.Rotary.Tables
	if c.QKVBias || c.QKV == llama.OneProjection {
		c.Rotary.TuneTables *= 2
	}
	if c.QKV == llama.OneProjection {
		c.QKV, c.MLP = llama.ThreeProjections, llama.Gated
	}
	if tables == 2 { // each layer has its own
		c.Rotary.TuneTables *= c.Layers
	}
	return c
}

func (a *architecture) addLayoutSettings(c llama.Config) {
	a.settings = append(a.settings, layoutSettings(c)...)
	a.only[models.PackedHeadSetting] = []string{causalLM}
	a.addCheck(checkPacked)
}

// checkPacked returns the setting and reason if a case combines settings of quantized layers that exclude each other.
func checkPacked(c models.Case) (setting, reason string) {
	switch {
	case c.UsesEarlyBitsandbytes() && c.Quantize != "nf4" && c.Quantize != "nf4-dq":
		return models.EarlySetting, "is about linear layers in 4 bits; give it with --quantize nf4 or nf4-dq"
	case c.UsesEarlyBitsandbytes() && c.LoRA != nil && c.LoRA.DoRA != "":
		return models.EarlySetting, "vprof records DoRA beside the layers of newer releases; leave out dora"
	case c.IsSwitchOn(models.DeviceMapSetting) && c.Strategy != nil && c.Strategy.Name != models.DDP:
		return models.DeviceMapSetting, "is about models that are whole on each GPU; leave out --strategy"
	case c.QuantizesHead() && c.Quantize == "":
		return models.PackedHeadSetting, "is about --quantize, which is not given"
	case c.QuantizesHead() && c.LoRA != nil && len(c.LoRA.Save) > 0:
		return models.PackedHeadSetting,
			"what --lora save=... names is trained as a whole, which packed layers cannot be; give one of them"
	case c.QuantizesHead() && (hf.ReadsHeadWeight(c) || !c.Objective.IsZero()):
		return models.PackedHeadSetting,
			"another loss reads the weight of the output layer itself; leave it out, or give the packed layer the " +
				"plain loss of the next token"
	}
	return "", ""
}
