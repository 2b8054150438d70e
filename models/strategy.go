package models

import (
	"cmp"
	"slices"
)

// Strategy is how the ranks of a job train a model together: one rank on each GPU.
type Strategy struct {
	// Name is one of [Strategies].
	Name string
	// Rank is the rank that is recorded, nil for the one that needs most memory.
	Rank *int64

	// BucketCap is DDP's bucket_cap_mb, in MiB; zero is PyTorch's, which begins with
	// a bucket of 1 MiB. BucketView is gradient_as_bucket_view.
	BucketCap                           int64
	BucketView, StaticGraph, FindUnused bool

	// Reshard is reshard_after_forward of fully_shard: "true", "false", "auto" for PyTorch's None, which frees all but
	// the root's parameters, or the number of ranks that share parameters out again after forward.
	Reshard string
	// MP is param_dtype of its MixedPrecisionPolicy, "bf16" or "fp16", and Reduce
	// reduce_dtype; empty keeps the types that there are.
	MP, Reduce string
	// Replicate is the number of groups that each hold a whole model (HSDP).
	Replicate int64
	// Wrap are glob patterns of the paths of the modules that are wrapped besides the root, or [RootAlone] or [Ends];
	// empty means the children of the longest list of equal modules. [Strategy.Wraps] reads them.
	Wrap []string

	// TP is the number of ranks that share each linear layer; fully_shard shards over the others. Col and Row are the
	// names of the layers that are shared column-wise and row-wise, none for the names in Llama and similar models.
	TP                  int64
	ColumnWise, RowWise []string
	// TPBy is whose plan it is, one of [TensorWays]; empty is the first.
	TPBy string
	// Sequence has the ranks of such a group share the tokens, too, where layers are not shared
	// (sequence parallelism): outside of attention and feed-forward halves. ParallelLoss has them
	// share the logits, and compute the loss of those (loss_parallel).
	Sequence, ParallelLoss bool

	// CP is the number of ranks that share each sequence, and CPBy how, one of [ContextWays]; empty is the first.
	CP   int64
	CPBy string

	// EP is the number of ranks that share out the experts of a mixture, and EPBy how they exchange tokens, one of
	// [ExpertWays]; empty is the first.
	EP   int64
	EPBy string

	// PP is the number of ranks of a pipeline, zero all; of more GPUs, equally many share each stage (fully_shard).
	PP int64
	// Schedule is the schedule of a pipeline: "1f1b", "gpipe" or [Interleaved]. Micro is the number
	// of micro-batches of a step, zero for the number of the pipeline's ranks. Stages is the number
	// of stages of a rank in an interleaved schedule, zero for two.
	Schedule      string
	Micro, Stages int64
	// Split are the blocks that stages but the first begin with, by their paths or numbers; none shares them out
	// evenly.
	Split []string

	// EachSync reduces gradients after every micro-batch of a step, and not after the last only.
	EachSync bool

	// The sizes of DeepSpeed's ZeRO, in elements, by their names in its JSON. Zero is DeepSpeed's own value, and
	// [AutoSize] what transformers makes of "auto". Bucket is reduce_bucket_size, Overlap overlap_comm, Prefetch
	// stage3_prefetch_bucket_size, Persist stage3_param_persistence_threshold, Reuse stage3_max_reuse_distance, Live
	// stage3_max_live_parameters, Part sub_group_size.
	Bucket, Prefetch, Persist, Reuse, Live, SubGroupSize int64
	Overlap                                              bool
	// NoOverlap is overlap_comm=false of stage 3, which has it by itself, and Scattered contiguous_gradients=false of
	// it.
	NoOverlap, Scattered bool
	// TorchLinear is memory_efficient_linear=false of stage 3: linear layers are PyTorch's, which keep the
	// gathered weights that they save until their backward. Before release 0.19.5 (August 2026) it was so
	// for every model made outside of zero.Init.
	TorchLinear bool
	// Engine is "deepspeed" where ZeRO-1 is DeepSpeed's and not PyTorch's.
	Engine string
	// Offload names what is kept in the host's memory: "optimizer", "params" or "all".
	Offload string
	// Map and Memory are the device_map of a model that one process has spread over its GPUs: a word of
	// [DeviceMapWords], empty for the first, and how many bytes of weights each may have (max_memory), none for all.
	Map    string
	Memory []int64
	// BackwardPrefetch is backward_prefetch of FullyShardedDataParallel: "post" or "none"; empty is BACKWARD_PRE.
	BackwardPrefetch string
	// Init is where the model is before its weights are shared out; empty is the meta device, from which it comes shard
	// by shard (to_empty, as in torchtitan and torchtune), or by transformers' plan from_pretrained, which first
	// allocates as much as all shards.
	Init Init
}

