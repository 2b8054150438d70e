package microscope_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/models/hfconfig"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/tools/sample"
)

// fineTuned are the cases of the lists of fine-tuning steps, by the names of the
// lists: of llama-8x1024 on an RTX 3090, three steps of two rows of 256 tokens.
var fineTuned = map[string]models.Case{
	"llama-adamw8bit":  {Optimizer: "adamw8bit"},
	"llama-inbackward": {MemoryOptions: models.MemoryOptions{InBackward: true}},
	"llama-liger":      {MemoryOptions: models.MemoryOptions{Liger: true}},
	"llama-muon":       {Optimizer: "muon"},
	"llama-offload":    {MemoryOptions: models.MemoryOptions{Offload: true}},
	"llama-paged32":    {Optimizer: "paged-adamw32bit"},
	"llama-qlora-ckpt": {
		Checkpointing: true, LoRA: recordedLoRA(),
		MemoryOptions: models.MemoryOptions{Quantize: "nf4"},
	},
	"llama-qlora-dq":  {LoRA: recordedLoRA(), MemoryOptions: models.MemoryOptions{Quantize: "nf4-dq"}},
	"llama-reentrant": {Checkpointing: true, MemoryOptions: models.MemoryOptions{Recompute: models.Reentrant}},
}

func recordedLoRA() *models.LoRA { return &models.LoRA{Rank: 16, Alpha: 32, Dropout: 0.05} }

// TestFineTuningRunsAsInPyTorch compares recorded fine-tuning steps, event by event,
// with what the recorder makes of the same levers. The lists have no phases.
func TestFineTuningRunsAsInPyTorch(t *testing.T) {
	paths, err := filepath.Glob("testdata/finetune/*.txt.bz2")
	require.NoError(t, err)
	require.Len(t, paths, len(fineTuned))
	gpu, err := device.Lookup("rtx-3090")
	require.NoError(t, err)
	var table strings.Builder
	for _, path := range sample.Of(paths) {
		name := strings.TrimSuffix(filepath.Base(path), ".txt.bz2")
		if !strings.Contains(name, *only) {
			continue
		}
		c, ok := fineTuned[name]
		require.True(t, ok, name)
		c.Model, c.Batch, c.Weights, c.Clip = reference.FineTunedScheme+":llama-8x1024", 2, "bf16", models.ClipNone
		c.Torch, c.Settings = "2.11", models.Settings{"seq-len": 256, "packed": 1}
		r, err := all.Models().WithSource(reference.FineTuned()).Record(c, recorderGPU(gpu),
			models.Options{Steps: 3, Annotate: true})
		require.NoError(t, err, name)
		result, err := Compare(unmarked(readList(t, path)), unmarked(ours(t, r.Program)))
		require.NoError(t, err, name)
		if *only != "" {
			result.Print(os.Stdout, *show)
		}
		require.GreaterOrEqual(t, result.Allocations.Share(), 0.99, name)
		require.InDelta(t, 1, float64(result.PeakOurs)/float64(result.PeakReference), 0.0001, name)
		addRow(&table, 20, name, result)
	}
	if !sample.All() || *only != "" {
		return
	}
	requireTable(t, "testdata/finetune.golden", table.String())
}

// unmarked returns all events in one phase.
func unmarked(events []event) []event {
	var out []event
	for _, e := range events {
		if e.Kind != marked {
			out = append(out, e)
		}
	}
	return append(out, event{Kind: marked, Phase: program.Phase{Name: "all"}})
}

// TestConfigurationsRunAsInPyTorch compares recorded steps of decoders of transformers
// with what the recorder makes of their configurations: four rows of 256 tokens.
func TestConfigurationsRunAsInPyTorch(t *testing.T) {
	gpu, err := device.Lookup("rtx-3090")
	require.NoError(t, err)
	for name, config := range map[string]string{
		"hf-gemma2-tiny-b4-none-adamw": `{"model_type": "gemma2", "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 6,
			"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 160, "vocab_size": 32000}`,
		"hf-qwen3-tiny-b4-bf16-adamw": `{"model_type": "qwen3", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8,
			"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000}`,
	} {
		m, err := hfconfig.Parse("it.json", []byte(config))
		require.NoError(t, err)
		c := models.Case{
			Batch: 4, Torch: "2.11", Settings: models.Settings{"seq-len": 256, "packed": 1},
			MemoryOptions: models.MemoryOptions{Clip: models.ClipNone},
		}
		if strings.Contains(name, "bf16") {
			c.AMP = "bf16"
		}
		r, err := m.Record(c, recorderGPU(gpu), models.Options{Steps: 2, Annotate: true})
		require.NoError(t, err)
		result, err := Compare(unmarked(readList(t, "testdata/exported/"+name+".txt.bz2")),
			unmarked(ours(t, r.Program)))
		require.NoError(t, err)
		if strings.Contains(name, *only) && *only != "" {
			result.Print(os.Stdout, *show)
		}
		// The lists come from a loop that keeps the logits until the next step, so frees and peaks differ.
		require.GreaterOrEqual(t, result.Allocations.Share(), 0.995, name)
		require.GreaterOrEqual(t, result.Events.Share(), 0.99, name)
	}
}
