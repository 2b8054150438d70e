package planner

import (
	"math"
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// compiledModel describes how torch.compile changed the memory of a model's training steps, for each way of compiling
// it (the model alone, with its loss, block by block). Values are shares of the eager step's bytes, excluding bytes
// that no compiler changes: weights, buffers, optimizer state and batch.
type compiledModel struct {
	model string
	// text reports whether the model trains on tokens: compiled steps store logits and softmax in 16 bits or not.
	text                bool
	allocated, reserved [2]float64 // the least and the most
}

// compiledModels are the measured memory of steps recorded with PyTorch 2.15 (Inductor in its default mode; bf16
// autocast, except for two of the ways of compiling).
var compiledModels = []compiledModel{
	{"a GPT of 4 layers", true, [2]float64{.573, 1.001}, [2]float64{.525, 1.016}},
	{"gpt2", true, [2]float64{.386, .705}, [2]float64{.364, .732}},
	{"Qwen3 of 8 layers", true, [2]float64{.349, .844}, [2]float64{.388, .857}},
	{"pythia-70m", true, [2]float64{.303, 1.001}, [2]float64{.369, .999}},
	{"bart-base", true, [2]float64{.555, .982}, [2]float64{.586, .978}},
	{"opt-125m", true, [2]float64{.437, .950}, [2]float64{.383, .954}},
	{"resnet50d", false, [2]float64{.923, .923}, [2]float64{.948, .948}},
	{"vit_small_patch16_224", false, [2]float64{.918, 1}, [2]float64{.883, .967}},
	{"mixer_b16_224", false, [2]float64{.869, .869}, [2]float64{.843, .857}},
	{"resnet34", false, [2]float64{.798, .814}, [2]float64{.818, .956}},
	{"convnext_tiny", false, [2]float64{.930, .934}, [2]float64{.746, .802}},
	{"efficientnet_b0", false, [2]float64{.619, .624}, [2]float64{.709, .754}},
}

// compiledPair is the published memory of one training step without and with torch.compile, both in the same unit and
// measured in the same way.
type compiledPair struct {
	eager, compiled float64
	// model names the training, and source the place of publication.
	model, source string
}

// compiledPairs are published pairs of measurements that differ only in torch.compile. None states the bytes that no
// compiler changes, so the pairs only give an upper bound.
var compiledPairs = []compiledPair{
	{82.4, 77.0, "Llama 3.1 8B, FSDP, reserved GiB", torchtitanSource},
	{67.0, 62.0, "Llama 3.1 70B, FSDP, reserved GiB", torchtitanSource},
	{60.0, 51.0, "Llama 3.2 3B, active GiB", "torchtune README.md"},
	{5.90, 6.19, "GPT-2 124M, bf16, reserved GB", "rasbt/LLMs-from-scratch ch05/10_llm-training-speed"},
	{17065, 15713, "ACT, fp32, MB", physicalAISource},
	{15725, 11325, "ACT, bf16-mixed, MB", physicalAISource},
	{8608, 7418, "SmolVLA, fp32, MB", physicalAISource},
}

const (
	torchtitanSource = "pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md"
	physicalAISource = "open-edge-platform/physical-ai-studio pull request 477"
)

// CompiledResiduals describes the uncertainty of a torch.compile step without a recording, for which the eager step is
// replayed. The zero value is for an eager step.
type CompiledResiduals struct {
	// Allocated and Reserved are relative to the bytes that a compiler can change.
	Allocated, Reserved Residual
}

// AdaptToCompile adapts the coefficients to a torch.compile step that was not recorded. text reports whether the model
// is, or may be, trained on tokens.
func (c *Coefficients) AdaptToCompile(text bool) {
	kind := slices.DeleteFunc(slices.Clone(compiledModels), func(m compiledModel) bool { return m.text != text })
	name := "models of images and sound"
	if text {
		name = "language models"
	}
	of := func(shares func(compiledModel) [2]float64) Residual {
		r := Residual{Records: len(kind), Group: name + " under torch.compile"}
		var least []float64
		for _, m := range kind {
			least = append(least, shares(m)[0])
			r.High = max(r.High, shares(m)[1]-1)
		}
		for _, p := range compiledPairs {
			r.High = max(r.High, p.compiled/p.eager-1)
		}
		r.Low = lowerPrediction(least) - 1
		return r
	}
	c.Compiled = CompiledResiduals{
		Allocated: of(func(m compiledModel) [2]float64 { return m.allocated }),
		Reserved:  of(func(m compiledModel) [2]float64 { return m.reserved }),
	}
}

// studentT975 is the 97.5 % quantile of Student's distribution with 5 degrees of freedom, for six models.
const studentT975 = 2.571

// lowerPrediction returns the lower end of the 95 % prediction interval for the share of one further model. Its
// logarithm is assumed to be normally distributed, like the six models'.
func lowerPrediction(shares []float64) float64 {
	n := float64(len(shares))
	var sum, squares float64
	for _, s := range shares {
		sum += math.Log(s)
		squares += math.Log(s) * math.Log(s)
	}
	deviation := math.Sqrt((squares - sum*sum/n) / (n - 1))
	return math.Exp(sum/n - studentT975*deviation*math.Sqrt(1+1/n))
}

// EagerBreakdown returns the allocated bytes that torch.compile does not change: weights, buffers, optimizer, batch.
func EagerBreakdown(b program.Breakdown) (out program.Breakdown) {
	for _, c := range []program.Class{program.Weights, program.Buffers, program.OptimizerState, program.Batch} {
		out[c] = b[c]
	}
	return out
}

func (c CompiledResiduals) residualsFor(s Sample) (allocated, reserved Residual) {
	kept := EagerBreakdown(s.Classes).Total()
	share := func(r Residual, total int64) Residual {
		if total > 0 {
			r.Low *= float64(total-kept) / float64(total)
			r.High *= float64(total-kept) / float64(total)
		}
		return r
	}
	return share(c.Allocated, s.Allocated()), share(c.Reserved, s.Reserved)
}

func (c CompiledResiduals) isUnknown() bool { return c.Allocated.Records > 0 }
