package hfconfig

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// flatStep is a step under FullyShardedDataParallel on simulated GPUs (tools/record/fsdp1_trainer.py, and fsdp1.py by
// "make fsdp1"): of rank 0, requested bytes before it, after its forward pass, and the peaks of that and of the step.
type flatStep struct {
	released
	LoRA *struct {
		Rank    int64    `json:"r"`
		Alpha   int64    `json:"lora_alpha"`
		Dropout float64  `json:"lora_dropout"`
		Target  []string `json:"target_modules"`
	}
	Loop       models.Loop
	Options    map[string]string
	Ranks      int
	Accumulate int
}

// recorded returns the same of a recording.
func (r flatStep) recorded(t *testing.T) [4]int64 {
	t.Helper()
	m := model(t, string(r.Config))
	var s models.Strategy
	text := "fsdp1:rank=0"
	for key, value := range r.Options {
		text += "," + key + "=" + value
	}
	require.NoError(t, s.UnmarshalText([]byte(text)))
	c := models.Case{
		Task: causalLM, Batch: r.Batch, AMP: models.NoAutocast, Weights: models.WeightType(r.Weights),
		Optimizer: "adamw", Torch: "2.15", Checkpointing: r.Checkpointing != "", Accumulate: max(1, r.Accumulate),
		Settings: models.Settings{"seq-len": r.Length}, GPUs: max(2, r.Ranks), Strategy: &s,
		MemoryOptions: models.MemoryOptions{Loop: models.LoopFunction, Clip: "none", UseCache: "false"},
	}
	if r.Loop != "" {
		c.Loop, c.Clip = r.Loop, ""
	}
	if r.Checkpointing == "reentrant" {
		c.Recompute = models.Reentrant
	}
	if l := r.LoRA; l != nil {
		c.LoRA = &models.LoRA{Rank: l.Rank, Alpha: l.Alpha, Dropout: l.Dropout, Targets: l.Target}
	}
	return underRelease(t, m, c, r.Stack["transformers"], r.Name)
}

// Steps under FullyShardedDataParallel need what PyTorch allocates, to a kilobyte: scalars of the loop differ.
func TestFlatParametersNeedWhatPyTorchAllocates(t *testing.T) {
	f, err := os.Open("testdata/fsdp1.jsonl")
	require.NoError(t, err)
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		var r flatStep
		require.NoError(t, json.Unmarshal(s.Bytes(), &r))
		have := r.recorded(t)
		for i, want := range [4]int64{r.Before, r.Forward, r.ForwardPeak, r.Peak} {
			if want > 0 { // a step of several micro-batches has several forward passes
				require.InDelta(t, want, have[i], 1024, "%s: count %d", r.Name, i)
			}
		}
	}
	require.Greater(t, n, 22)
}
