package models

import (
	"cmp"
	"slices"

	"github.com/vprof/vprof/internal/lists"
)

// Strategy is how the ranks of a job train one model, with one rank on each GPU.
type Strategy struct {
	// Name is one of [Strategies].
	Name string
	// Rank is the recorded rank; nil means the rank that needs the most memory.
	Rank *int64

	// BucketCap is DDP's bucket_cap_mb, in MiB; zero is PyTorch's default, whose first bucket has 1 MiB. BucketView
	// is gradient_as_bucket_view.
	BucketCap                           int64
	BucketView, StaticGraph, FindUnused bool

	// Reshard is reshard_after_forward of fully_shard: "true", "false", "auto" for PyTorch's None, which frees all
	// parameters but the root's, or the number of ranks over which parameters are resharded after forward.
	Reshard string
	// MP is param_dtype of fully_shard's MixedPrecisionPolicy, "bf16" or "fp16", and Reduce its reduce_dtype; empty
	// keeps the parameters' types.
	MP, Reduce string
	// Replicate is the number of replicas of the sharded model (HSDP).
	Replicate int64
	// Wrap are glob patterns of the paths of the modules that are wrapped besides the root, or [WrapRootOnly] or
	// [WrapEnds]. Empty means the children of the longest list of equal modules. [Strategy.Wraps] parses them.
	Wrap []string

	// TP is the number of ranks that share each linear layer; fully_shard shards over the other ranks. ColumnWise and
	// RowWise are names of layers that are sharded by columns and by rows; empty means the names in Llama and similar
	// models.
	TP                  int64
	ColumnWise, RowWise []string
	// TPPlan is whose tensor-parallel plan is used, one of [TensorParallelPlans]; empty is the first.
	TPPlan string
	// Sequence reports whether tensor-parallel ranks also shard the tokens outside of attention and feed-forward layers
	// (sequence parallelism). ParallelLoss reports whether they shard the logits and their loss (loss_parallel).
	Sequence, ParallelLoss bool

	// CP is the number of ranks that share each sequence (context parallelism). CPStyle is the algorithm, one of
	// [ContextWays]; empty is the first.
	CP      int64
	CPStyle string

	// EP is the number of ranks that share the experts of a mixture. EPStyle is how they exchange tokens, one of
	// [ExpertWays]; empty is the first.
	EP      int64
	EPStyle string

	// PP is the number of pipeline ranks; zero means all. If there are more GPUs, the same number of them shards each
	// stage (fully_shard).
	PP int64
	// Schedule is a pipeline's schedule: "1f1b", "gpipe" or [Interleaved]. Micro is the number of micro-batches of a
	// step; zero means one for each pipeline rank. Stages is the number of stages on each rank of an interleaved
	// schedule; zero means two.
	Schedule      string
	Micro, Stages int64
	// Split are the paths or indices of the blocks at which the second and later stages begin; empty splits evenly.
	Split []string

	// EachSync reduces gradients after every micro-batch, not only after the last one.
	EachSync bool

	// Sizes of DeepSpeed's ZeRO, in elements; zero means DeepSpeed's default, [AutoSize] the value that transformers
	// computes for "auto". Bucket is reduce_bucket_size, Overlap overlap_comm, Prefetch stage3_prefetch_bucket_size,
	// Persist stage3_param_persistence_threshold, Reuse stage3_max_reuse_distance, Live stage3_max_live_parameters,
	// SubGroupSize sub_group_size.
	Bucket, Prefetch, Persist, Reuse, Live, SubGroupSize int64
	Overlap                                              bool
	// NoOverlap is overlap_comm=false of stage 3, where it is on by default. Scattered is contiguous_gradients=false.
	NoOverlap, Scattered bool
	// TorchLinear is memory_efficient_linear=false of stage 3. PyTorch's own linear layers then keep the gathered
	// weights until their backward. Before release 0.19.5 (August 2026), models built outside of zero.Init always did
	// so.
	TorchLinear bool
	// Engine is "deepspeed" if ZeRO-1 is DeepSpeed's rather than PyTorch's ZeroRedundancyOptimizer.
	Engine string
	// Offload names the tensors that are kept in host memory: "optimizer", "params" or "all".
	Offload string
	// Map is the device_map of a model that one process spreads over its GPUs, one of [DeviceMapPolicies]; empty is the
	// first. Memory is max_memory, the largest number of bytes of weights on each GPU; empty means no limit.
	Map    string
	Memory []int64
	// BackwardPrefetch is backward_prefetch of FullyShardedDataParallel: "post" or "none"; empty is BACKWARD_PRE.
	BackwardPrefetch string
	// Init is where the model is created before its weights are sharded. Empty is the meta device: each rank
	// allocates its shards alone (to_empty, as in torchtitan and torchtune). Under transformers' tensor-parallel
	// plan, empty is from_pretrained, which first allocates as many bytes as all shards have.
	Init Init
}

