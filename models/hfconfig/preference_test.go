package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

func TestReferencesAreHeldAsTheyAre(t *testing.T) {
	m := model(t,
		`{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 5000, "pad_token_id": 0}`)
	weights := func(c models.Case) int64 {
		c, err := m.Complete(c)
		require.NoError(t, err)
		r, err := m.Record(c, testGPU, models.Options{Steps: 1})
		require.NoError(t, err)
		return phasePeak(r.Program, -1, "model")
	}
	of := func(text string, lora *models.LoRA) models.Case {
		o, err := models.ParseObjective(text)
		require.NoError(t, err)
		return models.Case{LoRA: lora, MemoryOptions: models.MemoryOptions{Objective: o}}
	}
	alone := weights(models.Case{})
	require.Greater(t, weights(of("dpo", nil)), 2*alone-4096)
	require.Equal(t, alone, weights(of("dpo:precomputed", nil)))
	require.Equal(t, alone, weights(of("orpo", nil)))
	lora := &models.LoRA{Rank: 4}
	require.Equal(t, weights(models.Case{LoRA: lora}), weights(of("dpo", lora)),
		"the reference is the model without its adapters")
	for _, text := range []string{
		"dpo:as=llama-factory", "dpo:as=ms-swift", "dpo:as=torchtune", "kto",
		"kto:as=ms-swift", "cpo", "simpo:as=llama-factory",
	} {
		require.Positive(t, weights(of(text, lora)), text)
	}
	reward := of("reward", nil)
	reward.Task, reward.Settings = classification, models.Settings{"classes": 1}
	require.Positive(t, weights(reward))
}

func TestParametersAreTrainedByName(t *testing.T) {
	m := model(t,
		`{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 2, "vocab_size": 5000}`)
	trainable := func(only string) int64 {
		c, err := m.Complete(models.Case{MemoryOptions: models.MemoryOptions{TrainOnly: only}})
		require.NoError(t, err)
		tr, err := m.Build(c)
		require.NoError(t, err)
		require.NoError(t, func() error { _, err := m.Record(c, testGPU, models.Options{Steps: 1}); return err }())
		return tr.Counts().Trainable
	}
	require.EqualValues(t, 5000*64, trainable("lm_head"))
	require.Equal(t, trainable("layers")/2, trainable(`layers\.[01]\.`))
	for want, c := range map[string]models.Case{
		"train-only: here is in the name of no parameter; they are named like model.layers": {
			MemoryOptions: models.MemoryOptions{TrainOnly: "here"},
		},
		"train-only: adapters (--lora) freeze all of the model, so --train-only has no effect; name further trained modules with --lora save=NAMES": {
			LoRA:          &models.LoRA{Rank: 4},
			MemoryOptions: models.MemoryOptions{TrainOnly: "layers"},
		},
		"train-only: --train-only and --stage or freeze both select the trained parameters; give only one of them": {
			Stage:         "head",
			MemoryOptions: models.MemoryOptions{TrainOnly: "layers"},
		},
	} {
		c, err := m.Complete(c)
		if err == nil {
			_, err = m.Build(c)
		}
		require.ErrorContains(t, err, want)
	}
}

// Some layers trained as LLaMA-Factory does: in fp32 beside frozen ones in bf16, run again in backward by themselves.
// PyTorch 2.11 requested this much of its own allocator, up to the end of the second backward pass, within 256 bytes.
func TestTrainedLayersRequestWhatPyTorchDoes(t *testing.T) {
	m := model(t,
		`{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 2000, "tie_word_embeddings": false, "max_position_embeddings": 4096, "pad_token_id": 0}`)
	for _, row := range []struct {
		only string
		how  models.Recompute
		want int64
	}{
		{`\.(2|5)\.`, models.ReentrantTrained, 118_997_688},
		{`\.(4|5)\.`, "", 136_020_664},
	} {
		c := models.Case{
			Batch: 2, AMP: "bf16", Weights: "bf16", Settings: models.Settings{"seq-len": 1024},
			MemoryOptions: models.MemoryOptions{TrainOnly: row.only, TrainedWeights: "fp32"},
		}
		c.Checkpointing, c.Recompute = row.how != "", row.how
		c, err := m.Complete(c)
		require.NoError(t, err)
		r, err := m.Record(c, testGPU, models.Options{Steps: 2})
		require.NoError(t, err)
		require.InDelta(t, row.want, phasePeak(r.Program, 1, "backward"), 256, row.only)
	}
	for want, c := range map[string]models.Case{
		"trained-weights: all weights are trained": {MemoryOptions: models.MemoryOptions{TrainedWeights: "fp32"}},
		`trained-weights: trained weights can have only the type fp32, not "bf16"; use --set trained-weights=fp32, or set the type of all weights with --weights`: {MemoryOptions: models.MemoryOptions{
			TrainOnly:      "layers",
			TrainedWeights: "bf16",
		}},
		"trained-weights: the strategy fsdp2 shards weights and needs one type for all of them; leave out --set trained-weights, or use --strategy ddp": {
			MemoryOptions: models.MemoryOptions{TrainOnly: "layers", TrainedWeights: "fp32"},
			GPUs:          2, Strategy: &models.Strategy{Name: models.FSDP2},
		},
	} {
		_, err := m.Complete(c)
		require.ErrorContains(t, err, want)
	}
}

// Bytes that a step of ms-swift's DPO asks for beyond those before it, as its own functions asked
// PyTorch 2.11's allocator for them: two pairs of 256 tokens, as rows and packed into one.
func TestPairsOfSwiftRequestWhatPyTorchDoes(t *testing.T) {
	for _, want := range []struct {
		objective         string
		batch, length     int
		amp               models.Autocast
		forward, backward int64
	}{
		{"dpo:as=ms-swift", 2, 256, models.NoAutocast, 75767894, 73065548},
		{"dpo:as=ms-swift", 2, 256, "bf16", 76820580, 73065552},
		{"dpo:packed,as=ms-swift", 1, 1024, models.NoAutocast, 80517226, 73262156},
		{"dpo:packed,as=ms-swift", 1, 1024, "bf16", 81569908, 73262160},
	} {
		o, err := models.ParseObjective(want.objective)
		require.NoError(t, err)
		m := model(t, shortLlama)
		c := complete(t, m, models.Case{
			Batch: want.batch, Torch: "2.11", Weights: "bf16", AMP: want.amp, Optimizer: "sgd",
			Settings:      models.Settings{"seq-len": int64(want.length), "packed": 0, "padding": 0},
			MemoryOptions: models.MemoryOptions{Objective: o, Clip: models.ClipNone},
		})
		forward, backward := growth(t, m, c)
		require.InEpsilon(t, want.forward, forward, 0.0002, want.objective)
		require.InEpsilon(t, want.backward, backward, 0.0002, want.objective)
	}
}
