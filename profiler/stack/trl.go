package stack

import "github.com/vprof/vprof/profiler/trace"

// trl has what begins with releases of TRL, as recorded steps show it (cli/testdata/trl.jsonl.gz).
var trl = libraryReleases{
	name: "trl", oldest: "1.6", first: "1.9", newest: "1.16",
	changes: []ruleChange{
		{"1.7", func(r *trace.Libraries) { r.ChunksLoss = true }},    // loss_type of sft_config.py
		{"1.10", func(r *trace.Libraries) { r.ScalesAnew = true }},   // grpo_trainer.py
		{"1.13", func(r *trace.Libraries) { r.ChunksInHalf = true }}, // _chunk of sft_trainer.py
		{"1.14", func(r *trace.Libraries) { r.LogKernels = true }},   // trl/kernels/logprob_entropy.py
		{"1.15", func(r *trace.Libraries) { r.FusedHead = true }},    // add_fused_lm_head of trainer/utils.py
	},
}
