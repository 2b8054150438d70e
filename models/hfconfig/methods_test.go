package hfconfig

import (
	"cmp"
	"encoding/json"
	"maps"
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

// adaptedPeak is the row of a file with what a step of a model with adapters needs.
type adaptedPeak struct {
	// Model names one of the file's; Type is another model than Llama.
	Model, Type, LoRA string
	// Quantize is how layers are packed, of a model that is loaded so and has the rest in fp32.
	Quantize             string
	Tokens               int64
	Trainable, Allocated int64
}

// readPeaks reads such a file, and what its models have in place of the small Llama's keys.
func readPeaks(t *testing.T, path string) (rows []adaptedPeak, configs map[string]map[string]any) {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var file struct {
		Models map[string]map[string]any
		Rows   []adaptedPeak
	}
	require.NoError(t, json.Unmarshal(data, &file))
	return file.Rows, file.Models
}

// requirePeak holds a step of a model with adapters to what peft itself needed.
func requirePeak(t *testing.T, config string, row adaptedPeak, shared int64) (l models.LoRA) {
	testGPU := trace.GPU{Name: "rtx-3090", Capability: 86, SMs: 82, ThreadsPerSM: 1536, Memory: 25_438_126_080}
	l, err := models.ParseLoRA(row.LoRA)
	require.NoError(t, err)
	m := model(t, config)
	c := complete(t, m, models.Case{
		Batch: 4, Weights: "bf16", Optimizer: "adamw", LoRA: &l, Torch: "2.15",
		Settings: models.Settings{"seq-len": cmp.Or(row.Tokens, 256), hf.SharedLabels: shared},
	})
	if row.Quantize != "" {
		c.Quantize, c.Weights, c.Settings["device-map"] = row.Quantize, "fp32", 1
	}
	c.Clip, c.Loop = models.ClipNone, models.LoopTrainer
	r, err := m.Record(c, testGPU, models.Options{})
	require.NoError(t, err, row.LoRA)
	require.Equal(t, row.Trainable, r.Counts.Trainable, row.LoRA)
	peak := int64(0)
	for _, p := range phases(r.Program, inBlocks) {
		peak = max(peak, p.peak)
	}
	require.Equal(t, row.Allocated, peak, row.LoRA)
	return l
}

// Each method of peft allocates at the peak of a step what peft itself does, to the byte.
func TestMethodsAllocateWhatPeftDoes(t *testing.T) {
	rows, _ := readPeaks(t, "testdata/methods.json")
	seen := map[string]bool{}
	for _, row := range rows {
		config := methodsModel
		if row.Type == "qwen2" {
			config = strings.NewReplacer("llama", "qwen2", "Llama", "Qwen2").Replace(config)
		}
		l := requirePeak(t, config, row, 1)
		require.Equal(t, row.LoRA, l.String())
		seen[l.Method] = true
	}
	require.Len(t, seen, len(peft.Methods()), "methods without a figure of peft")
}

// So does LoRA with the options of its configuration: which layers it is at, of what ranks, and what else is trained.
func TestOptionsOfLoRAAllocateWhatPeftDoes(t *testing.T) {
	rows, configs := readPeaks(t, "testdata/adapters.json")
	for _, row := range rows {
		var config map[string]any
		require.NoError(t, json.Unmarshal([]byte(methodsModel), &config))
		maps.Copy(config, configs[row.Model])
		text, err := json.Marshal(config)
		require.NoError(t, err)
		requirePeak(t, string(text), row, 0)
	}
}