// Init is the device of a model before fully_shard or parallelize_module.
type Init string

// Places of a model other than the meta device.
const (
	// InitMeta is to_empty where from_pretrained is usual.
	InitMeta Init = "meta"
	// InitDevice has the whole model on each GPU.
	InitDevice Init = "device"
	// InitHost has every process make it in the host's memory: fully_shard brings whole groups, a pipeline its stage.
	InitHost Init = "host"
	// InitRank0 has the first rank load it, for all, and send one parameter at a time as a whole: accelerate's
	// cpu_ram_efficient_loading.
	InitRank0 Init = "rank0"
)

// AutoSize is the value of a size that DeepSpeed is to derive from the width of the model ("auto").
const AutoSize = -1

// The strategies.
const (
	DDP   = "ddp"
	FSDP1 = "fsdp1"
	FSDP2 = "fsdp2"
	ZeRO1 = "zero1"
	ZeRO2 = "zero2"
	ZeRO3 = "zero3"
	PP    = "pp"
	TP    = "tp"
	// DeviceMap is no strategy of ranks: one process has the model's layers on several GPUs, which work one after the
	// other (from_pretrained(device_map)).
	DeviceMap = "device-map"
)

// TensorWays returns the plans by which ranks shard layers: parallelize_module of the blocks' linear layers, or
// transformers' base_model_tp_plan. The latter also shards the embeddings by tokens and the output layer; its Trainer
// clips and steps the parameters of each mesh separately.
func TensorWays() []string { return []string{"torch", "transformers"} }

// Interleaved is the schedule of a pipeline whose ranks have several stages.
const Interleaved = "interleaved"

// Strategies returns the names of all strategies that can be recorded.
func Strategies() []string {
	return []string{DDP, FSDP1, FSDP2, TP, ZeRO1, ZeRO2, ZeRO3, PP, DeviceMap}
}

// DeviceMapWords returns the words of a device_map: all GPUs hold about as much (auto, balanced), the first holds as
// little as possible (balanced_low_0), or each is filled before the next (sequential).
func DeviceMapWords() []string { return []string{"auto", "balanced", "balanced_low_0", "sequential"} }

// PipelineRanks returns how many ranks a pipeline of some GPUs has, one without one.
func (s *Strategy) PipelineRanks(gpus int) int64 {
	switch {
	case s == nil || s.Name != PP:
		return 1
	case s.PP > 0:
		return s.PP
	}
	return int64(gpus)
}

// SharesStages reports whether several GPUs share each stage of a pipeline.
func (s *Strategy) SharesStages(gpus int) bool {
	return s.Name == PP && s.PipelineRanks(gpus) < int64(gpus)
}

// SharesWeights reports whether weights are sharded over the ranks, so that each GPU loads only its part.
func (s *Strategy) SharesWeights() bool {
	return s != nil && slices.Contains([]string{FSDP1, FSDP2, TP, ZeRO3}, s.Name)
}

// RootAlone is the value of wrap under which fully_shard wraps the model and no module in
// it: all parameters are gathered at once.
const RootAlone = "none"

// RootAlone reports whether only the root is wrapped.
func (s *Strategy) RootAlone() bool { return len(s.Wrap) == 1 && s.Wrap[0] == RootAlone }

// WrapsEnds reports whether the modules around the blocks are wrapped as [Ends] describes, as in transformers' own
// plan.
func (s *Strategy) WrapsEnds() bool {
	return len(s.Wrap) == 1 && s.Wrap[0] == WrapEnds || len(s.Wrap) == 0 && s.TPBy != ""
}

