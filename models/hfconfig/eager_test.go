package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
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
