package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
)

const oneLayer = `{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
	"num_attention_heads": 2, "vocab_size": 5000}`

// The loss in chunks: what the first forward pass leaves and what the peak of its backward is, beyond the model, of
// transformers' LlamaModel and the statements of torchtune's LinearCrossEntropyLoss over its output (2 rows of 256
// tokens, on the CPU, counted by a TorchDispatchMode).
func TestChunkedLossNeedsWhatTorchtuneNeeds(t *testing.T) {
	const config = `{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 20000, "tie_word_embeddings": false}`
	m := model(t, config)
	for _, want := range []struct {
		weights       models.WeightType
		chunks        int64
		forward, peak int64
	}{
		{models.FP32, 1, 61578240, 143494144},
		{models.FP32, 4, 61579776, 102801920},
		{models.FP32, 8, 61581824, 112912896},
		{"bf16", 1, 52599808, 134515712},
		{"bf16", 4, 52601344, 73146880},
		{"bf16", 8, 52603392, 73148928},
	} {
		r, err := m.Record(models.Case{
			Batch: 2, Weights: want.weights,
			Settings: models.Settings{"seq-len": 256, "chunked-loss": want.chunks},
		}, testGPU, models.Options{Steps: 1})
		require.NoError(t, err)
		forward, peak := firstStep(r.Program)
		require.InEpsilon(t, want.forward, forward, 0.0003, "%+v", want)
		require.InEpsilon(t, want.peak, peak, 0.0003, "%+v", want)
	}
}

// firstStep returns what lies there after the first forward pass beyond the model, and the
// peak up to the end of its backward.
func firstStep(p *program.Program) (forward, peak int64) {
	all := phases(p, inBlocksBesideWorkspaces)
	model := all[phase(-1, "model")].end
	return all[phase(0, "forward")].end - model, all[phase(0, "backward")].soFar - model
}

// 19 tokens in 8 chunks are three chunks of three tokens, then five of two, as tensor_split has them;
// more chunks than tokens are one of each token.
func TestChunksAreThoseOfTensorSplit(t *testing.T) {
	const vocab = 5000
	m := model(t, oneLayer)
	for length, want := range map[int64][]int64{19: {3, 3, 3, 2, 2, 2, 2, 2}, 3: {1, 1, 1}} {
		r, err := m.Record(models.Case{Batch: 1, Settings: models.Settings{"seq-len": length, "chunked-loss": 8}},
			testGPU, models.Options{Steps: 1})
		require.NoError(t, err)
		var tokens []int64
		for _, b := range r.Program.Buffers {
			if r.Program.Sites[b.Site].Native == "log_softmax" {
				tokens = append(tokens, b.Bytes/4/vocab)
			}
		}
		require.Equal(t, want, tokens)
	}
}

func TestLossesDoNotMix(t *testing.T) {
	m := model(t, oneLayer)
	for _, c := range []models.Case{
		{Settings: models.Settings{"chunked-loss": 4, "fused-loss": 1}},
		{MemoryOptions: models.MemoryOptions{Liger: true}, Settings: models.Settings{"chunked-loss": 4}},
	} {
		_, err := m.Complete(c)
		require.ErrorContains(t, err, "chunked-loss: the fused loss of liger-kernel goes through chunks of its own")
	}
	_, err := m.Complete(models.Case{Task: classification, Settings: models.Settings{"fused-loss": 1}})
	require.ErrorContains(t, err, "fused-loss: has no influence on task classification")
	peak := func(s models.Settings) int64 {
		r, err := m.Record(models.Case{Batch: 2, Settings: s}, testGPU, models.Options{Steps: 1})
		require.NoError(t, err)
		_, peak := firstStep(r.Program)
		return peak
	}
	whole, chunked, fused := peak(nil), peak(models.Settings{"chunked-loss": 8}), peak(models.Settings{"fused-loss": 1})
	require.Less(t, chunked, whole)
	require.Less(t, fused, chunked, "the fused loss keeps no scores at all")
}

// In evaluation liger-kernel's forward has all scores, and PyTorch's loss of them (skip_logits is self.training).
func TestTheFusedLossIsOfTrainingAlone(t *testing.T) {
	m := model(t, oneLayer)
	evaluation := models.Evaluation{Batch: 2, Scores: 2}
	ofAllScores := func(c models.Case) (losses int, err error) {
		c.Batch = 2
		r, err := m.Record(c, testGPU, models.Options{Steps: 1, Validation: 2})
		if err != nil {
			return 0, err
		}
		for _, op := range r.Program.Ops {
			if r.Program.Sites[op.Site].Native == "log_softmax" {
				losses++
			}
		}
		return losses, nil
	}
	whole, err := ofAllScores(models.Case{MemoryOptions: models.MemoryOptions{Evaluate: evaluation}})
	require.NoError(t, err)
	fused, err := ofAllScores(models.Case{MemoryOptions: models.MemoryOptions{Evaluate: evaluation, Liger: true}})
	require.NoError(t, err)
	require.Equal(t, []int{3, 2}, []int{whole, fused})
	_, err = ofAllScores(models.Case{
		MemoryOptions: models.MemoryOptions{Evaluate: evaluation}, Settings: models.Settings{"chunked-loss": 4},
	})
	require.ErrorContains(t, err, "the model returns its loss and no logits")
}
