package reference

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

const fineTuneLine = `{"model": "llama-8x1024", "weights": "bf16", "amp": "none", "adapter": "qlora-dq", "rank": 16, "targets": "q_proj,v_proj", ` +
	`"optimizer": "paged-adamw8bit", "checkpointing": "reentrant", "liger": true, "offload": false, "in_backward": false, "accumulate": 2, "batch": 3, "seq": 512, ` +
	`"trainable": 1, "params": 2, "status": "ok", "peak_allocated": 10, "peak_reserved": 20, "by_step": [[10, 20, 5]], "gpu": "rtx-3090", "torch": "2.11.0+cu130"}`

func TestFineTuningRecordsAreCases(t *testing.T) {
	f, err := Read(strings.NewReader(fineTuneLine+"\n"+fineTuneLine), "steps.jsonl")
	require.NoError(t, err)
	require.Len(t, f.Records, 2)
	r := f.Records[1]
	require.Equal(t, models.Case{
		Model: "finetune:llama-8x1024", Batch: 3, Weights: "bf16", Checkpointing: true, Accumulate: 2,
		Optimizer: "paged-adamw8bit",
		LoRA:      &models.LoRA{Rank: 16, Alpha: 32, Dropout: 0.05, Targets: []string{"q_proj", "v_proj"}},
		MemoryOptions: models.MemoryOptions{
			Quantize: "nf4-dq", Liger: true, Recompute: models.Reentrant,
			Clip: models.ClipNone,
		},
		Settings: models.Settings{"seq-len": 512, "packed": 1},
	}, r.Case)
	require.Equal(t, 1, r.Steps())
	m, err := FineTuned().Open("llama-8x1024")
	require.NoError(t, err)
	require.Equal(t, "hf:llama-8x1024", m.Name)
	_, err = FineTuned().Open("nobody")
	require.Error(t, err)
}

func TestDamagedFineTuningRecordsAreExplained(t *testing.T) {
	for want, change := range map[string][2]any{
		`steps.jsonl:1: weights: there is no precision "int3"; use fp32, fp16 or bf16`:                                                                 {"weights", "int3"},
		`steps.jsonl:1: adapter: there is no adapter "dora"`:                                                                                           {"adapter", "dora"},
		`steps.jsonl:1: rank: want at least 1, found 0`:                                                                                                {"rank", 0},
		`steps.jsonl:1: checkpointing: 3 is neither false nor the name of a kind`:                                                                      {"checkpointing", 3},
		`steps.jsonl:1: checkpointing: there is no checkpointing "yes"; use non-reentrant, reentrant, reentrant-trained, every=N or selective=mm,sdpa`: {"checkpointing", "yes"},
		`steps.jsonl:1: by_step: missing`:                                                                                                              {"by_step", []int{}},
		`steps.jsonl:1: batch: batch size 0: need at least 1`:                                                                                          {"batch", 0},
	} {
		record := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(fineTuneLine), &record))
		record[change[0].(string)] = change[1]
		line, err := json.Marshal(record)
		require.NoError(t, err)
		_, err = Read(strings.NewReader(string(line)), "steps.jsonl")
		require.ErrorContains(t, err, want)
	}
}
