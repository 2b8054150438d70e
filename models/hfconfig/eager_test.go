package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// A step of BertForSequenceClassification with eager attention needs what it does with transformers 5.24 and PyTorch
// 2.15 for CUDA on a simulated A100 (vprof run), in blocks of 512 bytes and beside the workspace of cuBLAS.
func TestEagerBERTAllocatesWhatTransformersDoes(t *testing.T) {
	m := model(t, `{"model_type": "bert", "architectures": ["BertForSequenceClassification"], "num_hidden_layers": 4}`)
	c := complete(t, m, models.Case{
		Batch: 4, Torch: "2.15", Weights: "bf16", Optimizer: "adamw",
		Settings: models.Settings{"seq-len": 512, "eager": 1},
	})
	c.Clip, c.Loop = models.ClipNone, models.LoopFunction
	testGPU := trace.GPU{Name: "a100-40", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 42_298_834_944}
	r, err := m.Record(c, testGPU, models.Options{})
	require.NoError(t, err)
	peak := int64(0)
	for _, p := range phases(r.Program, inBlocksBesideWorkspaces) {
		peak = max(peak, p.peak)
	}
	require.Equal(t, int64(837_105_664), peak)
}

// The bytes that GPT-2 requests, whose output layer may be left out (its labels then, too): forward and backward,
// without an optimizer.
func TestEagerGPT2AllocatesWhatTransformersDoes(t *testing.T) {
	m := model(t, `{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 256, "n_head": 4, "n_layer": 3,
		"n_positions": 512, "vocab_size": 5000}`)
	testGPU := trace.GPU{Name: "a100-40", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 42_298_834_944}
	for head, want := range map[int64]int64{1: 435_409_928, 0: 329_948_168} {
		c := complete(t, m, models.Case{
			Batch: 4, Torch: "2.15", Optimizer: "none",
			Settings: models.Settings{"seq-len": 512, "eager": 1, "head": head, "shared-labels": 1},
		})
		c.Loop = models.LoopTrainer
		r, err := m.Record(c, testGPU, models.Options{})
		require.NoError(t, err)
		peak := int64(0)
		for _, p := range phases(r.Program, func(b program.Buffer) int64 { return b.Bytes }) {
			peak = max(peak, p.peak)
		}
		require.Equal(t, want, peak, "head=%d", head)
	}
}
