package reference

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

const measuredLine = `{"case": {"model": "gpt2", "stage": "full", "amp": "bf16", "checkpointing": true, "accumulate": 2, "settings": {"seq-len": 256}, ` +
	`"torch": "2.13", "batch_unit": "sequence"}, "batch": 4, "gpu": "rtx-4090", "device": "NVIDIA GeForce RTX 4090", "torch": "2.15.0+cu132", ` +
	`"status": "ok", "steps": 3, "peak_allocated": 10, "peak_reserved": 20}`

func TestLinesOfCallbacksAreCases(t *testing.T) {
	f, err := Read(strings.NewReader(measuredLine+"\n"+measuredLine), "peaks.jsonl")
	require.NoError(t, err)
	require.Len(t, f.Records, 2)
	r := f.Records[1]
	require.Equal(t, models.Case{
		Model: "gpt2", Stage: "full", Batch: 4, AMP: "bf16", Checkpointing: true, Accumulate: 2, Torch: "2.15",
		Settings: models.Settings{"seq-len": 256},
	}, r.Case)
	require.Equal(t, 3, r.Steps())
	require.Equal(t, int64(20), r.PeakReserved)
}

func TestDamagedLinesOfCallbacksAreExplained(t *testing.T) {
	for want, change := range map[string][2]string{
		"peaks.jsonl:1: steps: want the number of optimizer steps, found 0": {`"steps": 3`, `"steps": 0`},
		"peaks.jsonl:1: peak_allocated: want bytes, found 0": {
			`"peak_allocated": 10`,
			`"peak_allocated": 0`,
		},
		"peaks.jsonl:1: peak_reserved: 20 is below the 30 allocated": {`"peak_allocated": 10`, `"peak_allocated": 30`},
		"peaks.jsonl:1: gpu: empty":                                  {`"rtx-4090"`, `""`},
		"peaks.jsonl:1: torch: ":                                     {`2.15.0+cu132`, `new`},
	} {
		_, err := Read(strings.NewReader(strings.Replace(measuredLine, change[0], change[1], 1)), "peaks.jsonl")
		require.ErrorContains(t, err, want)
	}
}