// Init names a way to create the model, see [Strategy].
type Init string

// The devices on which a model is created.
const (
	// InitMeta is the meta device, also where from_pretrained is the default.
	InitMeta Init = "meta"
	// InitDevice creates the whole model on each GPU.
	InitDevice Init = "device"
	// InitHost creates the model in the host memory of every process. fully_shard copies whole groups of parameters
	// to the GPU, and a pipeline its stage.
	InitHost Init = "host"
	// InitRank0 loads the model on rank 0, which broadcasts one whole parameter at a time (accelerate's
	// cpu_ram_efficient_loading).
	InitRank0 Init = "rank0"
)

// AutoSize is the value "auto" of a size, which is then computed from the model's width.
const AutoSize = -1

// The names of the strategies, as --strategy has them.
const (
	DDP   = "ddp"
	FSDP1 = "fsdp1"
	FSDP2 = "fsdp2"
	ZeRO1 = "zero1"
	ZeRO2 = "zero2"
	ZeRO3 = "zero3"
	PP    = "pp"
	TP    = "tp"
	// DeviceMap is one process with the model's layers on several GPUs, which compute one after the other
	// (from_pretrained(device_map)).
	DeviceMap = "device-map"
)

// TensorParallelPlans returns the names of tensor-parallel plans: parallelize_module of the blocks' linear layers, or
// transformers' base_model_tp_plan. The latter also shards the embedding by tokens and the output layer;
// transformers' Trainer then clips and steps the parameters of each mesh separately.
func TensorParallelPlans() []string { return []string{"torch", "transformers"} }

// Interleaved is the schedule of a pipeline with several stages on each rank.
const Interleaved = "interleaved"

// Strategies returns the names of all strategies.
func Strategies() []string {
	return []string{DDP, FSDP1, FSDP2, TP, ZeRO1, ZeRO2, ZeRO3, PP, DeviceMap}
}

// DeviceMapPolicies returns the values of device_map: balanced over all GPUs (auto, balanced), as little as possible on
// the first (balanced_low_0), or each GPU filled before the next (sequential).
func DeviceMapPolicies() []string {
	return []string{"auto", "balanced", "balanced_low_0", "sequential"}
}

// PipelineRanks returns the number of pipeline ranks on some GPUs; 1 without a pipeline.
func (s *Strategy) PipelineRanks(gpus int) int64 {
	switch {
	case s == nil || s.Name != PP:
		return 1
	case s.PP > 0:
		return s.PP
	}
	return int64(gpus)
}

// SharesStages reports whether several GPUs shard each stage of a pipeline.
func (s *Strategy) SharesStages(gpus int) bool {
	return s.Name == PP && s.PipelineRanks(gpus) < int64(gpus)
}

// SharesWeights reports whether weights are sharded, so that each GPU loads only its part.
func (s *Strategy) SharesWeights() bool {
	return s != nil && slices.Contains([]string{FSDP1, FSDP2, TP, ZeRO3}, s.Name)
}

// WrapRootOnly is the value of wrap with which fully_shard wraps only the model itself, so that all parameters are
// gathered at once.
const WrapRootOnly = "none"

