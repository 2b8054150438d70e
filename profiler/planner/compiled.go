package planner

import "strings"

// compiledPair is the memory of one training step without and with torch.compile, as
// somebody has published it, both in the same unit and measured the same way.
type compiledPair struct {
	eager, compiled float64
	// of is what was trained, Source where the figures stand.
	of, source string
}

// compiledPairs are the published pairs that change torch.compile (Inductor, its default
// mode) and nothing else. What is given up is that of others' models, boards and releases.
var compiledPairs = []compiledPair{
	{82.4, 77.0, "Llama 3.1 8B, FSDP, reserved GiB", torchtitanTable},
	{67.0, 62.0, "Llama 3.1 70B, FSDP, reserved GiB", torchtitanTable},
	{60.0, 51.0, "Llama 3.2 3B, active GiB", "torchtune README.md"},
	{5.90, 6.19, "GPT-2 124M, bf16, reserved GB", "rasbt/LLMs-from-scratch ch05/10_llm-training-speed"},
	{17065, 15713, "ACT, fp32, MB", physicalAI},
	{15725, 11325, "ACT, bf16-mixed, MB", physicalAI},
	{8608, 7418, "SmolVLA, fp32, MB", physicalAI},
}

const (
	torchtitanTable = "pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md"
	physicalAI      = "open-edge-platform/physical-ai-studio pull request 477"
)

// Compile adapts the coefficients to a step under torch.compile. The eager step is replayed
// for it, so intervals become as wide as published pairs of eager and compiled steps differ.
func (c *Coefficients) Compile() {
	var apart []float64
	var sources []string
	for _, p := range compiledPairs {
		apart = append(apart, (p.compiled-p.eager)/p.eager)
		if len(sources) == 0 || sources[len(sources)-1] != p.source {
			sources = append(sources, p.source)
		}
	}
	between := middle95(apart)
	c.Compiled = Residual{
		Low: between[0], High: between[1], Records: len(compiledPairs),
		Group: strings.Join(sources, ", "), published: true,
	}
}
