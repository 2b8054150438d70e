package train

import (
	"regexp"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// castWeights sets the type of floating-point weights to the case's; without one they keep their own.
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
		if b.OfWeights {
			b.DType = dtypeOf(w)
		}
	}
}

// narrowed matches the names of embeddings and output layers in peft_module_casting_to_bf16.
var narrowed = regexp.MustCompile(`lm_head|embed_tokens|wte|wpe`)

// narrowEmbeddings sets the type of embeddings and the output layer.
func narrowEmbeddings(tree *nn.Tree, to trace.DType) {
	for i, name := range tree.Names() {
		if narrowed.MatchString(name) {
			tree.Parameters[i].DType = to
		}
	}
}

// dtypeOf returns the type that cases and strategies name.
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

// referenceWeights returns the weight type of the reference model. LLaMA-Factory loads models in the training
// precision, and converts only trained weights to fp32.
func referenceWeights(c models.Case) models.WeightType {
	o := c.Objective
	if c.AMP != models.NoAutocast && o.LikeTrainer == models.AsLLaMAFactory {
		return models.WeightType(c.AMP)
	}
	return c.Weights
}

// loading returns the options of from_pretrained by which the model is loaded to the device.
func (t *taskTrainer) loading() nn.Loading {
	return nn.Loading{
		Read: computeType(t.c), Widen: t.c.Quantize != "" && dtypeOf(t.c.Weights) == trace.F32,
		Asks: t.c.Strategy != nil && t.c.Strategy.Name == models.DeviceMap && len(t.c.Strategy.Memory) == 0,
	}
}

// contextBytes is the assumed use of a GPU before a model is loaded, by CUDA and PyTorch themselves.
const contextBytes = 600 << 20

// spread places the model on several GPUs of the process, if the case sets it.
func (t *taskTrainer) spread(tape *trace.Tape) {
	s := t.c.Strategy
	if s == nil || s.Name != models.DeviceMap {
		return
	}
	memory := s.Memory
	if memory == nil {
		free := trace.GPUProperty(tape, func(gpu trace.GPU) int64 { return gpu.Memory }) - contextBytes
		memory = slices.Repeat([]int64{free}, t.c.GPUs)
	}
	on, err := t.net.Devices(nn.DeviceMap{
		Sequential: s.Map == "sequential", LowZero: s.Map == "balanced_low_0", Memory: memory,
		Loading: t.loading(), Packed: t.c.Quantize != "",
	})
	if err != nil {
		tape.Raise(err)
	}
	t.net.Spread(tape, on, int(*s.Rank))
}
