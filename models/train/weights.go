package train

import (
	"regexp"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// castWeights sets the data type of floating-point weights to the case's, if it has one.
func castWeights(tree *nn.Tree, w models.WeightType) {
	if w == "" {
		return
	}
	for _, p := range tree.Parameters {
		if p.DType.IsFloat() {
			p.DType = dtypeOf(w)
		}
	}
	for _, b := range tree.Buffers {
		if b.HasWeightType {
			b.DType = dtypeOf(w)
		}
	}
}

// axolotlFP32Names matches the names of parameters that axolotl keeps in fp32 without adapters and flash attention.
var axolotlFP32Names = regexp.MustCompile(`norm|lm_head|embed_tokens|embed_in|embed_out|word_embeddings|\.gate\.`)

// castToBF16Names matches the names of embeddings and output layers in peft_module_casting_to_bf16.
var castToBF16Names = regexp.MustCompile(`lm_head|embed_tokens|wte|wpe`)

// castNamed sets the data type of parameters whose names match.
func castNamed(tree *nn.Tree, names *regexp.Regexp, to trace.DType) {
	for i, name := range tree.Names() {
		if names.MatchString(name) {
			tree.Parameters[i].DType = to
		}
	}
}

// dtypeOf returns the data type with a name in cases and strategies.
func dtypeOf[T ~string](name T) trace.DType {
	switch name {
	case "bf16":
		return trace.BF16
	case "fp16":
		return trace.F16
	default:
		return trace.F32
	}
}

var quantizations = map[string]nn.Quantization{"nf4": nn.NF4, "nf4-dq": nn.NF4Double, "int8": nn.Int8}

// referenceWeights returns the weight type of the reference model. LLaMA-Factory loads models in the autocast
// precision and converts only trained weights to fp32.
func referenceWeights(c models.Case) models.WeightType {
	o := c.Objective
	if c.AMP != models.NoAutocast && o.LikeTrainer == models.AsLLaMAFactory {
		return models.WeightType(c.AMP)
	}
	return c.Weights
}

func (t *taskTrainer) loadingOptions() nn.Loading {
	return nn.Loading{
		Read: computeType(t.c), Widen: t.c.Quantize != "" && dtypeOf(t.c.Weights) == trace.F32,
		QueriesMemory: t.c.Strategy != nil && t.c.Strategy.Name == models.DeviceMap && len(t.c.Strategy.Memory) == 0,
	}
}

// contextBytes is the assumed use of GPU memory by CUDA and PyTorch before a model is loaded.
const contextBytes = 600 << 20

// applyDeviceMap places the model on the process's GPUs if the case has a device map.
func (t *taskTrainer) applyDeviceMap(tape *trace.Tape) {
	s := t.c.Strategy
	if s == nil || s.Name != models.DeviceMap {
		return
	}
	memory := s.Memory
	if memory == nil {
		free := trace.GPUProperty(tape, func(gpu trace.GPU) int64 { return gpu.Memory }) - contextBytes
		memory = slices.Repeat([]int64{free}, t.c.GPUs)
	}
	on, err := t.net.InferDeviceMap(nn.DeviceMap{
		Sequential: s.Map == "sequential", LowZero: s.Map == "balanced_low_0", Memory: memory,
		Loading: t.loadingOptions(), IsQuantized: t.c.Quantize != "",
	})
	if err != nil {
		tape.Raise(err)
	}
	t.net.ApplyDeviceMap(tape, on, int(*s.Rank))
}
