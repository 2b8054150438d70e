package models

import "slices"

// modelConflicts are options that the case's model does not support.
var modelConflicts = []Conflict{
	refuse("stage", "a model without the stage", func(k *subject) bool { return !slices.Contains(k.m.Stages, k.Stage) },
		"there is no stage \"{stage}\"; its stages are {all stages}"),
	refuse("weights", "a model in fp32", func(k *subject) bool { return k.Weights != "" && !k.m.HalfWeights },
		"this model is planned only with weights in fp32; text models of transformers also with {weights}"),
	refuse("task", "a model with one task", func(k *subject) bool { return k.Task != "" && len(k.m.Tasks) == 0 },
		"this model has one task, which cannot be chosen; models of configurations (hf:config.json) have several"),
	refuse("task", "a model without the task",
		func(k *subject) bool { return k.Task != "" && !slices.Contains(k.m.Tasks, k.Task) },
		"there is no task \"{task}\"; its tasks are {all tasks}"),
	refuse("loss", "a model with its own loss",
		func(k *subject) bool { return (k.Loss != "" || k.Output != "") && len(k.m.Losses) == 0 },
		"this model has its own loss, which cannot be chosen, but in language models by --set fused-loss=1, "+
			"chunked-loss=8 or trl-loss=1; exported models (.pt2) have several"),
	refuse("loss", "a model without the loss",
		func(k *subject) bool { return k.Loss != "" && !slices.Contains(k.m.Losses, k.Loss) },
		"there is no loss \"{loss}\"; use {all losses}"),
	refuse("freeze", "a model with freeze stages",
		func(k *subject) bool { return k.Freeze != "" && !k.m.SupportsPatterns },
		"this model has freeze stages instead: {all stages}"),
	refuse("checkpoint", "a model with its own checkpointing",
		func(k *subject) bool { return k.Blocks != "" && !k.m.SupportsPatterns },
		"the modules that this model recomputes cannot be chosen; in exported models (.pt2) they can"),
	refuse("lora", "a model without adapters", func(k *subject) bool { return k.LoRA != nil && !k.m.SupportsLoRA },
		"vprof does not know how to put adapters into this model; it does for models of transformers"),
}

// optimizerConflicts are optimizers that do not work with a strategy.
var optimizerConflicts = []Conflict{
	refuse("optimizer", "strategy but ddp", func(k *subject) bool { return k.opt.LowRank() && k.isSharded() },
		"{this optimizer} needs whole gradients, on one GPU or under ddp; leave out --strategy, or use another"),
	refuse("optimizer", "strategy but ddp", func(k *subject) bool { return k.opt.NeedsWholeParams() && k.isSharded() },
		"vprof supports {this optimizer} only on one GPU and under ddp; leave out --strategy, or use another"),
}

// hasOtherObjective reports whether the objective is not next-token prediction. LLaMA-Factory's reward model does not
// count: it trains a value head, and few of these rules apply to it.
func (k *subject) hasOtherObjective() bool {
	o := k.Objective
	return !o.IsZero() && (o.Name != Reward || o.LikeTrainer != AsLLaMAFactory)
}

