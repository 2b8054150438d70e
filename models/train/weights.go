package train

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// castWeights gives floating-point weights the type of the case; without one they keep their own.
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

// referenceWeights returns the type of the weights of a model that is compared with. LLaMA-Factory
// loads models in the precision of training, and brings only what is trained to fp32.
func referenceWeights(c models.Case) models.WeightType {
	o := c.Objective
	if c.AMP != models.NoAutocast && o.As == models.AsLLaMAFactory {
		return models.WeightType(c.AMP)
	}
	return c.Weights
}
