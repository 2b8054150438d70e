package hfconfig

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
	"github.com/vprof/vprof/profiler/trace"
)

// addFlashSetting adds the setting for FlashAttention where its memory differs from scaled_dot_product_attention, for
// which releases before 4.54 repeat the keys and values that heads share.
func (a *architecture) addFlashSetting(c llama.Config) {
	if !c.Llama4.Enabled && (c.Eager || slices.Contains(c.Windowed, true) || c.KVHeads < c.Heads) {
		a.settings = append(a.settings, hf.Flash.Setting())
	}
}

// configFor returns the configuration with the settings of a case applied.
func (d llamaType) configFor(c llama.Config, k models.Case) llama.Config {
	rules := k.Libraries()
	if c.AttentionCap && !hf.Eager.IsChosen(k) && !rules.EagerCaps {
		c.Eager = false
	}
	if rules.SharedFunctions >= trace.SharedByNeoX {
		c.CausalBuffers = 0
	}
	if hf.Flash.IsChosen(k) {
		c.Flash, c.Eager, c.Windowed = true, false, nil // its kernels need no masks
	}
	if tables := k.Settings[models.TuneSetting]; tables > 0 {
		c = withTuneModules(c, tables)
	}
	r := &c.Rotary
	r.Own = rules.SharedAngles < max(r.OwnUntil, trace.SharedByLlama) && r.Grids == 0 && r.Kinds == 0 && !c.NoRotary
	if rules.NoTables >= r.TablesUntil {
		r.Tables = 0
	}
	if c.Experts.Listed = d.hasExpertLayers(k); c.Experts.Listed && len(d.Listed) > 0 {
		c.Names = d.Listed
	}
	c.Llama4.Linearized = k.IsSwitchOn(linearizedSetting)
	c.RepeatKV = k.IsSwitchOn(repeatedSetting)
	c.Eager = c.Eager || hf.IsEager(k, d.FusedBy) && !c.Flash
	c.Flex = hf.Flex.IsChosen(k)
	return c
}

// addAttentionSettings adds the settings for eager attention and flex_attention, if the model supports them.
func (d llamaType) addAttentionSettings(c llama.Config, a *architecture) {
	if c.Eager {
		a.supports.EagerAttention = true
		return
	}
	a.addEagerSetting()
	if d.Flex {
		a.addFlexSetting(c.AttentionDropout)
	}
}

func (a *architecture) addEagerSetting() {
	a.settings = append(a.settings, hf.Eager.Setting())
	a.addRefusal("eager", "both eager attention and FlashAttention are chosen; give only one of --set eager=1 and "+
		"--set flash=1", func(c models.Case) bool { return hf.Eager.IsChosen(c) && hf.Flash.IsChosen(c) })
}

// addFlexSetting adds the setting for flex_attention, which does not support dropout.
func (a *architecture) addFlexSetting(dropout float64) {
	a.settings = append(a.settings, hf.Flex.Setting())
	a.addCaveat(func(c models.Case) (notes []string) {
		if hf.Flex.IsChosen(c) {
			notes = append(notes, "flex_attention is recorded as TorchInductor of PyTorch 2.11 compiles it; what "+
				"compiling and autotuning take for a moment is not counted")
		}
		return notes
	})
	a.addRefusal("flex", fmt.Sprintf("transformers raises \"flex_attention does not support dropout\", and "+
		"attention_dropout of the configuration is %g; set it to 0, or leave out --set flex",
		dropout), func(c models.Case) bool { return hf.Flex.IsChosen(c) && dropout > 0 })
	a.addRefusal("flex", "flex_attention and another attention are both chosen; give only one of --set flex=1, "+
		"eager=1 and flash=1",
		func(c models.Case) bool { return hf.Flex.IsChosen(c) && (hf.Eager.IsChosen(c) || hf.Flash.IsChosen(c)) })
}
