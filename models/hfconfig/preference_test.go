package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// What TRL's functions need in the forward pass of a decoder's
// second step, in bytes: run by PyTorch 2.11, transformers 5.23 and peft 0.21 over fake
// tensors, two pairs of 512 tokens. Fake tensors have no workspaces of cuBLAS.
func TestPreferencesNeedWhatTRLNeeds(t *testing.T) {
	m := model(t, `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
		"num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096, "dtype": "bfloat16"}`)
	lora := &models.LoRA{Rank: 8, Alpha: 16}
	for _, k := range []struct {
		objective models.Objective
		amp       models.Autocast
		lora      *models.LoRA
		forward   float64
	}{
		{models.Objective{Name: models.DPO}, "", lora, 2018746880},
		{models.Objective{Name: models.DPO}, "bf16", lora, 2012324352},
		{models.Objective{Name: models.DPO}, "", nil, 1977961984},
	} {
		c := models.Case{Batch: 2, AMP: k.amp, LoRA: k.lora, Weights: "bf16", Optimizer: "sgd", Levers: models.Levers{Objective: k.objective, Clip: models.ClipNone}, Settings: models.Settings{"seq-len": 512}}
		c, err := m.Complete(c)
		require.NoError(t, err)
		r, err := m.Record(c, board, models.Options{Steps: 2})
		require.NoError(t, err)
		require.InEpsilon(t, k.forward, phasePeak(r.Program, 1, "forward"), 0.03, "%v %v", k.objective, k.amp)
	}
}

func TestReferencesAreHeldAsTheyAre(t *testing.T) {
	m := model(t, `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 5000, "pad_token_id": 0}`)
	weights := func(c models.Case) int64 {
		c, err := m.Complete(c)
		require.NoError(t, err)
		r, err := m.Record(c, board, models.Options{Steps: 1})
		require.NoError(t, err)
		return phasePeak(r.Program, -1, "model")
	}
	of := func(text string, lora *models.LoRA) models.Case {
		o, err := models.ParseObjective(text)
		require.NoError(t, err)
		return models.Case{LoRA: lora, Levers: models.Levers{Objective: o}}
	}
	alone := weights(models.Case{})
	require.Greater(t, weights(of("dpo", nil)), 2*alone-4096)
	require.Equal(t, alone, weights(of("dpo:precomputed", nil)))
	require.Equal(t, alone, weights(of("orpo", nil)))
	lora := &models.LoRA{Rank: 4}
	require.Equal(t, weights(models.Case{LoRA: lora}), weights(of("dpo", lora)), "the reference is the model without its adapters")
	for _, text := range []string{"dpo:as=llama-factory", "dpo:as=ms-swift", "dpo:as=torchtune", "kto", "kto:as=ms-swift", "cpo", "simpo:as=llama-factory"} {
		require.Positive(t, weights(of(text, lora)), text)
	}
	reward := of("reward", nil)
	reward.Task, reward.Settings = classification, models.Settings{"classes": 1}
	require.Positive(t, weights(reward))
}

func TestParametersAreTrainedByName(t *testing.T) {
	m := model(t, `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 2, "vocab_size": 5000}`)
	trainable := func(only string) int64 {
		c, err := m.Complete(models.Case{Levers: models.Levers{TrainOnly: only}})
		require.NoError(t, err)
		tr, err := m.Build(c)
		require.NoError(t, err)
		require.NoError(t, func() error { _, err := m.Record(c, board, models.Options{Steps: 1}); return err }())
		return tr.Counts().Trainable
	}
	require.EqualValues(t, 5000*64, trainable("lm_head"))
	require.Equal(t, trainable("layers")/2, trainable(`layers\.[01]\.`))
	for want, c := range map[string]models.Case{
		"train-only: here is in the name of no parameter; they are named like model.layers": {Levers: models.Levers{TrainOnly: "here"}},
		"train-only: adapters freeze all of the model":                                      {LoRA: &models.LoRA{Rank: 4}, Levers: models.Levers{TrainOnly: "layers"}},
		"train-only: another choice of what is trained is given":                            {Stage: "head", Levers: models.Levers{TrainOnly: "layers"}},
	} {
		c, err := m.Complete(c)
		if err == nil {
			_, err = m.Build(c)
		}
		require.ErrorContains(t, err, want)
	}
}
