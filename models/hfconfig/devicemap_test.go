package hfconfig

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// A device map puts the bytes of weights on each GPU that get_balanced_memory and infer_auto_device_map of transformers
// 5.24 do, with the memory given to them (max_memory).
func TestDeviceMapsAreThoseOfTransformers(t *testing.T) {
	data, err := os.ReadFile("testdata/devicemaps.json")
	require.NoError(t, err)
	var rows []struct {
		Config  json.RawMessage
		Map     string
		Memory  []int64
		Weights []int64
	}
	require.NoError(t, json.Unmarshal(data, &rows))
	testGPU := trace.GPU{Name: "rtx-3090", Capability: 86, SMs: 82, ThreadsPerSM: 1536, Memory: 25_438_126_080}
	for _, row := range rows {
		m := model(t, string(row.Config))
		for gpu, want := range row.Weights {
			rank := int64(gpu)
			c := models.Case{
				Batch: 1, Weights: "bf16", AMP: models.NoAutocast, Torch: "2.15", GPUs: len(row.Weights),
				Settings: models.Settings{"seq-len": 16},
				Strategy: &models.Strategy{Name: models.DeviceMap, Map: row.Map, Memory: row.Memory, Rank: &rank},
			}
			r, err := m.Record(complete(t, m, c), testGPU, models.Options{})
			if err != nil { // of the loss, behind set-up
				require.ErrorContains(t, err, "same device")
				continue
			}
			require.Equal(t, want, weightsOf(r.Program), "%s %s GPU %d", row.Config, row.Map, gpu)
		}
	}
}

// weightsOf returns the size of the weights of a program.
func weightsOf(p *program.Program) (bytes int64) {
	for _, b := range p.Buffers {
		if b.Class == program.Weights {
			bytes += b.Bytes
		}
	}
	return bytes
}

// A model that has no room on the GPUs is refused, as is a loss whose labels stay behind.
func TestDeviceMapsThatDoNotTrain(t *testing.T) {
	const small = `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1000, "hidden_size": 256,
		"intermediate_size": 688, "num_hidden_layers": 10, "num_attention_heads": 8, "num_key_value_heads": 4}`
	const classifier = `{"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 8000,
		"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8}`
	for _, want := range []struct{ config, strategy, reason string }{
		{small, "device-map:map=sequential,memory=4MiB+4MiB", "on the host"},
		{small, "device-map:memory=4MiB", "memory has 1 sizes for 2 GPUs"},
		{classifier, "device-map", "same device"},
	} {
		s, err := models.ParseStrategy(want.strategy)
		require.NoError(t, err)
		m := model(t, want.config)
		c := models.Case{Batch: 2, Settings: models.Settings{"seq-len": 16}, GPUs: 2, Strategy: &s}
		if c, err = m.Complete(c); err == nil {
			_, err = m.Record(c, trace.GPU{Memory: 8 << 30}, models.Options{})
		}
		require.ErrorContains(t, err, want.reason)
	}
}