// WrapsRootOnly reports whether only the root is wrapped.
func (s *Strategy) WrapsRootOnly() bool { return len(s.Wrap) == 1 && s.Wrap[0] == WrapRootOnly }

// WrapsEnds reports whether wrap is [WrapEnds], as in transformers' own plan.
func (s *Strategy) WrapsEnds() bool {
	return len(s.Wrap) == 1 && s.Wrap[0] == WrapEnds || len(s.Wrap) == 0 && s.TPPlan != ""
}

// StagesOfRank returns the number of pipeline stages on each rank.
func (s *Strategy) StagesOfRank() int {
	switch {
	case s.Schedule != Interleaved:
		return 1
	case s.Stages == 0:
		return 2
	}
	return int(s.Stages)
}

// IsDeepSpeed reports whether DeepSpeed's engine trains the model.
func (s *Strategy) IsDeepSpeed() bool {
	return s != nil && (s.Name == ZeRO2 || s.Name == ZeRO3 || s.Engine != "")
}

// Communicators returns the number of process groups that a rank communicates in. NCCL creates a communicator for
// each group at its first collective. Groups share layers, sequences or experts, hold replicas, or are the remaining
// ranks. The number is at least 1, and 0 for a device map, which uses plain copies.
func (s *Strategy) Communicators(gpus int) int {
	if s.Name == DeviceMap {
		return 0
	}
	stages := s.PipelineRanks(gpus)
	rest := int64(gpus) / stages / max(1, s.TP) / max(1, s.Replicate)
	groups := []int64{stages, s.Replicate, s.TP, s.CP, s.EP, rest}
	return max(1, len(lists.Filter(groups, func(ranks int64) bool { return ranks > 1 })))
}

// ParallelBatches returns the number of different batches that all ranks process at the same time. Ranks that share
// layers or sequences process the same batch. A pipeline processes its micro-batches.
func (c Case) ParallelBatches() int {
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

// MicroBatches returns the number of micro-batches of a pipeline's step.
func (s *Strategy) MicroBatches(gpus int) int {
	if s.Micro == 0 {
		return int(s.PipelineRanks(gpus))
	}
	return int(s.Micro)
}

// SamplesPerStep returns the number of samples of one optimizer step over all ranks, by the micro-batch size.
func (c Case) SamplesPerStep(batch int) int {
	return batch * max(1, c.Accumulate) * c.ParallelBatches()
}

// BubbleFactor returns a step's time relative to the time without pipeline bubbles: 1, or more in a pipeline, whose
// stages wait for the first micro-batch to arrive and for the last one to return.
func (s *Strategy) BubbleFactor(gpus int) float64 {
	if s.Name != PP {
		return 1
	}
	return 1 + float64(s.PipelineRanks(gpus)-1)/float64(s.MicroBatches(gpus)*s.StagesOfRank())
}

// The values of [Strategy.CPStyle]: the algorithms of attention over a sequence that ranks share.
const (
	// Ulysses exchanges tokens for heads by all-to-all (DeepSpeed, ms-swift).
	Ulysses = "ulysses"
	// Llama3 gathers keys and values head by head (llama3_flash_attn_varlen of ring-flash-attn, which axolotl uses
	// for packed sequences).
	Llama3 = "llama3"
	// Ring passes keys and values around the ranks (ring_flash_attn of ring-flash-attn).
	Ring = "ring"
	// TorchRing gathers all keys and values at once. Each rank has one chunk from the start of the sequence and one
	// from its end (PyTorch's context_parallel, which transformers' Trainer uses with accelerate's cp_size).
	TorchRing = "torch"
)

// The values of [Strategy.EPStyle]: how tokens reach the ranks that hold their experts.
const (
	// DeepEP sends each token at most once to a rank (axolotl's ExpertParallelPlugin).
	DeepEP = "deepep"
	// TorchExperts sends each token once for each of its experts, by torch's all-to-all (transformers' ep_size).
	TorchExperts = "torch"
)

// ContextParallelStyle returns the algorithm of context parallelism.
func (s *Strategy) ContextParallelStyle() string { return cmp.Or(s.CPStyle, Ulysses) }
