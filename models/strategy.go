package models

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/vprof/vprof/profiler/trace/optim"
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

	// Reshard is reshard_after_forward of fully_shard: "true", "false", "auto" for PyTorch's
	// None, which frees all but the root's parameters, or the number of ranks that share
	// parameters out again after forward.
	Reshard string
	// MP is param_dtype of its MixedPrecisionPolicy, "bf16" or "fp16", and Reduce
	// reduce_dtype; empty keeps the types that there are.
	MP, Reduce string
	// Replicate is the number of groups that each hold a whole model (HSDP).
	Replicate int64
	// Wrap are glob patterns of the paths of the modules that are wrapped besides the
	// root, or [RootAlone] or [Ends]; empty means the children of the longest list of equal modules.
	// [Strategy.Wraps] reads them.
	Wrap []string

	// TP is the number of ranks that share each linear layer; fully_shard shards over the
	// others. Col and Row are the names of the layers that are shared column-wise and
	// row-wise, none for those of Llama and its like.
	TP       int64
	Col, Row []string
	// TPBy is whose plan it is, one of [TensorWays]; empty is the first.
	TPBy string
	// Sequence has the ranks of such a group share the tokens, too, where layers are not shared
	// (sequence parallelism): outside of attention and feed-forward halves. ParallelLoss has them
	// share the logits, and compute the loss of those (loss_parallel).
	Sequence, ParallelLoss bool

	// CP is the number of ranks that share each sequence, and CPBy how, one of
	// [ContextWays]; empty is the first.
	CP   int64
	CPBy string

	// EP is the number of ranks that share out the experts of a mixture, and EPBy how they exchange tokens, one of
	// [ExpertWays]; empty is the first.
	EP   int64
	EPBy string

	// PP is the number of ranks of a pipeline, zero all; of more GPUs, as many as are left share each stage
	// (fully_shard).
	PP int64
	// Schedule is that of a pipeline, "1f1b", "gpipe" or [Interleaved], Micro how many
	// micro-batches it has in a step, zero as many as ranks of it, and Stages how many stages a
	// rank has of an interleaved one, zero two.
	Schedule      string
	Micro, Stages int64
	// Split are the blocks that stages but the first begin with, by their paths or numbers;
	// none shares them out evenly.
	Split []string

	// EachSync reduces gradients after every micro-batch of a step, and not after the
	// last only.
	EachSync bool

	// Those of DeepSpeed's ZeRO, in elements, as its JSON names them; zero is DeepSpeed's
	// own value, and [AutoSize] what transformers makes of "auto". Bucket is
	// reduce_bucket_size, Overlap overlap_comm, Prefetch stage3_prefetch_bucket_size,
	// Persist stage3_param_persistence_threshold, Reuse stage3_max_reuse_distance, Live
	// stage3_max_live_parameters, Part sub_group_size.
	Bucket, Prefetch, Persist, Reuse, Live, Part int64
	Overlap                                      bool
	// Serial is overlap_comm=false of stage 3, which has it by itself, and Scattered
	// contiguous_gradients=false of it.
	Serial, Scattered bool
	// TorchLinear is memory_efficient_linear=false of stage 3: linear layers are PyTorch's, which keep the
	// gathered weights that they save until their backward. Before release 0.19.5 (August 2026) it was so
	// for every model made outside of zero.Init.
	TorchLinear bool
	// Engine is "deepspeed" where ZeRO-1 is DeepSpeed's and not PyTorch's.
	Engine string
	// Offload is what waits in the host's memory: "optimizer", "params" or "all".
	Offload string
	// Map and Memory are the device_map of a model that one process has spread over its GPUs: a word of
	// [DeviceMapWords], empty for the first, and how many bytes of weights each may have (max_memory), none for all.
	Map    string
	Memory []int64
	// Init is where the model is before its weights are shared out; empty is the meta device, from which it comes
	// shard by shard (to_empty, as torchtitan and torchtune have it), or by transformers' plan from_pretrained, which
	// first allocates as much as all shards.
	Init Init
}

// Init is where a model is before fully_shard or parallelize_module.
type Init string

// Places of a model other than the meta device.
const (
	// InitMeta is to_empty where from_pretrained is usual.
	InitMeta Init = "meta"
	// InitDevice has the whole model on each GPU.
	InitDevice Init = "device"
	// InitHost has every process make it in the host's memory, from which fully_shard brings each group as a whole, and
	// a pipeline its stage.
	InitHost Init = "host"
	// InitRank0 has the first rank load it, for all, and send one parameter at a time as a whole: accelerate's
	// cpu_ram_efficient_loading.
	InitRank0 Init = "rank0"
)