// objectiveConflicts are objectives that do not work with a model, a task or another option.
var objectiveConflicts = []Conflict{
	refuse("objective", "a model without objectives",
		func(k *subject) bool { return !k.Objective.IsZero() && !k.m.Supports.Objective },
		"preference objectives need a decoder of transformers (hf:config.json); an exported graph contains its own "+
			"loss"),
	refuse("objective", "reward:as=llama-factory with task", func(k *subject) bool {
		return k.Objective.Name == Reward && k.Objective.LikeTrainer == AsLLaMAFactory && k.Task != preferenceTask
	},
		"LLaMA-Factory's reward model is a language model with a value head; use --task causal-lm"),
	refuse("objective", "reward with task",
		func(k *subject) bool {
			return k.hasOtherObjective() && k.Objective.Name == Reward && k.Task != rewardTask
		},
		"a reward model gives a whole answer one score; add --task classification --set classes=1"),
	refuse("objective", "task", func(k *subject) bool {
		return k.hasOtherObjective() && k.Objective.Name != Reward && k.Task != preferenceTask
	},
		"{this objective} trains a language model; use --task causal-lm"),
	refuse("objective", "packed without as=ms-swift", func(k *subject) bool {
		return k.hasOtherObjective() && k.Objective.Packed && k.Objective.LikeTrainer != AsSwift
	},
		"packed: only ms-swift packs pairs into one sequence; add as=ms-swift"),
	refuse("objective", "packed with the settings padding, packed", func(k *subject) bool {
		return k.hasOtherObjective() && k.Objective.Packed && (k.Settings["padding"] > 0 || k.IsSwitchOn("packed"))
	},
		"packed pairs have no padding and no mask; leave out padding=1 and packed=1"),
	refuse("liger", "objective", func(k *subject) bool { return k.hasOtherObjective() && k.Liger },
		"vprof does not support liger-kernel's preference losses"),
	refuse("objective", "a reference model with tp, fsdp1", func(k *subject) bool {
		return k.hasOtherObjective() && (k.ReferenceModel() || k.Objective.Distills()) && k.isStrategy(TP, FSDP1)
	},
		"vprof does not support a reference model under tensor parallelism or fsdp1; train adapters, whose reference "+
			"is the model itself, or use another strategy"),
	refuse("objective", "answers as long as seq-len",
		func(k *subject) bool {
			return k.Objective.HasAnswers() &&
				k.Objective.AnswerTokens() >= k.Settings["seq-len"]
		},
		"answers of {answer} tokens leave no room for a prompt in sequences of {seq-len}; use {this "+
			"objective}:completion=N with less than seq-len"),
	refuse("objective", "fused and chunked losses", func(k *subject) bool {
		return k.hasOtherObjective() &&
			(k.Settings["chunked-loss"] > 1 || k.IsSwitchOn("fused-loss") || k.IsSwitchOn("linear-cross-entropy"))
	},
		"the fused and chunked losses are for the next token; leave them out"),
}

// trainOnlyConflicts are values of train-only and trained-weights that do not work with other options.
var trainOnlyConflicts = []Conflict{
	refuse("trained-weights", "types but fp32",
		func(k *subject) bool { return k.TrainedWeights != "" && k.TrainedWeights != fp32 },
		"\"{trained-weights}\" is not possible: need fp32; set the type of all weights with --weights"),
	refuse("trained-weights", "no train-only",
		func(k *subject) bool { return k.TrainedWeights != "" && k.TrainOnly == "" },
		"all weights are trained, so set their type with --weights, or freeze some with --train-only"),
	refuse("trained-weights", "strategy but ddp",
		func(k *subject) bool { return k.TrainedWeights != "" && k.isSharded() },
		"strategies that shard weights need one type for all weights; leave trained-weights out, or use ddp"),
	refuse("train-only", "a model with its own freeze stages",
		func(k *subject) bool { return k.TrainOnly != "" && k.m.Supports.Loop == "" }, "this model has fixed freeze "+
			"stages; models of transformers and exported models (.pt2) have a choice of parameters"),
	refuse("train-only", "lora", func(k *subject) bool { return k.TrainOnly != "" && k.LoRA != nil },
		"adapters freeze all of the model; train further modules with --lora save=..."),
	refuse("train-only", "stage, freeze",
		func(k *subject) bool { return k.TrainOnly != "" && (k.Stage != "full" || k.Freeze != "") },
		"another option also selects the trained parameters; give one of them"),
}

// layerConflicts are quantization-aware and float8 training that do not work with a model or another option.
var layerConflicts = []Conflict{
	refuse("qat", "a model without linear layers of transformers",
		func(k *subject) bool { return !k.QAT.IsZero() && !k.m.Supports.QAT },
		"quantization-aware training needs a model of transformers (hf:config.json) or an exported model (.pt2)"),
	refuse("qat", "quantize", func(k *subject) bool { return !k.QAT.IsZero() && k.Quantize != "" },
		"quantized layers cannot be trained quantization-aware; leave out --quantize"),
	refuse("qat", "strategy tp", func(k *subject) bool { return !k.QAT.IsZero() && k.isStrategy(TP) },
		"parallelize_module does not find layers of quantization-aware training; use another strategy"),
	refuse("float8", "a model without linear layers of transformers",
		func(k *subject) bool { return k.Float8 != "" && !k.m.Supports.QAT },
		"float8 training needs a model of transformers (hf:config.json) or an exported model (.pt2)"),
	refuse("float8", "lora, quantize, qat",
		func(k *subject) bool {
			return k.Float8 != "" && (k.Quantize != "" || !k.QAT.IsZero() || k.LoRA != nil)
		},
		"float8 training needs a model that is trained as a whole; leave out --lora, --quantize, qat"),
	refuse("float8", "strategy but ddp, fsdp2",
		func(k *subject) bool { return k.Float8 != "" && !k.isStrategy("", DDP, FSDP2) },
		"float8 training is supported on one GPU, under ddp and under fsdp2"),
}

