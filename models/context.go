package models

import (
	"cmp"
	"errors"
	"fmt"
)

// The values of [Strategy.CPBy]: how ranks that share a sequence attend over all of it.
const (
	// Ulysses exchanges tokens for heads by all-to-all (DeepSpeed, ms-swift).
	Ulysses = "ulysses"
	// Llama3 gathers keys and values head by head (llama3_flash_attn_varlen of
	// ring-flash-attn, which axolotl takes for packed rows).
	Llama3 = "llama3"
	// Ring sends keys and values round (ring_flash_attn of ring-flash-attn).
	Ring = "ring"
	// RingOfTorch gathers keys and values at once, and gives each rank a part of the head and one of the tail
	// (PyTorch's own context_parallel, which transformers' Trainer takes with accelerate's cp_size).
	RingOfTorch = "torch"
)

// ContextWays returns the values of [Strategy.CPBy].
func ContextWays() []string { return []string{Ulysses, Llama3, Ring, RingOfTorch} }

// The values of [Strategy.EPBy]: how tokens come to the ranks that have their experts.
const (
	// DeepEP sends each token once to a rank (axolotl's ExpertParallelPlugin).
	DeepEP = "deepep"
	// TorchExperts sends each pair of a token and an expert by all-to-all of torch.distributed (transformers' ep_size).
	TorchExperts = "torch"
)

// ExpertWays returns the values of [Strategy.EPBy].
func ExpertWays() []string { return []string{DeepEP, TorchExperts} }

// ContextWay returns how ranks share sequences.
func (s *Strategy) ContextWay() string { return cmp.Or(s.CPBy, Ulysses) }

// checkContext says what does not go together with sequences that ranks share.
func (c Case) checkContext(m Model) error {
	switch {
	case c.Strategy.CP == 0:
		return nil
	case !m.Levers.Context:
		return errors.New("vprof records sequences that ranks share (cp) for transformers' decoders with plain " +
			"attention (hf:config.json)")
	case c.Task != "" && len(m.Tasks) > 0 && c.Task != m.Tasks[0] || !c.Objective.IsZero():
		return errors.New("vprof records sequences that ranks share (cp) for learning the next token")
	case c.Strategy.Name == PP && c.Strategy.CPBy != RingOfTorch:
		return fmt.Errorf("vprof records sequences that ranks of a stage share (cp) with cp_by=%s", RingOfTorch)
	}
	return nil
}

// checkTokens says what does not go together with tokens and scores that tensor-parallel ranks share.
func (c Case) checkTokens(m Model) error {
	s := c.Strategy
	switch {
	case !s.Sequence && !s.ParallelLoss && s.TPBy == "":
		return nil
	case !m.Levers.Context:
		return errors.New("vprof records sequence, loss and tp_by of tensor parallelism for transformers' decoders " +
			"with plain attention (hf:config.json)")
	case s.TPBy != "" && !m.Levers.TensorPlan:
		return errors.New("vprof does not record what transformers has ranks share of this model (tp_by): its plan " +
			"gathers between layers, leaves some whole, or is not there; leave out tp_by, or take fsdp2")
	case s.CP > 0:
		return errors.New("vprof records sequence and loss of tensor parallelism without context parallelism; leave " +
			"out cp")
	case c.Task != "" && len(m.Tasks) > 0 && c.Task != m.Tasks[0] || !c.Objective.IsZero():
		return errors.New("vprof records sequence and loss of tensor parallelism for learning the next token")
	}
	return nil
}

// checkExperts says what does not go together with experts that ranks share out.
func (c Case) checkExperts(m Model) error {
	s := c.Strategy
	gpus := int64(c.GPUs) / s.PipelineRanks(c.GPUs)
	switch {
	case s.EP == 0:
		return nil
	case m.Levers.Experts == 0:
		return errors.New("vprof records experts that ranks share out (ep) for mixtures of transformers whose " +
			"experts are grouped products, as those of Qwen, Mixtral and DeepSeek")
	case m.Levers.Experts%s.EP != 0:
		return fmt.Errorf("%d ranks cannot share out %d experts evenly (ep=%d)", s.EP, m.Levers.Experts, s.EP)
	case gpus%s.EP != 0:
		return fmt.Errorf("%d GPUs cannot be divided into groups of %d that share out the experts (ep=%d)",
			gpus, s.EP, s.EP)
	case s.Name == PP && s.EPBy == "":
		return fmt.Errorf("vprof records experts that ranks of a stage share out (ep) with ep_by=%s", TorchExperts)
	case s.TP > 0 && (s.TPBy == "" || s.EPBy == "" || s.CP > 0):
		return errors.New("vprof records experts that ranks share out (ep) beside layers that they share (tp) as " +
			"transformers does: tp:tp=N,tp_by=transformers,ep=M,ep_by=torch, without cp")
	case s.TP > 0 && s.EP%s.TP != 0:
		return fmt.Errorf("transformers has ep a multiple of tp: ep=%d is none of tp=%d", s.EP, s.TP)
	case gpus/max(1, s.Replicate)%s.EP != 0:
		return fmt.Errorf("%d GPUs of each replica cannot be divided into groups of %d that share out the experts "+
			"(ep=%d)", gpus/s.Replicate, s.EP, s.EP)
	case (s.CP > 0 || s.Replicate > 1) && s.EPBy == "":
		return errors.New("vprof records experts that ranks share out (ep) beside sequences that they share, and " +
			"with replicas, by ep_by=torch alone; leave out cp and replicate")
	case s.CP > 0 && (s.CPBy != RingOfTorch || s.Name == DDP):
		return fmt.Errorf("vprof records experts that ranks share out (ep) beside sequences that they share under %s "+
			"and %s, with cp_by=%s", FSDP2, PP, RingOfTorch)
	case s.Name == FSDP2 && int64(c.GPUs) == s.EP && s.EPBy == "":
		return fmt.Errorf("with ep=%d on %d GPUs nothing is left over which fully_shard could shard the experts; "+
			"take a multiple of %d GPUs, or ddp:ep=%d", s.EP, c.GPUs, s.EP, s.EP)
	case s.Name == DDP && int64(c.GPUs) != s.EP:
		return fmt.Errorf("vprof records DistributedDataParallel with experts over all ranks alone: ep=%d", c.GPUs)
	case c.Quantize != "":
		return errors.New(
			"vprof records experts that ranks share out (ep) in the type of the weights; leave out --quantize")
	}
	return nil
}
