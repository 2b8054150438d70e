package cli

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/tools/sample"
)

// Of the figures that others measured on real GPUs, of loops that are known, at least 90 of 100 lie
// within the interval, which in the median is no wider than a tenth.
func TestFiguresOfRealGPUsLieWithinIntervals(t *testing.T) {
	sample.Whole(t)
	const folder = "../bench/reference/data/published"
	rows, ok, err := reference.OpenPublished(folder + "/loops.jsonl.gz")
	require.NoError(t, err)
	require.True(t, ok)
	in, widths := 0, []float64{}
	for _, p := range rows {
		if !slices.Contains([]string{"fitcheck", "can-i-finetune-this", "PEFT MetaMathQA"}, p.Group) ||
			p.Kind != "reserved" {
			continue
		}
		e, err := system().planned(t.Context(), p.Command, folder)
		require.NoError(t, err, p.What)
		if e.Reserved.Low-p.Rounding <= p.Bytes && p.Bytes <= e.Reserved.High+p.Rounding {
			in++
		}
		widths = append(widths, float64(e.Reserved.High-e.Reserved.Low)/float64(e.Reserved.Bytes))
	}
	slices.Sort(widths)
	require.Len(t, widths, 82)
	require.GreaterOrEqual(t, in, 74)
	t.Logf("%d of %d within, median width %.4f", in, len(widths), widths[len(widths)/2])
	require.LessOrEqual(t, widths[len(widths)/2], 0.1)
}

// TestLoadedModelsNeedWhatPyTorchSays plans steps of a small Llama that from_pretrained brought to the GPU. The
// expected bytes are from the third step of a loop in a function under vprof run: transformers 5.24, bitsandbytes 0.50,
// peft 0.21, PyTorch 2.15 for CUDA on a simulated T4.
func TestLoadedModelsNeedWhatPyTorchSays(t *testing.T) {
	const adapters = " --lora r=32,alpha=64,target=q_proj,k_proj,v_proj,o_proj --optimizer adamw --clip none" +
		" --checkpointing non-reentrant --loop function --set shared-labels=1 --seq-len 512"
	for how, want := range map[string][2]int64{
		"--batch 1 --weights fp32 --quantize nf4":     {616_804_352, 696_254_464},
		"--batch 2 --weights fp16 --quantize nf4":     {685_326_336, 734_003_200},
		"--batch 3 --weights fp32 --quantize int8":    {1_510_076_416, 1_619_001_344},
		"--batch 2 --weights fp16 --set device-map=1": {815_976_448, 861_929_472},
	} {
		e, err := system().planned(t.Context(), "plan --model hf:llama-8x1024.json --gpu t4 --torch 2.15 "+how+adapters,
			"../bench/reference/data/finetune")
		require.NoError(t, err, how)
		require.InDelta(t, want[0], e.Allocated.Bytes, 512<<10, how)
		require.Equal(t, want[1], e.Reserved.Bytes, how)
	}
}

// Peaks of allocated memory that the authors of FakeGPU measured on an RTX PRO 5000: one step of Qwen3.5 with PyTorch
// 2.8.0 and transformers 5.12.1 (docs/llm-sft-memory-estimation.md), to the three digits that they print.
func TestStepsOfQwen35NeedWhatAGPUShowed(t *testing.T) {
	for how, want := range map[string]float64{
		"0.8b.json --seq-len 16 --accumulate 2":                                6.626,
		"0.8b.json --seq-len 128":                                              6.687,
		"0.8b.json --seq-len 128 --checkpointing":                              6.679,
		"0.8b.json --seq-len 16 --lora r=8,target=all-linear":                  1.756,
		"0.8b.json --seq-len 128 --lora r=8,target=all-linear":                 2.696,
		"0.8b.json --seq-len 128 --lora r=8,target=all-linear --checkpointing": 1.876,
		"2b.json --seq-len 16 --accumulate 2":                                  15.939,
		"2b.json --seq-len 16 --lora r=8,target=all-linear":                    3.868,
		"2b.json --seq-len 128 --lora r=8,target=all-linear":                   4.959,
		"2b.json --seq-len 128 --lora r=8,target=all-linear --checkpointing":   3.974,
	} {
		e, err := system().planned(t.Context(), "plan --gpu rtx-pro-5000 --torch 2.8 --stack transformers=5.12 --batch 1 "+
			"--optimizer adamw-single --clip none --loop function --set use-cache=false --set first-step=true "+
			"--model hf:configs/qwen3.5-"+how, "../bench/reference/data/published")
		require.NoError(t, err, how)
		require.InDelta(t, want, float64(e.Allocated.Bytes)/(1<<30), 0.0005, how)
	}
}
