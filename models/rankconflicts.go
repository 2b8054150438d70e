package models

import (
	"slices"
	"strings"

	"github.com/vprof/vprof/profiler/trace/optim"
)

// isSharded reports whether ranks shard the weights, the gradients or the optimizer state.
func (k *subject) isSharded() bool { return k.Strategy != nil && k.s.Name != DDP }

// rankConflicts are numbers of GPUs without a strategy, and strategies that a model or another option does not support.
var rankConflicts = []Conflict{
	refuse("strategy", "gpus", func(k *subject) bool { return k.Strategy == nil && k.GPUs > 1 },
		"{gpus} GPUs need a strategy, one of ddp, fsdp1, fsdp2, tp, zero1, zero2, zero3, pp, device-map"),
	refuse("strategy", "a model with its own loop",
		func(k *subject) bool { return k.Strategy != nil && !k.m.SupportsRanks },
		"vprof does not support this model's own training loop on several GPUs, only models of its common loop and "+
			"exported ones (.pt2); vprof run --gpus N -- torchrun SCRIPT runs the model's own script. Under DDP each "+
			"GPU needs what one GPU needs for its share of the batch, and the trained weights' gradients twice"),
	refuse("strategy", "too many GPUs",
		func(k *subject) bool { return k.Strategy != nil && (k.GPUs < 1 || k.GPUs > maxRanks) },
		"{gpus} is not a number of GPUs from 1 to 1048576"),
	refuse("strategy", "pp with accumulate", func(k *subject) bool { return k.isStrategy(PP) && k.Accumulate > 1 },
		"a pipeline's micro-batches are set in the strategy (micro=N), not by accumulation"),
	refuse("strategy", "pp with amp fp16", func(k *subject) bool { return k.isStrategy(PP) && k.AMP == "fp16" },
		"a pipeline's schedule runs backward without a GradScaler, which fp16 needs; use bf16"),
	refuse("strategy", "pp with objective", func(k *subject) bool { return k.isStrategy(PP) && !k.Objective.IsZero() },
		"the stages of a pipeline compute the loss of the next token; leave out the objective, or use another "+
			"strategy"),
	refuse("strategy", "pp with offload", func(k *subject) bool { return k.isStrategy(PP) && k.Offload },
		"a pipeline's schedule runs forward without the hooks that offload activations; leave out offloading"),
}

// deviceMapConflicts are models and options that do not work with a device_map over several GPUs.
var deviceMapConflicts = []Conflict{
	refuse("strategy", "device-map with a .pt2 model",
		func(k *subject) bool { return k.isStrategy(DeviceMap) && k.m.UserModel }, "a .pt2 model is one graph "+
			"without the hooks that move tensors from GPU to GPU; use the model by name or hf:, or \"vprof run\""),
	refuse("strategy", "device-map with objective",
		func(k *subject) bool { return k.isStrategy(DeviceMap) && !k.Objective.IsZero() },
		"device-map supports only next-token and classification losses; leave out the objective, or use \"vprof run\""),
	refuse("strategy", "device-map with amp fp16",
		func(k *subject) bool { return k.isStrategy(DeviceMap) && k.AMP == "fp16" },
		"vprof does not support a GradScaler of gradients on several GPUs; use bf16"),
	refuse("strategy", "device-map with offload, optimizer-in-backward",
		func(k *subject) bool { return k.isStrategy(DeviceMap) && (k.Offload || k.InBackward) },
		"device-map is supported without offloading and without an optimizer in backward"),
}

// contextConflicts are models and options that context parallelism does not support.
var contextConflicts = []Conflict{
	refuse("strategy", "cp with a model without plain attention",
		func(k *subject) bool { return k.s.CP > 0 && !k.m.Supports.Context },
		"context parallelism (cp) needs a decoder of transformers with plain attention (hf:config.json)"),
	refuse("strategy", "cp with task, objective", func(k *subject) bool { return k.s.CP > 0 && !k.predictsNextToken() },
		"context parallelism (cp) is supported only for next-token training"),
	refuse("strategy", "cp with pp",
		func(k *subject) bool { return k.s.CP > 0 && k.isStrategy(PP) && k.s.CPStyle != TorchRing },
		"context parallelism (cp) in pipeline stages needs cp_by=torch"),
}

