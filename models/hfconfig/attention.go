package hfconfig

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
)

// flashed has FlashAttention chosen where it needs another step than PyTorch's attention.
func (a *architecture) flashed(c llama.Config) {
	if !c.Llama4.On && (c.Eager || c.MaskKept || slices.Contains(c.Windowed, true)) {
		a.settings = append(a.settings, hf.FlashSetting())
	}
}

// chosen is a configuration as the settings of a case have it.
func (d relative) chosen(c llama.Config, k models.Case) llama.Config {
	if hf.FlashOf(k) {
		c.Eager, c.MaskKept, c.Windowed = false, false, nil // its kernels need no masks
	}
	c.Llama4.Linearized = k.Settings[linearizedSetting] == 1
	c.Repeated = k.Settings[repeatedSetting] == 1
	if k.Settings[separateSetting] == 1 {
		c.QKV, c.MLP = llama.ThreeProjections, llama.Gated
	}
	c.Eager = c.Eager || hf.EagerOf(k)
	c.Flex = hf.FlexOf(k)
	return c
}

// attention says of an architecture which attention cases may choose.
func (d relative) attention(c llama.Config, a *architecture) {
	switch {
	case c.Eager || c.Longest > 0:
		a.levers.Eager = true
		return
	case c.QKV == llama.FalconProjection, c.Order == llama.MambaBlock, c.Order == llama.Dbrx: // an eager attention of its own, or none
		return
	}
	a.eager()
	if slices.Contains(withFlex, d.name) {
		a.flexed(c.AttentionDropout)
	}
}

// eager has eager attention chosen.
func (a *architecture) eager() {
	a.settings = append(a.settings, hf.EagerSetting())
	check := a.check
	a.check = func(c models.Case) (setting, reason string) {
		if hf.EagerOf(c) && hf.FlashOf(c) {
			return "eager", "attention is eager or served by FlashAttention; choose one"
		}
		return check(c)
	}
}

// flexed has flex_attention chosen, which knows no dropout.
func (a *architecture) flexed(dropout float64) {
	a.settings = append(a.settings, hf.FlexSetting())
	others := a.caveats
	a.caveats = func(c models.Case) (notes []string) {
		if others != nil {
			notes = others(c)
		}
		if hf.FlexOf(c) {
			notes = append(notes, "flex_attention is recorded as TorchInductor of PyTorch 2.11 compiles it; what compiling and autotuning take for a moment is not counted")
		}
		return notes
	}
	check := a.check
	a.check = func(c models.Case) (setting, reason string) {
		switch {
		case hf.FlexOf(c) && (hf.EagerOf(c) || hf.FlashOf(c)):
			return "flex", "attention is served by flex_attention, or it is eager, or FlashAttention serves it; choose one"
		case hf.FlexOf(c) && dropout > 0:
			return "flex", fmt.Sprintf("transformers raises \"flex_attention does not support dropout\", and attention_dropout is %g", dropout)
		}
		return check(c)
	}
}

// withFlex are the names of types whose classes transformers 5.23 gives flex_attention.
var withFlex = []string{
	"Llama", "Mistral", "Ministral", "Ministral3", "Qwen2", "Qwen3", "Gemma", "Gemma3", "Phi", "Phi3", "Granite", "Olmo2", "Olmo3", "Cohere", "Cohere2", "Glm", "Glm4",
	"Starcoder2", "SmolLM3", "GPTNeoX", "Arcee", "SeedOss", "Nemotron", "HunYuanDenseV1", "Lfm2", "Lfm2Moe", "Apertus", "Mixtral", "Qwen2Moe", "Qwen3Moe", "GraniteMoe",
	"GraniteMoeHybrid", "DeepseekV2", "DeepseekV3", "Glm4Moe", "Glm4MoeLite", "Mistral4", "Llama4", "Qwen3VLMoeText", "PaddleOCRText", "Afmoe",
	"Cwm", "Dots1", "Ernie4_5", "Exaone4", "GraniteMoeShared", "Jais2", "Olmo", "SolarOpen", "Youtu", "MiniMaxM2",
}