// tileConflicts are models and options that tiled feed-forward layers do not work with.
var tileConflicts = []Conflict{
	refuse("tiled-mlp", "a model without such layers",
		func(k *subject) bool { return k.TiledMLP != 0 && !k.m.Supports.Tiles },
		"tiled feed-forward layers need a decoder of transformers (hf:config.json) that is not a mixture of experts"),
	refuse("tiled-mlp", "optimizer-in-backward", func(k *subject) bool { return k.TiledMLP != 0 && k.InBackward },
		"the optimizer would step after every tile of a layer; leave out --optimizer-in-backward"),
	refuse("tiled-mlp", "strategy ddp, zero1",
		func(k *subject) bool {
			return k.TiledMLP != 0 &&
				(k.isStrategy(DDP) || k.isStrategy(ZeRO1) && k.s.Engine == "")
		},
		"DistributedDataParallel raises where parameters get their gradients tile by tile (\"Expected to mark a "+
			"variable ready only once\"); use fsdp2"),
	refuse("tiled-mlp", "DeepSpeed", func(k *subject) bool { return k.TiledMLP != 0 && k.s.IsDeepSpeed() },
		"tiled feed-forward layers are supported as in axolotl without DeepSpeed; use fsdp2"),
	refuse("tiled-mlp", "strategy but fsdp2",
		func(k *subject) bool { return k.TiledMLP != 0 && !k.isStrategy("", FSDP2) },
		"tiled feed-forward layers are supported on one GPU and under fully_shard; use fsdp2"),
}

// loopOption returns the first option of the training loop that the case sets, empty if none. The loop that the model
// is recorded with does not count.
func (k *subject) loopOption() string {
	switch {
	case k.Loop != "" && k.Loop != k.m.Supports.Loop && !passesLogitsToLoss(k.m, k.Case):
		return "loop"
	case k.ZeroGrad != "":
		return "zero-grad"
	case k.UseCache != "":
		return "use-cache"
	case k.EmptyCache != 0:
		return "empty-cache"
	}
	return ""
}

// loopConflicts are options of the training loop that do not work with a model, an objective or a strategy.
var loopConflicts = loopRows()

func loopRows() (all []Conflict) {
	for _, field := range []string{"loop", "zero-grad", "use-cache", "empty-cache"} {
		given := func(k *subject) bool { return k.loopOption() == field }
		all = append(all, []Conflict{
			refuse(field, "a model with its own loop",
				func(k *subject) bool { return given(k) && k.m.Supports.Loop == "" }, ownLoopReason),
			refuse(field, "objective", func(k *subject) bool { return given(k) && !k.Objective.IsZero() },
				"the objective {this objective} runs in its trainer's own loop"),
			refuse(field, "strategy pp", func(k *subject) bool {
				return given(k) && k.isStrategy(PP) && (field != "use-cache" || k.UseCache == yesValue)
			}, "a pipeline's schedule is its training loop"),
		}...)
	}
	return append(all, []Conflict{
		refuse("use-cache", "a .pt2 model",
			func(k *subject) bool { return k.UseCache == yesValue && k.m.Supports.Loop == LoopFunction },
			"an exported model returns what it was exported with; export it with use_cache"),
		refuse("use-cache", "a model without a cache",
			func(k *subject) bool { return k.UseCache == yesValue && !k.m.Supports.Cache },
			"the cache is recorded only for decoders of transformers with attention in every layer"),
		refuse("use-cache", "checkpointing", func(k *subject) bool { return k.UseCache == yesValue && k.Checkpointing },
			"transformers leaves the cache out while layers are recomputed; leave out one of the two"),
		refuse("zero-grad", "optimizer-in-backward", func(k *subject) bool { return k.InBackward && k.ZeroGrad != "" },
			"gradients are freed as soon as the optimizer has stepped in backward"),
	}...)
}