// expertConflicts are models, numbers of ranks and options that expert parallelism does not support.
var expertConflicts = []Conflict{
	refuse("strategy", "ep with a model without experts",
		func(k *subject) bool { return k.s.EP > 0 && k.m.Supports.Experts == 0 }, "expert parallelism (ep) needs a "+
			"mixture of transformers whose experts are grouped products, as in Qwen, Mixtral and DeepSeek"),
	refuse("strategy", "ep that does not divide the experts",
		func(k *subject) bool { return k.s.EP > 0 && k.m.Supports.Experts%k.s.EP != 0 },
		"{ep} ranks cannot share out {experts} experts evenly (ep={ep})"),
	refuse("strategy", "ep that does not divide the GPUs",
		func(k *subject) bool { return k.s.EP > 0 && k.stageGPUs()%k.s.EP != 0 },
		"{GPUs of a stage} GPUs cannot be divided into groups of {ep} that share out the experts (ep={ep})"),
	refuse("strategy", "ep with pp",
		func(k *subject) bool { return k.s.EP > 0 && k.isStrategy(PP) && k.s.EPStyle == "" },
		"expert parallelism (ep) in pipeline stages needs ep_by=torch"),
	refuse("strategy", "ep with tp", func(k *subject) bool {
		return k.s.EP > 0 && k.s.TP > 0 && (k.s.TPPlan == "" || k.s.EPStyle == "" || k.s.CP > 0)
	},
		"expert parallelism (ep) with tensor parallelism (tp) is supported as transformers does it: "+
			"tp:tp=N,tp_by=transformers,ep=M,ep_by=torch, without cp"),
	refuse("strategy", "ep that is no multiple of tp",
		func(k *subject) bool { return k.s.EP > 0 && k.s.TP > 0 && k.s.EP%k.s.TP != 0 },
		"transformers needs ep to be a multiple of tp: ep={ep} is not a multiple of tp={tp}"),
	refuse("strategy", "ep with replicate",
		func(k *subject) bool { return k.s.EP > 0 && k.stageGPUs()/max(1, k.s.Replicate)%k.s.EP != 0 },
		"the GPUs of each of {replicate} replicas cannot be divided into groups of {ep} that share out the experts "+
			"(ep={ep})"),
	refuse("strategy", "ep with cp, replicate",
		func(k *subject) bool { return k.s.EP > 0 && (k.s.CP > 0 || k.s.Replicate > 1) && k.s.EPStyle == "" },
		"expert parallelism (ep) with cp or replicate needs ep_by=torch; leave out cp and replicate"),
	refuse("strategy", "ep with cp",
		func(k *subject) bool {
			return k.s.EP > 0 && k.s.CP > 0 && (k.s.CPStyle != TorchRing || k.isStrategy(DDP))
		},
		"expert parallelism (ep) with context parallelism (cp) needs fsdp2 or pp, and cp_by=torch"),
	refuse("strategy", "ep with fsdp2",
		func(k *subject) bool {
			return k.s.EP > 0 && k.isStrategy(FSDP2) && int64(k.GPUs) == k.s.EP && k.s.EPStyle == ""
		},
		"with ep={ep} on {gpus} GPUs fully_shard has no ranks left to shard the experts over; use a "+
			"multiple of {ep} GPUs, or ddp:ep={ep}"),
	refuse("strategy", "ep with ddp",
		func(k *subject) bool { return k.s.EP > 0 && k.isStrategy(DDP) && int64(k.GPUs) != k.s.EP },
		"DistributedDataParallel with expert parallelism needs experts over all ranks: ep={gpus}"),
	refuse("strategy", "ep with quantize", func(k *subject) bool { return k.s.EP > 0 && k.Quantize != "" },
		"expert parallelism (ep) does not support quantized weights; leave out --quantize"),
}

