package hfconfig

import (
	"cmp"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/peft"
	"github.com/vprof/vprof/profiler/trace"
)

// methodsModel is a small Llama, with fewer heads for keys than for queries.
const methodsModel = `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 2048,
	"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 3, "num_attention_heads": 8,
	"num_key_value_heads": 4,
	"tie_word_embeddings": false, "use_cache": false}`

// Each method of peft allocates at the peak of a step what peft itself does, to the byte.
func TestMethodsAllocateWhatPeftDoes(t *testing.T) {
	data, err := os.ReadFile("testdata/methods.json")
	require.NoError(t, err)
	var peaks struct {
		Rows []struct {
			// Type is another model than Llama.
			Type, LoRA           string
			Tokens               int64
			Trainable, Allocated int64
		}
	}
	require.NoError(t, json.Unmarshal(data, &peaks))
	board := trace.Board{Name: "rtx-3090", Capability: 86, SMs: 82, ThreadsPerSM: 1536, Memory: 25_438_126_080}
	seen := map[string]bool{}
	for _, row := range peaks.Rows {
		l, err := models.ParseLoRA(row.LoRA)
		require.NoError(t, err)
		require.Equal(t, row.LoRA, l.String())
		seen[l.Method] = true
		config := methodsModel
		if row.Type == "qwen2" {
			config = strings.NewReplacer("llama", "qwen2", "Llama", "Qwen2").Replace(config)
		}
		m := model(t, config)
		c := complete(t, m, models.Case{
			Batch: 4, Weights: "bf16", Optimizer: "adamw", LoRA: &l, Torch: "2.15",
			Settings: models.Settings{"seq-len": cmp.Or(row.Tokens, 256), hf.SharedLabels: 1},
		})
		c.Clip, c.Loop = models.ClipNone, models.LoopTrainer
		r, err := m.Record(c, board, models.Options{})
		require.NoError(t, err, row.LoRA)
		require.Equal(t, row.Trainable, r.Counts.Trainable, row.LoRA)
		peak := int64(0)
		for _, p := range phases(r.Program, inBlocks) {
			peak = max(peak, p.peak)
		}
		require.Equal(t, row.Allocated, peak, row.LoRA)
	}
	require.Len(t, seen, len(peft.Methods()), "methods without a figure of peft")
}
