package models

import "cmp"

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