// StagesOfRank returns how many stages of a pipeline a rank has.
func (s *Strategy) StagesOfRank() int {
	switch {
	case s.Schedule != Interleaved:
		return 1
	case s.Stages == 0:
		return 2
	}
	return int(s.Stages)
}

// DeepSpeed reports whether DeepSpeed's engine trains.
func (s *Strategy) DeepSpeed() bool {
	return s != nil && (s.Name == ZeRO2 || s.Name == ZeRO3 || s.Engine != "")
}

// Communicators returns the number of groups of ranks that a rank communicates with. NCCL makes a communicator for each
// group at its first collective. Groups share layers, sequences or experts, hold replicas, or are the remaining ranks.
// The number is at least one, except for a device map, which communicates by plain copies.
func (s *Strategy) Communicators(gpus int) int {
	if s.Name == DeviceMap {
		return 0
	}
	n := 0
	stages := s.PipelineRanks(gpus)
	rest := int64(gpus) / stages / max(1, s.TP) / max(1, s.Replicate)
	for _, ranks := range []int64{stages, s.Replicate, s.TP, s.CP, s.EP, rest} {
		if ranks > 1 {
			n++
		}
	}
	return max(1, n)
}

// Batches returns the number of batches that all ranks process while one rank processes its own. Ranks of a
// tensor-parallel group, or of a group that shares sequences, count as one. For a pipeline it is its micro-batches
// times the number of pipelines.
func (c Case) Batches() int {
	s := c.Strategy
	switch {
	case s == nil:
		return max(1, c.GPUs)
	case s.Name == DeviceMap:
		return 1
	}
	stages := int(s.PipelineRanks(c.GPUs))
	together := max(1, c.GPUs/stages/int(max(1, s.TP)*max(1, s.CP)))
	if s.Name == PP {
		return together * s.MicroBatches(c.GPUs)
	}
	return together
}

// MicroBatches returns how many micro-batches a pipeline of some GPUs has in a step.
func (s *Strategy) MicroBatches(gpus int) int {
	if s.Micro == 0 {
		return int(s.PipelineRanks(gpus))
	}
	return int(s.Micro)
}

// Samples returns how many samples all ranks see in one step of the optimizer, with micro- batches of a size on each.
func (c Case) Samples(batch int) int { return batch * max(1, c.Accumulate) * c.Batches() }

// BubbleFactor returns the time of a step relative to its work alone: 1, or more in a pipeline, whose stages wait for
// the first micro-batch to arrive and for the last one to return.
func (s *Strategy) BubbleFactor(gpus int) float64 {
	if s.Name != PP {
		return 1
	}
	return 1 + float64(s.PipelineRanks(gpus)-1)/float64(s.MicroBatches(gpus)*s.StagesOfRank())
}

// The values of [Strategy.CPBy]: how ranks that share a sequence attend over all of it.
const (
	// Ulysses exchanges tokens for heads by all-to-all (DeepSpeed, ms-swift).
	Ulysses = "ulysses"
	// Llama3 gathers keys and values head by head (llama3_flash_attn_varlen of
	// ring-flash-attn, which axolotl takes for packed rows).
	Llama3 = "llama3"
	// Ring sends keys and values round (ring_flash_attn of ring-flash-attn).
	Ring = "ring"
	// TorchRing gathers keys and values at once, and gives each rank a part of the head and one of the tail
	// (PyTorch's own context_parallel, which transformers' Trainer takes with accelerate's cp_size).
	TorchRing = "torch"
)

// The values of [Strategy.EPBy]: how tokens come to the ranks that have their experts.
const (
	// DeepEP sends each token once to a rank (axolotl's ExpertParallelPlugin).
	DeepEP = "deepep"
	// TorchExperts sends each pair of a token and an expert by all-to-all of torch.distributed (transformers' ep_size).
	TorchExperts = "torch"
)

// ContextParallelStyle returns how ranks share sequences.
func (s *Strategy) ContextParallelStyle() string { return cmp.Or(s.CPBy, Ulysses) }