// AutoSize is the value of a size that DeepSpeed is to derive from the width of the model
// ("auto").
const AutoSize = -1

// The strategies.
const (
	DDP   = "ddp"
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

// TensorWays are whose plan ranks share layers by: parallelize_module of the blocks' linear layers, or transformers'
// (base_model_tp_plan), which shards embeddings by tokens and the output layer, too, and whose Trainer clips and steps
// parameters of each mesh by themselves.
func TensorWays() []string { return []string{"torch", "transformers"} }

// Interleaved is the schedule of a pipeline whose ranks have several stages.
const Interleaved = "interleaved"

// Strategies returns the names of all strategies that can be recorded.
func Strategies() []string { return []string{DDP, FSDP2, TP, ZeRO1, ZeRO2, ZeRO3, PP, DeviceMap} }

// DeviceMapWords returns the words of a device_map: all GPUs hold about as much (auto, balanced), the first holds as
// little as possible (balanced_low_0), or each is filled before the next (sequential).
func DeviceMapWords() []string { return []string{"auto", "balanced", "balanced_low_0", "sequential"} }

func (s *Strategy) check(gpus int) error {
	switch {
	case gpus < 1 || gpus > mostRanks:
		return fmt.Errorf("%d is not a number of GPUs from 1 to %d", gpus, mostRanks)
	case s.Rank != nil && *s.Rank >= int64(gpus):
		return fmt.Errorf("there is no rank %d of %d; ranks begin with 0", *s.Rank, gpus)
	case s.Replicate > 1 && int64(gpus)%s.Replicate != 0:
		return fmt.Errorf("%d GPUs cannot be divided into %d replicas", gpus, s.Replicate)
	case s.Stages > 0 && s.Schedule != Interleaved:
		return fmt.Errorf("stages=%d is about schedule=%s; other schedules have one stage on each rank",
			s.Stages, Interleaved)
	case s.Name == ZeRO1 && s.Engine == "" && (s.Bucket != 0 || s.Overlap || s.Offload != ""):
		return fmt.Errorf("bucket, overlap and offload are DeepSpeed's; say engine=deepspeed, too")
	case s.Name == ZeRO1 && s.Engine != "" &&
		(s.BucketView || s.BucketCap > 0 || s.StaticGraph || s.FindUnused || s.EachSync):
		return fmt.Errorf(
			"engine=deepspeed takes bucket, overlap and offload, and no options of DistributedDataParallel")
	case s.CPBy != "" && s.CP == 0:
		return fmt.Errorf("cp_by=%s says how ranks share sequences; say how many with cp=N", s.CPBy)
	case s.CP > 0 && int64(gpus)%(s.CP*max(1, s.TP)) != 0:
		return fmt.Errorf("%d GPUs cannot be divided into groups of %d that share a sequence (cp=%d)", gpus,
			s.CP*max(1, s.TP), s.CP)
	case s.TPBy != "" && (s.Sequence || s.ParallelLoss || len(s.Col)+len(s.Row) > 0):
		return fmt.Errorf("tp_by=%s is a plan of its own; leave out sequence, loss, col and row", s.TPBy)
	case s.EPBy != "" && s.EP == 0:
		return fmt.Errorf("ep_by=%s says how ranks exchange tokens; say how many share out the experts with ep=N",
			s.EPBy)
	case s.Name == DeviceMap && len(s.Memory) > 0 && len(s.Memory) != gpus:
		return fmt.Errorf("memory names %d GPUs, and there are %d; say as many sizes, like memory=10GiB+20GiB",
			len(s.Memory), gpus)
	case s.StaticGraph && s.FindUnused:
		return fmt.Errorf("static_graph and find_unused exclude each other")
	case s.ReshardAmong() > 0 && s.checkReshard(int64(gpus)) != nil:
		return s.checkReshard(int64(gpus))
	case s.Name == TP:
		return s.checkTensorParallel(int64(gpus))
	case s.Name == PP:
		return s.checkPipeline(int64(gpus))
	}
	return nil
}

// checkPipeline says what is wrong with a pipeline on some GPUs.
func (s *Strategy) checkPipeline(gpus int64) error {
	ranks := s.PipelineRanks(int(gpus))
	each := gpus / ranks
	switch {
	case gpus%ranks != 0:
		return fmt.Errorf("%d GPUs cannot be divided into %d stages that as many share (pp=%d)", gpus, ranks, s.PP)
	case s.Init != "" && s.Init != InitHost:
		return fmt.Errorf("stages are made on the meta device, or in the host's memory of each process with the whole "+
			"model (init=host); init=%s is about fully_shard of a whole model", s.Init)
	case s.Micro > 0 && s.Micro < ranks:
		return fmt.Errorf("%d micro-batches do not fill a pipeline of %d stages; take at least as many", s.Micro, ranks)
	case each > 1 && s.Schedule == Interleaved:
		return fmt.Errorf("vprof records stages that %d GPUs share with one stage on each rank; leave out schedule=%s",
			each, Interleaved)
	case each%(max(1, s.TP)*max(1, s.CP)*max(1, s.Replicate)) != 0:
		return fmt.Errorf("%d GPUs of a stage cannot be divided by tp, cp and replicas of %d, %d and %d", each,
			max(1, s.TP), max(1, s.CP), max(1, s.Replicate))
	case each > 1 && each == s.Replicate*max(1, s.TP):
		return fmt.Errorf("with replicate=%d on %d GPUs of a stage nothing is left for fully_shard; take more GPUs, "+
			"or leave out replicate", s.Replicate, each)
	case each == 1 && (s.Reshard != "" || s.MP != "" || s.Reduce != ""):
		return fmt.Errorf("reshard, mp and reduce are fully_shard's, and each stage has one GPU; say how many stages "+
			"%d GPUs make with pp=N", gpus)
	}
	return nil
}

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

// RootAlone is the value of wrap under which fully_shard wraps the model and no module in
// it: all parameters are gathered at once.
const RootAlone = "none"

// RootAlone reports whether the root alone is wrapped.
func (s *Strategy) RootAlone() bool { return len(s.Wrap) == 1 && s.Wrap[0] == RootAlone }

// WrapsEnds reports whether what stands around the blocks is wrapped as [Ends] says, as transformers' own plan has it.
func (s *Strategy) WrapsEnds() bool {
	return len(s.Wrap) == 1 && s.Wrap[0] == Ends || len(s.Wrap) == 0 && s.TPBy != ""
}

// PassesOn reports whether each GPU has a part of the layers and passes on what it computes.
func (s *Strategy) PassesOn() bool { return s.Name == PP || s.Name == DeviceMap }

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

// checkTensorParallel says what is wrong with tensor parallelism on some GPUs.
func (s *Strategy) checkTensorParallel(gpus int64) error {
	switch {
	case s.TP == 0:
		return fmt.Errorf("tensor parallelism needs the number of ranks that share a layer, such as tp:tp=2")
	case gpus%s.TP != 0:
		return fmt.Errorf("%d GPUs cannot be divided into groups of %d (tp=%d)", gpus, s.TP, s.TP)
	case gpus/s.TP%max(1, s.Replicate) != 0:
		return fmt.Errorf("%d GPUs in groups of %d (tp=%d) cannot be divided into %d replicas", gpus, s.TP,
			s.TP, s.Replicate)
	case gpus == s.TP*s.Replicate:
		return fmt.Errorf("with tp=%d and replicate=%d on %d GPUs nothing is left for fully_shard; take a multiple of "+
			"%d GPUs, or leave out replicate", s.TP, s.Replicate, gpus, s.TP*s.Replicate)
	}
	return nil
}

// checkMix says that optimizers that step many parameters at once take no mix of sharded and plain ones.
func (c Case) checkMix() error {
	s := c.Strategy
	o, err := optim.Named(c.Optimizer)
	gpus := int64(c.GPUs) / s.PipelineRanks(c.GPUs)
	if s.Sequence || s.TPBy != "" || gpus != s.TP || err == nil && o.Implementation == optim.SingleTensor {
		return nil
	}
	return fmt.Errorf("with tp=%d on %d GPUs nothing is left for fully_shard, and PyTorch's optimizers refuse a mix "+
		"of sharded and plain parameters; take a multiple of %d GPUs, sequence=true, which leaves no parameter plain, "+
		"or --optimizer adamw-single (foreach=False), which steps them one by one", s.TP, c.GPUs, s.TP)
}

// checkRanks says what is wrong with the strategy of a case of model m.
func (c Case) checkRanks(m Model) error {
	switch {
	case c.Strategy == nil && c.GPUs > 1:
		return fmt.Errorf("%d GPUs need a strategy, one of %s", c.GPUs, strings.Join(Strategies(), ", "))
	case c.Strategy == nil:
		return nil
	case !m.Distributes:
		return fmt.Errorf("vprof does not record this model's own training loop on several GPUs; it does the models " +
			"of its common loop and exported ones (.pt2)")
	}
	if c.Strategy.Name == PP {
		switch {
		case c.Accumulate > 1:
			return fmt.Errorf("a pipeline has its micro-batches in the strategy (micro=N), not as accumulation")
		case c.AMP == "fp16":
			return fmt.Errorf(
				"the schedule of a pipeline runs backward itself, without a GradScaler's scale; take bf16")
		case !c.Objective.IsZero():
			return fmt.Errorf("the stages of a pipeline compute the loss of the next token; leave out the " +
				"objective, or take another strategy")
		case c.Offload:
			return fmt.Errorf("the schedule of a pipeline runs forward itself, without hooks that save to the host; " +
				"leave out offloading")
		}
	}
	if err := c.checkDeviceMap(m); err != nil {
		return err
	}
	if err := c.checkContext(m); err != nil {
		return err
	}
	if err := c.checkExperts(m); err != nil {
		return err
	}
	if c.Strategy.DeepSpeed() {
		if err := c.checkDeepSpeed(); err != nil {
			return err
		}
	}
	if c.Strategy.TP > 0 || c.Strategy.Name == TP {
		switch {
		case c.LoRA != nil || c.Quantize != "":
			return fmt.Errorf("adapters and packed weights stand in the place of linear layers, which " +
				"parallelize_module then does not find; use another strategy")
		case !c.Strategy.Sequence && c.Strategy.TPBy == "" && (c.Clip == ClipNorm || c.Clip == "" && !m.Free):
			return fmt.Errorf("clip_grad_norm_ raises under tensor parallelism (\"All operands in " +
				"aten.stack.default must have the same mesh\") unless all parameters are shared; take " +
				"sequence=true, or train with --clip none")
		}
		if err := cmp.Or(c.checkTokens(m), c.checkMix()); err != nil {
			return err
		}
	}
	return c.Strategy.check(c.GPUs)
}

// checkDeviceMap says what does not go together with a model that is spread over the GPUs of a process.
func (c Case) checkDeviceMap(m Model) error {
	switch {
	case c.Strategy.Name != DeviceMap:
		return nil
	case m.Foreign:
		return fmt.Errorf("a .pt2 model is one graph without the hooks that move tensors from GPU to GPU; take the " +
			"model by name or hf:, or \"vprof run\"")
	case !c.Objective.IsZero():
		return fmt.Errorf("vprof records models that are spread over GPUs with the loss of the next token or of " +
			"classes; leave out the objective, or use \"vprof run\"")
	case c.AMP == "fp16":
		return fmt.Errorf("vprof does not record a GradScaler of gradients on several GPUs; take bf16")
	case c.Offload || c.InBackward:
		return fmt.Errorf("vprof records models that are spread over GPUs without offloading and without an " +
			"optimizer in backward")
	}
	return nil
}

// DeepSpeed tells whether DeepSpeed's engine trains.
func (s *Strategy) DeepSpeed() bool {
	return s != nil && (s.Name == ZeRO2 || s.Name == ZeRO3 || s.Engine != "")
}

// checkDeepSpeed says what does not go together with DeepSpeed.
func (c Case) checkDeepSpeed() error {
	switch {
	case c.AMP != NoAutocast:
		return fmt.Errorf("DeepSpeed brings the model to the type that it trains in, with master weights in fp32, " +
			"and autocast is off: --amp none --weights bf16")
	case c.Strategy.Name == ZeRO3 && c.Quantize != "":
		return fmt.Errorf(
			"ZeRO-3 does not share out the weights of a model that bitsandbytes has quantized; use zero2 or fsdp2")
	case c.Offload:
		return fmt.Errorf("vprof records DeepSpeed without hooks that save to the host; leave out --offload")
	}
	return nil
}

// Communicators returns how many groups of ranks a rank of so many communicates with, for each of which NCCL makes a
// communicator at its first collective: those that share layers, rows or experts, replicas, and those that share
// the rest. It is at least one, but for a device map, which communicates by plain copies.
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

// Batches returns how many batches all ranks train on together, in the time in which each rank is
// given one: as many as there are ranks, where the ranks of a tensor-parallel group, or those
// that share sequences, count as one; of a pipeline, its micro-batches, as often as there are pipelines.
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

// Samples returns how many samples all ranks see in one step of the optimizer, with micro-
// batches of a size on each.
func (c Case) Samples(batch int) int { return batch * max(1, c.Accumulate) * c.Batches() }

// Bubble returns the time of a step relative to the time that its work takes: at least 1, and more
// in a pipeline, whose stages wait for the first micro-batch to arrive and for the last one to
// return.
func (s *Strategy) Bubble(gpus int) float64 {
	if s.Name != PP {
		return 1
	}
	return 1 + float64(s.PipelineRanks(gpus)-1)/float64(s.MicroBatches(gpus)*s.StagesOfRank())
}
