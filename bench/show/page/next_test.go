package page

import (
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