// deepSpeedConflicts are options that DeepSpeed, FSDP1 or ZeRO-3 do not support.
var deepSpeedConflicts = []Conflict{
	refuse("strategy", "DeepSpeed with amp", func(k *subject) bool { return k.s.IsDeepSpeed() && k.AMP != NoAutocast },
		"DeepSpeed trains without autocast, on weights in bf16 or fp16 with fp32 master weights; use "+
			"--amp none --weights bf16"),
	refuse("strategy", "fsdp1 with int8",
		func(k *subject) bool { return k.isStrategy(FSDP1) && strings.HasPrefix(k.Quantize, "int8") },
		"FullyShardedDataParallel cannot flatten 8-bit integers (ValueError: Cannot flatten integer dtype "+
			"tensors); quantize to nf4, or use fsdp2"),
	refuse("strategy", "zero3 with quantize", func(k *subject) bool { return k.isStrategy(ZeRO3) && k.Quantize != "" },
		"ZeRO-3 does not shard weights that bitsandbytes has quantized; use zero2 or fsdp2"),
	refuse("strategy", "DeepSpeed with offload", func(k *subject) bool { return k.s.IsDeepSpeed() && k.Offload },
		"vprof supports DeepSpeed without offloaded activations; leave out --set offload"),
}

// isTensorParallel reports whether ranks share linear layers.
func (k *subject) isTensorParallel() bool { return k.s.TP > 0 || k.isStrategy(TP) }

func (k *subject) splitsTokens() bool {
	return k.isTensorParallel() && (k.s.Sequence || k.s.ParallelLoss || k.s.TPPlan != "")
}

// tensorConflicts are models and options that tensor parallelism does not support.
var tensorConflicts = []Conflict{
	refuse("strategy", "tp with lora, quantize",
		func(k *subject) bool { return k.isTensorParallel() && (k.LoRA != nil || k.Quantize != "") },
		"adapters and quantized layers replace linear layers, which parallelize_module then does not find; use "+
			"another strategy"),
	refuse("strategy", "tp with clip", func(k *subject) bool {
		return k.isTensorParallel() && !k.s.Sequence && k.s.TPPlan == "" &&
			(k.Clip == ClipNorm || k.Clip == "" && !k.m.SupportsPatterns)
	},
		"clip_grad_norm_ raises under tensor parallelism (\"All operands in aten.stack.default must have the same "+
			"mesh\") unless all parameters are shared; use sequence=true, or train with --clip none"),
	refuse("strategy", "sequence, loss, tp_by with a model without plain attention",
		func(k *subject) bool { return k.splitsTokens() && !k.m.Supports.Context }, "sequence, loss and tp_by of "+
			"tensor parallelism need a decoder of transformers with plain attention (hf:config.json)"),
	refuse("strategy", "tp_by with a model without a plan",
		func(k *subject) bool { return k.splitsTokens() && k.s.TPPlan != "" && !k.m.Supports.TensorPlan },
		"vprof does not support transformers' tensor-parallel plan of this model (tp_by): it gathers between layers, "+
			"leaves some whole, or does not exist; leave out tp_by, or use fsdp2"),
	refuse("strategy", "sequence, loss, tp_by with cp", func(k *subject) bool { return k.splitsTokens() && k.s.CP > 0 },
		"sequence and loss of tensor parallelism are not supported with context parallelism; leave out cp"),
	refuse("strategy", "sequence, loss, tp_by with task, objective",
		func(k *subject) bool { return k.splitsTokens() && !k.predictsNextToken() },
		"sequence and loss of tensor parallelism are supported only for next-token training"),
	refuse("strategy", "tp over all GPUs with foreach optimizers", func(k *subject) bool {
		return k.isTensorParallel() && !k.s.Sequence && k.s.TPPlan == "" && k.stageGPUs() == k.s.TP &&
			k.opt.Implementation != optim.SingleTensor
	},
		"with tp={tp} on {gpus} GPUs no ranks are left for fully_shard, and PyTorch's optimizers refuse a mix of "+
			"sharded and plain parameters; use a multiple of {tp} GPUs, sequence=true, which leaves no parameter "+
			"plain, or --optimizer adamw-single (foreach=False), which steps them one by one"),
}

