package page

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
)

func TestFitCommandHasTheCase(t *testing.T) {
	c := report.Case{Case: models.Case{
		Model: "gpt2", Stage: "full", Torch: "2.15", Accumulate: 2, Optimizer: "adamw",
		AllocConf: "expandable_segments:True",
		Settings:  models.Settings{"seq-len": 512},
	}}
	require.Equal(t,
		"vprof fit --model gpt2 --gpu t4 --stage full --accumulate 2 --optimizer adamw --torch 2.15 --alloc-conf "+
			"expandable_segments:True --set seq-len=512",
		fitCommand(c, report.Device{GPU: "t4"}))
	c.LoRA, c.Liger, c.GPUs, c.Strategy = &models.LoRA{Rank: 8, Match: "layers.*q_proj"}, true, 2, &models.Strategy{
		Name: models.DDP,
	}
	require.Contains(t, fitCommand(c, report.Device{GPU: "t4"}),
		" --lora 'r=8,alpha=0,match=layers.*q_proj' --liger=true --gpus 2 --strategy ddp ")
	c.ConfigHash = "abc"
	require.Contains(t, fitCommand(c, report.Device{GPU: "t4"}), "--model FILE ")
}

// A command keeps its batch size to itself: its page names none, and fit needs to know where it stands.
func TestPageOfACommandHasNoBatch(t *testing.T) {
	p := &Page{Runs: []*report.Report{{
		Case: report.Case{Case: models.Case{Model: "train.py"}, BatchUnit: "sample"},
		Script: &report.Script{
			Command: []string{"python", "train.py", "--batch-size", "32", "--lr=0.1"}, Result: "fits", Steps: []int{3},
		},
		Devices: []report.Device{{Name: "sim:t4", GPU: "t4", Title: "Tesla T4", Memory: 1 << 34, Simulated: true}},
		Points: []report.Point{{Batch: 1, Device: "sim:t4", Run: &report.Run{
			Simulated: true, Fits: true, Allocated: 1 << 30, Reserved: 1 << 30, Device: 1 << 31,
			Classes: []report.Component{{Name: "weights", Bytes: 1 << 30}},
		}}},
	}}}
	var b strings.Builder
	require.NoError(t, p.Write(&b))
	require.Contains(t, b.String(), "vprof fit --gpu t4 -- python train.py --batch-size {batch} --lr=0.1")
	require.NotContains(t, b.String(), "batch 1")
	require.Contains(t, b.String(), `<span class="name">the run</span>`)
}
