package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// Checkpointing knows the arguments by place, and those alone go to the host: the mask and the rotary angles of Llama
// come by name. Bytes beyond those before a step, after its forward pass and at most in backward, under
// torch.autograd.graph.save_on_cpu: transformers 5.23, torch 2.11, two rows of 1024 tokens in bf16.
func TestWhatCheckpointsSaveOnTheHost(t *testing.T) {
	for _, want := range []struct {
		recompute       models.Recompute
		packed          int64
		after, backward int64
	}{
		{"", 0, 270848, 61701120},
		{"", 1, 2368000, 70088704},
		{models.Reentrant, 0, 270848, 65895424},
		{models.Reentrant, 1, 2368000, 74283008},
	} {
		m := model(t, shortLlama)
		c := complete(t, m, models.Case{
			Batch: 2, Weights: "bf16", Optimizer: "sgd", Checkpointing: true,
			Settings:      models.Settings{"seq-len": 1024, "packed": want.packed},
			MemoryOptions: models.MemoryOptions{Recompute: want.recompute, Offload: true, Clip: models.ClipNone},
		})
		r, err := m.Record(c, trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, models.Options{Steps: 2})
		require.NoError(t, err)
		all := phases(r.Program, inBlocks)
		before := all[phase(0, "step_end")].end
		require.Equal(t, want.after, all[phase(1, "loss")].end-before, "%+v", want)
		require.Equal(t, want.backward, all[phase(1, "backward")].peak-before, "%+v", want)
	}
}

// offloadedLlama has 28,645,888 parameters in fp32, and no ties.
const offloadedLlama = `{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":8000,"hidden_size":512,
"intermediate_size":1536,"num_hidden_layers":6,"num_attention_heads":8,"num_key_value_heads":8,
"tie_word_embeddings":false,"max_position_embeddings":512}`

// What PyTorch 2.15 and DeepSpeed 0.19.8 hold in page-locked memory on one rank, by torch.cuda.host_memory_stats()
// after two steps: blocks in use (active_bytes), and with the freed ones that stay (allocated_bytes).
func TestOffloadingPinsWhatPyTorchDoes(t *testing.T) {
	const n = 28645888
	for _, want := range []struct {
		strategy   string
		accumulate int
		pinned     int64
		plain      int64 // master weights that are not page-locked
		state      int64
	}{
		{"fsdp2:offload=all", 1, 268488704, 0, 8 * n},
		{"zero2:offload=optimizer", 1, 343932928, 0, 8 * n},
		{"zero2:offload=optimizer", 2, 411055104, 0, 8 * n},
		{"zero3:offload=optimizer", 1, 201326592, 4 * n, 8 * n},
		{"zero3:offload=all", 1, 335557632, 4 * n, 8 * n},
	} {
		strategy, err := models.ParseStrategy(want.strategy)
		require.NoError(t, err)
		m := model(t, offloadedLlama)
		c := models.Case{
			Batch: 1, Accumulate: want.accumulate, GPUs: 1, Strategy: &strategy,
			Settings: models.Settings{"seq-len": 32},
		}
		if strategy.IsDeepSpeed() {
			c.Weights = "bf16"
		}
		r, err := m.Record(complete(t, m, c), trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048},
			models.Options{Steps: 2})
		require.NoError(t, err)
		h := r.Facts.Host
		require.Equal(t, want.pinned, h.Weights-want.plain+h.Gradients+h.Rounding, want.strategy)
		require.EqualValues(t, want.state, h.State, want.strategy)
	}
}