// evaluationConflicts are evaluations that a model or a strategy does not support.
var evaluationConflicts = []Conflict{
	refuse("evaluate", "strategy pp",
		func(k *subject) bool { return !k.Evaluate.IsZero() && !k.Evaluate.IsOff && k.isStrategy(PP) },
		"vprof does not support evaluation in a pipeline"),
	refuse("evaluate", "new-tokens with objective, task, a model without a cache",
		func(k *subject) bool {
			return k.Evaluate.NewTokens > 0 && (!k.m.Supports.Cache || !k.predictsNextToken())
		},
		"generation (new-tokens) needs a decoder of transformers that learns the next token and has attention in "+
			"every layer"),
	refuse("evaluate", "new-tokens with the setting padding",
		func(k *subject) bool { return k.Evaluate.NewTokens > 0 && k.Settings["padding"] > 0 },
		"generation (new-tokens) needs sequences without padding; leave out padding"),
	refuse("evaluate", "scores with a model with its own loop",
		func(k *subject) bool { return k.Evaluate.Scores > 0 && k.m.Supports.Loop == "" },
		"only transformers' Trainer stores logits for metrics (scores); "+
			ownLoopReason),
}

// otherConflicts are the remaining options that a model does not support or that exclude each other.
var otherConflicts = []Conflict{
	refuse("quantize", "a model without packed layers",
		func(k *subject) bool { return k.Quantize != "" && !k.m.Supports.Quantize }, "vprof does not know how to "+
			"quantize this model; it does for models of transformers and for exported models (.pt2)"),
	refuse("quantize", "no lora", func(k *subject) bool { return k.Quantize != "" && k.LoRA == nil },
		"quantized layers cannot be trained; train adapters beside them with --lora"),
	refuse("liger", "a model with a reason of its own",
		func(k *subject) bool { return k.Liger && !k.m.Supports.Liger && k.m.Supports.NoLiger != "" }, "{no liger}"),
	refuse("liger", "a model without such layers", func(k *subject) bool { return k.Liger && !k.m.Supports.Liger },
		"vprof supports no kernels of liger-kernel for this model; it does for decoders of transformers "+
			"(hf:config.json, and exported ones)"),
	refuse("checkpointing", "a way to recompute without checkpointing",
		func(k *subject) bool { return k.Recompute != "" && !k.Checkpointing },
		"{checkpointing} is a kind of checkpointing and needs checkpointing on"),
	refuse("checkpointing", "a model with its own checkpointing",
		func(k *subject) bool { return k.Recompute != "" && !k.m.Supports.Recompute },
		"this model has one kind of checkpointing; only decoders of transformers and exported models (.pt2) have more"),
	refuse("optimizer-in-backward", "strategy", func(k *subject) bool { return k.InBackward && k.Strategy != nil },
		"vprof supports an optimizer in backward only on one GPU; leave out --strategy"),
	refuse("optimizer-in-backward", "amp fp16", func(k *subject) bool { return k.InBackward && k.AMP == "fp16" },
		"the loss scaler must see all gradients before a step; use bf16"),
	refuse("clip", "optimizer-in-backward", func(k *subject) bool { return k.InBackward && k.Clip == ClipNorm },
		"the norm of all gradients is not known while the optimizer steps in backward; leave out clipping"),
	refuse("routing", "no strategy with ep=N", func(k *subject) bool { return k.Routing != "" && k.s.EP == 0 },
		"routing sets how many tokens a rank's experts get, which needs expert parallelism; add ep=N to --strategy"),
	refuse("offload", "a model with its own loop",
		func(k *subject) bool { return k.m.Supports.Loop == "" && k.Offload }, ownLoopReason),
	refuse("optimizer-in-backward", "a model with its own loop",
		func(k *subject) bool { return k.m.Supports.Loop == "" && k.InBackward }, ownLoopReason),
	refuse("clip", "a model with its own loop",
		func(k *subject) bool { return k.m.Supports.Loop == "" && k.Clip != "" }, ownLoopReason),
}
