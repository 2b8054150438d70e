package hfconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// Peaks in the second step of peft 0.21 (of packed experts: peft 0.19.1 as axolotl 0.18 has
// it match names), transformers 5.23 and torch 2.11 on an A100, allocations in blocks of 512
// bytes, with adapters beside parameters of experts.
func TestAdaptersBesideParameters(t *testing.T) {
	const labels = 2 * 512 * 8 // shared with the input
	next := `{"model_type": "qwen3_next", "vocab_size": 8192, "hidden_size": 512, "intermediate_size": 1024, "moe_intermediate_size": 128, "shared_expert_intermediate_size": 128,
		"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "num_experts": 16, "num_experts_per_tok": 4, "linear_num_value_heads": 8,
		"linear_num_key_heads": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64, "tie_word_embeddings": false}`
	mixtral := `{"model_type": "mixtral", "vocab_size": 8192, "hidden_size": 512, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 8,
		"num_key_value_heads": 4, "num_local_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": false, "sliding_window": null}`
	llama4 := `{"model_type": "llama4_text", "vocab_size": 1024, "hidden_size": 512, "intermediate_size": 256, "intermediate_size_mlp": 512, "num_hidden_layers": 4,
		"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "num_local_experts": 8, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1,
		"tie_word_embeddings": false, "attention_chunk_size": 8192}`
	small := strings.Replace(packedMixture, "8192", "512", 1)
	const both = "target=q_proj+v_proj,parameters=experts.gate_up_proj+experts.down_proj"
	const layers = "target=q_proj+v_proj+gate_proj+up_proj+down_proj"
	for _, want := range []struct {
		config, lora, weights, quantize string
		recompute                       models.Recompute
		checkpointing                   bool
		forward, backward               int64
	}{
		{packedMixture, "r=8,alpha=16," + both, "bf16", "", "", false, 349893632, 365588992},
		{packedMixture, "r=8,alpha=8," + both, "bf16", "", "", false, 349893632, 365588992},
		{packedMixture, "r=8,alpha=16," + both, "", "", "", false, 559222784, 573869568},
		{packedMixture, "r=8,alpha=16,parameters=experts.down_proj", "bf16", "", "", false, 258161664, 273873408},
		{small, "r=8,alpha=16," + both, "bf16", "", "", false, 259788800, 260702720},
		{small, "r=8,alpha=16," + both, "bf16", "", "", true, 131923968, 160544256},
		{next, "r=8,alpha=16," + both, "bf16", "", "", false, 359373824, 375085568},
		{
			next,
			"r=8,alpha=16,target=q_proj+shared_expert.gate_proj+shared_expert.up_proj+shared_expert.down_proj+shared_expert_gate", "bf16", "", "", false, 369293312, 384996864,
		},
		{llama4, "r=8,alpha=16," + both, "bf16", "", "", true, 103503872, 139767808},
		{mixtral, "r=8,alpha=16,target=w1+w2+w3", "bf16", "", "", false, 188233216, 203944960},
		{small, "r=8,alpha=16," + layers, "bf16", "nf4-dq+experts", "", false, 222502400, 199692288},
		{small, "r=8,alpha=16," + layers, "bf16", "nf4-dq+experts", models.Reentrant, true, 102796800, 130082304},
	} {
		l, err := models.ParseLoRA(want.lora)
		require.NoError(t, err)
		m := model(t, want.config)
		c := complete(t, m, models.Case{
			Batch: 2, AMP: "bf16", Weights: models.WeightType(want.weights), Optimizer: "adamw-fused",
			Checkpointing: want.checkpointing,
			LoRA:          &l, Settings: models.Settings{"seq-len": 512, "packed": 0},
			MemoryOptions: models.MemoryOptions{
				Quantize: want.quantize, Recompute: want.recompute,
				Clip: models.ClipNone,
			},
		})
		r, err := m.Record(c, trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048},
			models.Options{Steps: 2})
		require.NoError(t, err)
		forward, backward := secondStep(r.Program)
		require.Equal(t, want.forward+labels, forward, "%+v", want)
		require.Equal(t, want.backward+labels, backward, "%+v", want)
	}
}

func TestAdaptersBesideParametersThatPeftRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"target=q_proj+up_proj": "lora: target up_proj: peft cannot convert it without " +
			"gate_proj, since both are in the experts' gate_up_proj",
		`match=.*\.(q_proj|up_proj)`: "lora: match reaches up_proj, which is in a parameter of the " +
			"experts",
		"parameters=experts.up_proj": "lora: the model has no experts with a parameter called " +
			"experts.up_proj",
		"parameters=experts.down_proj,dropout=0.1": "peft puts no adapters with dropout beside parameters",
		"parameters=experts.down_proj,dora=true":   "peft has no DoRA beside parameters",
	} {
		l, err := models.ParseLoRA(text)
		require.NoError(t, err)
		_, err = model(t, packedMixture).Record(models.Case{Batch: 1, LoRA: &l}, testGPU, models.Options{})
		require.ErrorContains(t, err, want)
	}
	l := models.LoRA{Rank: 8, Alpha: 8, Targets: []string{"gate_proj", "up_proj", "down_proj"}}
	c := models.Case{
		Batch: 1, LoRA: &l, Checkpointing: true,
		MemoryOptions: models.MemoryOptions{Quantize: "nf4+experts"},
	}
	_, err := model(t, packedMixture).Record(c, testGPU, models.Options{})
	require.ErrorContains(t, err, "PyTorch raises CheckpointError there")
	c.Quantize, c.Checkpointing = "int8+experts", false
	_, err = model(t, packedMixture).Record(c, testGPU, models.Options{})
	require.ErrorContains(t, err, "vprof records adapters beside experts in 4 bits, not in 8")
	c.Quantize = "nf4+experts"
	require.Contains(t, model(t, packedMixture).Caveats(c)[0],
		"of two adapters beside packed experts, the experts see that of down_proj alone")
}
