package hfconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// What is made of one case leaves nothing behind in the next, packed weights and adapters
// in the towers included; every result says what is not counted.
func TestTowersAreMadeAnewForEveryCase(t *testing.T) {
	for kind := range multimodalTypes {
		m := open(t, kind)
		lora := models.LoRA{Rank: 4}
		if kind == "llama4" {
			lora.Targets = []string{"q_proj", "fc1", "linear_1", "shared_expert.up_proj"} // its router can have none
		}
		c := complete(t, m, models.Case{LoRA: &lora, MemoryOptions: models.MemoryOptions{Quantize: "nf4"}})
		first, err := m.Build(c)
		require.NoError(t, err, kind)
		again, err := m.Build(c)
		require.NoError(t, err, kind)
		require.Equal(t, first.Counts(), again.Counts(), kind)
		require.Contains(t, strings.Join(m.Caveats(c), "; "), "this is a step on text alone", kind)
	}
}

// The keys of a text may be among the keys of the whole, as in older files.
func TestFlatFilesAreTheNestedOnes(t *testing.T) {
	const keys = `"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000`
	const vision = `"vision_config": {"depth": 1, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "out_hidden_size": 256}`
	flat := model(t, `{"model_type": "qwen2_5_vl", "rope_scaling": {"type": "mrope"}, `+keys+`, `+vision+`}`)
	nested := model(t, `{"model_type": "qwen2_5_vl", "text_config": {`+keys+`}, `+vision+`}`)
	a, err := flat.Record(models.Case{Batch: 1}, testGPU, models.Options{Steps: 1})
	require.NoError(t, err)
	b, err := nested.Record(models.Case{Batch: 1}, testGPU, models.Options{Steps: 1})
	require.NoError(t, err)
	require.Equal(t, b.Counts, a.Counts)
	require.Equal(t, b.Program.Instructions, a.Program.Instructions)
}

// Modules that are only held cannot be trained as a whole.
func TestTowersAreNotSavedAsAWhole(t *testing.T) {
	m := open(t, "llava")
	_, err := m.Build(complete(t, m, models.Case{LoRA: &models.LoRA{Rank: 4, Save: []string{"vision_tower"}}}))
	require.ErrorContains(t, err, "no module that can be trained as a whole is called vision_tower")
}

// Trainers list the names of linear layers, which experts in parameters are not, and for peft all-linear has them.
func TestListedLayersLeaveExpertsOut(t *testing.T) {
	m := model(t,
		`{"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "moe_intermediate_size": 32}`)
	trainable := func(l models.LoRA) int64 {
		l.Rank = 4
		c := complete(t, m, models.Case{LoRA: &l})
		trainer, err := m.Build(c)
		require.NoError(t, err)
		return trainer.Counts().Trainable
	}
	attention := models.LoRA{Targets: []string{"q_proj", "k_proj", "v_proj", "o_proj"}}
	experts := models.LoRA{Targets: []string{"gate", "gate_proj", "up_proj", "down_proj"}}
	require.Equal(t, trainable(attention), trainable(models.LoRA{Targets: []string{models.LinearLayers}}))
	require.Equal(t, trainable(attention)+trainable(experts), trainable(models.LoRA{}))
}

// The kernels of Mamba take a weight past adapters, so peft wants none there.
func TestAdaptersBesideMambaAreThosePeftTakes(t *testing.T) {
	m := open(t, "nemotron_h")
	_, err := m.Complete(models.Case{LoRA: &models.LoRA{Rank: 4}})
	require.ErrorContains(t, err, "lora: peft adds no adapters to out_proj of Mamba models")
	_, err = m.Complete(models.Case{LoRA: &models.LoRA{Rank: 4, Targets: []string{"q_proj", "in_proj"}}})
	require.NoError(t, err)
	require.Contains(t, m.Caveats(m.Default)[0], "Mamba is recorded as transformers runs it in PyTorch alone")
}

// Llama 4 is refused what transformers, peft and liger-kernel fail at.
func TestLlama4IsRefusedWhatFails(t *testing.T) {
	m := open(t, "llama4")
	for want, c := range map[string]models.Case{
		"flash: transformers has no FlashAttention for Llama 4": {Settings: models.Settings{"flash": 1}},
		"lora: peft would also adapt the router, a linear layer with two results, and the step would fail; name the layers, such as target=q_proj+k_proj+v_proj+o_proj": {LoRA: &models.LoRA{Rank: 4}},
		"liger: the output of liger-kernel's fused loss has":                                                             {MemoryOptions: models.MemoryOptions{Liger: true}},
		"flex: flex_attention and another attention are both chosen; give only one of --set flex=1, eager=1 and flash=1": {Settings: models.Settings{"flex": 1, "eager": 1}},
		"plain-loss: is about --liger without its fused loss":                                                            {Settings: models.Settings{"plain-loss": 1}},
	} {
		_, err := m.Complete(c)
		require.ErrorContains(t, err, want)
	}
	for _, c := range []models.Case{
		{
			LoRA:     &models.LoRA{Rank: 4, Targets: []string{"q_proj", "gate_projs.0"}},
			Settings: models.Settings{"linearized-experts": 1},
		},
		{MemoryOptions: models.MemoryOptions{Liger: true}, Settings: models.Settings{"plain-loss": 1}},
		{MemoryOptions: models.MemoryOptions{Liger: true}, Settings: models.Settings{"fused-loss": 1}},
	} {
		_, err := m.Complete(c)
		require.NoError(t, err)
	}
}

// Adapters of towers get no gradients in a step on text, but they are there.
func TestAdaptersLeaveTowersOut(t *testing.T) {
	trainable := func(name string, l models.LoRA) int64 {
		m := open(t, name)
		trainer, err := m.Build(complete(t, m, models.Case{LoRA: &l}))
		require.NoError(t, err)
		return trainer.Counts().Trainable
	}
	with, without := trainable("qwen2_5_vl", models.LoRA{Rank: 4}),
		trainable("qwen2_5_vl", models.LoRA{Rank: 4, NoTowers: true})
	require.Less(t, without, with)
	require.Equal(t, trainable("qwen2_5_vl", models.LoRA{Rank: 4, Match: `model\.language_model\..*_proj`}), without)
	m := model(t, smallLlama)
	require.False(t, complete(t, m, models.Case{LoRA: &models.LoRA{Rank: 4, NoTowers: true}}).LoRA.NoTowers)
}