// shapeConflicts are options of one strategy that exclude each other or do not divide the number of GPUs.
var shapeConflicts = []Conflict{
	refuse("strategy", "rank", func(k *subject) bool { return k.s.Rank != nil && *k.s.Rank >= int64(k.GPUs) },
		"there is no rank {rank} of {gpus}; ranks begin with 0"),
	refuse("strategy", "replicate that does not divide the GPUs",
		func(k *subject) bool { return k.s.Replicate > 1 && int64(k.GPUs)%k.s.Replicate != 0 },
		"{gpus} GPUs cannot be divided into {replicate} replicas"),
	refuse("strategy", "stages without schedule=interleaved",
		func(k *subject) bool { return k.s.Stages > 0 && k.s.Schedule != Interleaved },
		"stages={stages} needs schedule=interleaved; other schedules have one stage on each rank"),
	refuse("strategy", "bucket, overlap, offload without engine", func(k *subject) bool {
		return k.isStrategy(ZeRO1) && k.s.Engine == "" && (k.s.Bucket != 0 || k.s.Overlap || k.s.Offload != "")
	},
		"bucket, overlap and offload are DeepSpeed's; add engine=deepspeed"),
	refuse("strategy", "engine with options of ddp", func(k *subject) bool {
		return k.isStrategy(ZeRO1) && k.s.Engine != "" &&
			(k.s.BucketView || k.s.BucketCap > 0 || k.s.StaticGraph || k.s.FindUnused || k.s.EachSync)
	},
		"engine=deepspeed accepts bucket, overlap and offload, and no options of DistributedDataParallel"),
	refuse("strategy", "cp_by without cp", func(k *subject) bool { return k.s.CPStyle != "" && k.s.CP == 0 },
		"cp_by={cp_by} needs the number of ranks that share a sequence; add cp=N"),
	refuse("strategy", "cp that does not divide the GPUs",
		func(k *subject) bool { return k.s.CP > 0 && int64(k.GPUs)%(k.s.CP*max(1, k.s.TP)) != 0 },
		"{gpus} GPUs cannot be divided into groups of {groups} that share a sequence (cp={cp})"),
	refuse("strategy", "tp_by with sequence, loss, col, row", func(k *subject) bool {
		return k.s.TPPlan != "" && (k.s.Sequence || k.s.ParallelLoss || len(k.s.ColumnWise)+len(k.s.RowWise) > 0)
	},
		"tp_by={tp_by} is a plan of its own; leave out sequence, loss, col and row"),
	refuse("strategy", "ep_by without ep", func(k *subject) bool { return k.s.EPStyle != "" && k.s.EP == 0 },
		"ep_by={ep_by} needs the number of ranks that share the experts; add ep=N"),
	refuse("strategy", "memory of another number of GPUs",
		func(k *subject) bool {
			return k.isStrategy(DeviceMap) && len(k.s.Memory) > 0 && len(k.s.Memory) != k.GPUs
		},
		"memory has {memory sizes} sizes for {gpus} GPUs; give one for each, like memory=10GiB+20GiB"),
	refuse("strategy", "static_graph with find_unused",
		func(k *subject) bool { return k.s.StaticGraph && k.s.FindUnused },
		"static_graph and find_unused exclude each other"),
	refuse("strategy", "fsdp1 over one rank",
		func(k *subject) bool { return k.isStrategy(FSDP1) && int64(k.GPUs) <= max(1, k.s.Replicate) },
		"FullyShardedDataParallel shards nothing over one rank (it switches to NO_SHARD); use more GPUs, fewer "+
			"replicas, or ddp"),
	refuse("strategy", "fsdp1 with reshard=auto, reshard=N, several modules of one wrap", func(k *subject) bool {
		several := func(w Wrap) bool { return w.Every != 1 || w.KeepsGathered }
		return k.isStrategy(FSDP1) && (k.s.Reshard == "auto" || k.s.ReshardRanks() > 0 || k.s.WrapsEnds() ||
			slices.ContainsFunc(k.s.Wraps(), several))
	},
		"FullyShardedDataParallel wraps one module in a unit, and frees all units after forward or none "+
			"(reshard=true|false); use fsdp2"),
	refuse("strategy", "reshard=N with tp", func(k *subject) bool { return k.s.ReshardRanks() > 0 && k.s.TP > 0 },
		"reshard={reshard}: PyTorch reshards to fewer ranks only without tensor parallelism; use true, false or auto"),
	refuse("strategy", "reshard=N with ep", func(k *subject) bool { return k.s.ReshardRanks() > 0 && k.s.EP > 0 },
		"reshard={reshard}: expert parallelism (ep={ep}) needs true, false or auto"),
	refuse("strategy", "reshard=N that does not divide the ranks", func(k *subject) bool {
		n := k.s.ReshardRanks()
		return n > 0 && (n > k.shardRanks() || k.shardRanks()%n != 0)
	},
		"reshard={reshard}: it must divide the {sharers} ranks that share the parameters"),
	refuse("strategy", "tp without tp=N", func(k *subject) bool { return k.isStrategy(TP) && k.s.TP == 0 },
		"tensor parallelism needs the number of ranks that share a layer, such as tp:tp=2"),
	refuse("strategy", "tp that does not divide the GPUs",
		func(k *subject) bool { return k.isStrategy(TP) && int64(k.GPUs)%k.s.TP != 0 },
		"{gpus} GPUs cannot be divided into groups of {tp} (tp={tp})"),
	refuse("strategy", "tp with replicate",
		func(k *subject) bool { return k.isStrategy(TP) && int64(k.GPUs)/k.s.TP%max(1, k.s.Replicate) != 0 },
		"{gpus} GPUs in groups of {tp} (tp={tp}) cannot be divided into {replicate} replicas"),
	refuse("strategy", "tp with replicate over all GPUs",
		func(k *subject) bool { return k.isStrategy(TP) && int64(k.GPUs) == k.s.TP*k.s.Replicate },
		"with tp={tp} and replicate={replicate} on {gpus} GPUs no ranks are left for fully_shard; use a multiple of "+
			"{gpus} GPUs, or leave out replicate"),
	refuse("strategy", "pp that does not divide the GPUs",
		func(k *subject) bool { return k.isStrategy(PP) && int64(k.GPUs)%k.pipelineRanks() != 0 },
		"{gpus} GPUs cannot be divided evenly among {ranks} stages (pp={ranks})"),
	refuse("strategy", "pp with init but host",
		func(k *subject) bool { return k.isStrategy(PP) && k.s.Init != "" && k.s.Init != InitHost },
		"stages are made on the meta device, or in the host's memory with the whole model (init=host); init={init} "+
			"needs fully_shard of a whole model"),
	refuse("strategy", "micro below the stages",
		func(k *subject) bool { return k.isStrategy(PP) && k.s.Micro > 0 && k.s.Micro < k.pipelineRanks() },
		"{micro} micro-batches do not fill a pipeline of {ranks} stages; use at least as many"),
	refuse("strategy", "schedule=interleaved with shared stages",
		func(k *subject) bool { return k.isStrategy(PP) && k.stageGPUs() > 1 && k.s.Schedule == Interleaved },
		"schedule=interleaved needs stages of one GPU, and here each has {GPUs of a stage}; leave it out"),
	refuse("strategy", "tp, cp, replicate that do not divide a stage", func(k *subject) bool {
		return k.isStrategy(PP) && k.stageGPUs()%(max(1, k.s.TP)*max(1, k.s.CP)*max(1, k.s.Replicate)) != 0
	},
		"{GPUs of a stage} GPUs of a stage cannot be divided by the product of tp, cp and replicate"),
	refuse("strategy", "replicate over a whole stage",
		func(k *subject) bool {
			return k.isStrategy(PP) && k.stageGPUs() > 1 && k.stageGPUs() == k.s.Replicate*max(1, k.s.TP)
		},
		"with replicate={replicate} on {GPUs of a stage} GPUs of a stage no ranks are left for fully_shard; use "+
			"more GPUs, or leave out replicate"),
	refuse("strategy", "reshard, mp, reduce with one GPU a stage", func(k *subject) bool {
		return k.isStrategy(PP) && k.stageGPUs() == 1 && (k.s.Reshard != "" || k.s.MP != "" || k.s.Reduce != "")
	},
		"reshard, mp and reduce need fully_shard, and each stage has one GPU; set fewer stages than {gpus} GPUs "+
			"with pp=N"),
}
