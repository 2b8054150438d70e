package models

import "slices"

// modelConflicts are options that the case's model does not support.
var modelConflicts = []Conflict{
	refuse("stage", "a model without the stage", func(k *subject) bool { return !slices.Contains(k.m.Stages, k.Stage) },
		"the model has no freeze stage \"{stage}\"; use one of {all stages}"),
	refuse("weights", "a model in fp32", func(k *subject) bool { return k.Weights != "" && !k.m.HalfWeights },
		"vprof plans this model only with weights in fp32; leave out --weights (models of transformers, "+
			"hf:config.json, also accept {weights})"),
	refuse("task", "a model with one task", func(k *subject) bool { return k.Task != "" && len(k.m.Tasks) == 0 },
		"the model has one task; leave out --task (models of transformers, hf:config.json, have several)"),
	refuse("task", "a model without the task",
		func(k *subject) bool { return k.Task != "" && !slices.Contains(k.m.Tasks, k.Task) },
		"the model has no task \"{task}\"; use one of {all tasks}"),
	refuse("loss", "a model with its own loss",
		func(k *subject) bool { return (k.Loss != "" || k.Output != "") && len(k.m.Losses) == 0 },
		"the model has its own loss; leave out --loss and its output (language models accept --set fused-loss=1, "+
			"chunked-loss=8 or trl-loss=1, exported models, .pt2, accept --loss)"),
	refuse("loss", "a model without the loss",
		func(k *subject) bool { return k.Loss != "" && !slices.Contains(k.m.Losses, k.Loss) },
		"there is no loss \"{loss}\"; use one of {all losses}"),
	refuse("freeze", "a model with freeze stages",
		func(k *subject) bool { return k.Freeze != "" && !k.m.SupportsPatterns },
		"this model freezes parameters by stages, not by patterns; use --stage with one of {all stages}"),
	refuse("checkpoint", "a model with its own checkpointing",
		func(k *subject) bool { return k.Blocks != "" && !k.m.SupportsPatterns }, "the modules that this model "+
			"recomputes are fixed; leave out --set checkpoint=... (exported models, .pt2, have a choice)"),
	refuse("lora", "a model without adapters", func(k *subject) bool { return k.LoRA != nil && !k.m.SupportsLoRA },
		"vprof cannot add adapters to this model, only to models of transformers; leave out --lora, or run your own "+
			"script with \"vprof run\""),
}

// optimizerConflicts are optimizers that do not work with a strategy.
var optimizerConflicts = []Conflict{
	refuse("optimizer", "strategy but ddp", func(k *subject) bool { return k.opt.LowRank() && k.isSharded() },
		"{this optimizer} needs whole gradients, so it works on one GPU or under ddp; use --strategy ddp, or another "+
			"--optimizer"),
	refuse("optimizer", "strategy but ddp", func(k *subject) bool { return k.opt.NeedsWholeParams() && k.isSharded() },
		"vprof supports {this optimizer} only on one GPU and under ddp; use --strategy ddp, or another --optimizer"),
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
		"preference objectives (dpo, kto, grpo ...) need a decoder of transformers, named by --model hf:config.json; "+
			"an exported graph (.pt2) contains its own loss"),
	refuse("objective", "reward:as=llama-factory with task", func(k *subject) bool {
		return k.Objective.Name == Reward && k.Objective.LikeTrainer == AsLLaMAFactory && k.Task != preferenceTask
	},
		"the reward model of LLaMA-Factory is a language model with a value head; use --task causal-lm"),
	refuse("objective", "reward with task",
		func(k *subject) bool {
			return k.hasOtherObjective() && k.Objective.Name == Reward && k.Task != rewardTask
		},
		"a reward model gives a whole answer one score; add --task classification --set classes=1"),
	refuse("objective", "task", func(k *subject) bool {
		return k.hasOtherObjective() && k.Objective.Name != Reward && k.Task != preferenceTask
	},
		"the objective {this objective} trains a language model; use --task causal-lm"),
	refuse("objective", "packed without as=ms-swift", func(k *subject) bool {
		return k.hasOtherObjective() && k.Objective.Packed && k.Objective.LikeTrainer != AsSwift
	},
		"packed=true: only ms-swift packs pairs of answers into one sequence; add as=ms-swift, or leave out packed"),
	refuse("objective", "packed with the settings padding, packed", func(k *subject) bool {
		return k.hasOtherObjective() && k.Objective.Packed && (k.Settings["padding"] > 0 || k.IsSwitchOn("packed"))
	},
		"the objective packs pairs of answers into sequences without padding and without a mask; leave out --set "+
			"padding and --set packed"),
	refuse("liger", "objective", func(k *subject) bool { return k.hasOtherObjective() && k.Liger },
		"vprof does not support the preference losses of liger-kernel; leave out --liger"),
	refuse("objective", "a reference model with tp, fsdp1", func(k *subject) bool {
		return k.hasOtherObjective() && (k.ReferenceModel() || k.Objective.Distills()) && k.isStrategy(TP, FSDP1)
	},
		"vprof does not support an objective's reference model under tensor parallelism (tp) or fsdp1; train "+
			"adapters (--lora), whose reference is the model itself, or use another --strategy"),
	refuse("objective", "answers as long as seq-len",
		func(k *subject) bool {
			return k.Objective.HasAnswers() && k.Objective.AnswerTokens() >= k.Settings["seq-len"]
		},
		"answers of {answer} tokens leave no room for a prompt in sequences of {seq-len} tokens; use {this "+
			"objective}:completion=N with N below {seq-len}, or a larger --seq-len"),
	refuse("objective", "fused and chunked losses", func(k *subject) bool {
		return k.hasOtherObjective() &&
			(k.Settings["chunked-loss"] > 1 || k.IsSwitchOn("fused-loss") || k.IsSwitchOn("linear-cross-entropy"))
	},
		"the settings chunked-loss, fused-loss and linear-cross-entropy are for next-token training, not for the "+
			"objective {this objective}; leave them out"),
}

// trainOnlyConflicts are values of train-only and trained-weights that do not work with other options.
var trainOnlyConflicts = []Conflict{
	refuse("trained-weights", "types but fp32",
		func(k *subject) bool { return k.TrainedWeights != "" && k.TrainedWeights != fp32 },
		"trained weights can have only the type fp32, not \"{trained-weights}\"; use --set trained-weights=fp32, or "+
			"set the type of all weights with --weights"),
	refuse("trained-weights", "no train-only",
		func(k *subject) bool { return k.TrainedWeights != "" && k.TrainOnly == "" }, "all weights are trained, so "+
			"trained-weights has no effect; set their type with --weights, or freeze some of them with --train-only"),
	refuse("trained-weights", "strategy but ddp",
		func(k *subject) bool { return k.TrainedWeights != "" && k.isSharded() }, "the strategy {strategy} shards "+
			"weights and needs one type for all of them; leave out --set trained-weights, or use --strategy ddp"),
	refuse("train-only", "a model with its own freeze stages",
		func(k *subject) bool { return k.TrainOnly != "" && k.m.Supports.Loop == "" }, "this model has fixed freeze "+
			"stages; leave out --train-only (models of transformers and exported models, .pt2, have a choice of "+
			"parameters)"),
	refuse("train-only", "lora", func(k *subject) bool { return k.TrainOnly != "" && k.LoRA != nil },
		"adapters (--lora) freeze all of the model, so --train-only has no effect; name further trained modules with "+
			"--lora save=NAMES"),
	refuse("train-only", "stage, freeze",
		func(k *subject) bool { return k.TrainOnly != "" && (k.Stage != "full" || k.Freeze != "") },
		"--train-only and --stage or freeze both select the trained parameters; give only one of them"),
}

// layerConflicts are quantization-aware and float8 training that do not work with a model or another option.
var layerConflicts = []Conflict{
	refuse("qat", "a model without linear layers of transformers",
		func(k *subject) bool { return !k.QAT.IsZero() && !k.m.Supports.QAT }, "quantization-aware training (qat) "+
			"needs a model of transformers (hf:config.json) or an exported model (.pt2); leave out --set qat"),
	refuse("qat", "quantize", func(k *subject) bool { return !k.QAT.IsZero() && k.Quantize != "" },
		"layers of --quantize are frozen and cannot be trained quantization-aware (qat); leave out --quantize, or "+
			"--set qat"),
	refuse("qat", "strategy tp", func(k *subject) bool { return !k.QAT.IsZero() && k.isStrategy(TP) },
		"tensor parallelism (parallelize_module) does not find the linear layers of quantization-aware training "+
			"(qat); use another --strategy"),
	refuse("float8", "a model without linear layers of transformers",
		func(k *subject) bool { return k.Float8 != "" && !k.m.Supports.QAT }, "float8 training needs a model of "+
			"transformers (hf:config.json) or an exported model (.pt2); leave out --set float8"),
	refuse("float8", "lora, quantize, qat",
		func(k *subject) bool {
			return k.Float8 != "" && (k.Quantize != "" || !k.QAT.IsZero() || k.LoRA != nil)
		},
		"float8 training needs a model whose weights are all trained; leave out --lora, --quantize and --set qat, or "+
			"leave out --set float8"),
	refuse("float8", "strategy but ddp, fsdp2",
		func(k *subject) bool { return k.Float8 != "" && !k.isStrategy("", DDP, FSDP2) }, "vprof supports float8 "+
			"training on one GPU, under ddp and under fsdp2; use one of these, or leave out --set float8"),
}

// tileConflicts are models and options that tiled feed-forward layers do not work with.
var tileConflicts = []Conflict{
	refuse("tiled-mlp", "a model without such layers",
		func(k *subject) bool { return k.TiledMLP != 0 && !k.m.Supports.Tiles },
		"tiled feed-forward layers (tiled-mlp) need a decoder of transformers (hf:config.json) that is not a mixture "+
			"of experts; leave out --set tiled-mlp"),
	refuse("tiled-mlp", "optimizer-in-backward", func(k *subject) bool { return k.TiledMLP != 0 && k.InBackward },
		"with --set tiled-mlp the optimizer would step after every tile of a layer; leave out --optimizer-in-backward"),
	refuse("tiled-mlp", "strategy ddp, zero1",
		func(k *subject) bool {
			return k.TiledMLP != 0 && (k.isStrategy(DDP) || k.isStrategy(ZeRO1) && k.s.Engine == "")
		},
		"DistributedDataParallel raises where parameters get their gradients tile by tile (\"Expected to mark a "+
			"variable ready only once\"); use fsdp2"),
	refuse("tiled-mlp", "DeepSpeed", func(k *subject) bool { return k.TiledMLP != 0 && k.s.IsDeepSpeed() },
		"vprof supports tiled-mlp as in axolotl, without DeepSpeed; use --strategy fsdp2"),
	refuse("tiled-mlp", "strategy but fsdp2",
		func(k *subject) bool { return k.TiledMLP != 0 && !k.isStrategy("", FSDP2) },
		"vprof supports tiled-mlp on one GPU and under fully_shard; use --strategy fsdp2"),
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
				"with the objective {this objective}, its trainer provides the training loop, which cannot be "+
					"changed; leave out this option, or the objective"),
			refuse(field, "strategy pp", func(k *subject) bool {
				return given(k) && k.isStrategy(PP) && (field != "use-cache" || k.UseCache == yesValue)
			}, "under pipeline parallelism (pp) the schedule is the training loop and cannot be changed; leave out "+
				"this option, or use another --strategy"),
		}...)
	}
	return append(all, []Conflict{
		refuse("use-cache", "a .pt2 model",
			func(k *subject) bool { return k.UseCache == yesValue && k.m.Supports.Loop == LoopFunction },
			"an exported model (.pt2) returns a cache only if it was exported with use_cache; export it so, and "+
				"leave out --set use-cache"),
		refuse("use-cache", "a model without a cache",
			func(k *subject) bool { return k.UseCache == yesValue && !k.m.Supports.Cache },
			"vprof records the cache of keys and values (use_cache) only for decoders of transformers with attention "+
				"in every layer; leave out --set use-cache"),
		refuse("use-cache", "checkpointing", func(k *subject) bool { return k.UseCache == yesValue && k.Checkpointing },
			"transformers turns the cache of keys and values off while layers are recomputed; leave out --set "+
				"use-cache=true, or --checkpointing"),
		refuse("zero-grad", "optimizer-in-backward", func(k *subject) bool { return k.InBackward && k.ZeroGrad != "" },
			"with --optimizer-in-backward gradients are freed as soon as they were used; leave out --set zero-grad"),
	}...)
}

// evaluationConflicts are evaluations that a model or a strategy does not support.
var evaluationConflicts = []Conflict{
	refuse("evaluate", "strategy pp",
		func(k *subject) bool { return !k.Evaluate.IsZero() && !k.Evaluate.IsOff && k.isStrategy(PP) },
		"vprof does not support evaluation under pipeline parallelism (pp); leave out --evaluate, or use another "+
			"--strategy"),
	refuse("evaluate", "new-tokens with objective, task, a model without a cache",
		func(k *subject) bool {
			return k.Evaluate.NewTokens > 0 && (!k.m.Supports.Cache || !k.predictsNextToken())
		},
		"text generation during evaluation (new-tokens) needs a decoder of transformers with attention in every "+
			"layer, trained on the next token; leave out new-tokens"),
	refuse("evaluate", "new-tokens with the setting padding",
		func(k *subject) bool { return k.Evaluate.NewTokens > 0 && k.Settings["padding"] > 0 },
		"text generation during evaluation (new-tokens) needs sequences without padding; leave out --set padding, or "+
			"new-tokens"),
	refuse("evaluate", "scores with a model with its own loop",
		func(k *subject) bool { return k.Evaluate.Scores > 0 && k.m.Supports.Loop == "" },
		"only transformers' Trainer stores logits for metrics (scores); leave out scores; "+
			ownLoopReason),
}

// otherConflicts are the remaining options that a model does not support or that exclude each other.
var otherConflicts = []Conflict{
	refuse("quantize", "a model without packed layers",
		func(k *subject) bool { return k.Quantize != "" && !k.m.Supports.Quantize }, "vprof cannot quantize this "+
			"model, only models of transformers and exported models (.pt2); leave out --quantize"),
	refuse("quantize", "no lora", func(k *subject) bool { return k.Quantize != "" && k.LoRA == nil },
		"quantized layers cannot be trained; add adapters with --lora, or leave out --quantize"),
	refuse("liger", "a model with a reason of its own",
		func(k *subject) bool { return k.Liger && !k.m.Supports.Liger && k.m.Supports.NoLiger != "" }, "{no liger}"),
	refuse("liger", "a model without such layers", func(k *subject) bool { return k.Liger && !k.m.Supports.Liger },
		"vprof supports no kernels of liger-kernel for this model, only for decoders of transformers (hf:config.json "+
			"and exported ones); leave out --liger"),
	refuse("checkpointing", "a way to recompute without checkpointing",
		func(k *subject) bool { return k.Recompute != "" && !k.Checkpointing }, "{checkpointing} is a way of "+
			"checkpointing, but checkpointing is off; turn it on, or leave out {checkpointing}"),
	refuse("checkpointing", "a model with its own checkpointing",
		func(k *subject) bool { return k.Recompute != "" && !k.m.Supports.Recompute }, "the model has one kind of "+
			"checkpointing; use true or false (decoders of transformers and exported models, .pt2, have more)"),
	refuse("optimizer-in-backward", "strategy", func(k *subject) bool { return k.InBackward && k.Strategy != nil },
		"vprof supports --optimizer-in-backward only on one GPU; leave it out, or leave out --strategy"),
	refuse("optimizer-in-backward", "amp fp16", func(k *subject) bool { return k.InBackward && k.AMP == "fp16" },
		"with fp16 the loss scaler must see all gradients before a step, which --optimizer-in-backward does not "+
			"allow; use --amp bf16"),
	refuse("clip", "optimizer-in-backward", func(k *subject) bool { return k.InBackward && k.Clip == ClipNorm },
		"the norm of all gradients is not known while the optimizer steps in backward; use --clip none, or leave out "+
			"--optimizer-in-backward"),
	refuse("routing", "no strategy with ep=N", func(k *subject) bool { return k.Routing != "" && k.s.EP == 0 },
		"routing sets how many tokens the experts of a rank get, which needs expert parallelism; add ep=N to "+
			"--strategy, or leave out --set routing"),
	refuse("offload", "a model with its own loop",
		func(k *subject) bool { return k.m.Supports.Loop == "" && k.Offload }, ownLoopReason),
	refuse("optimizer-in-backward", "a model with its own loop",
		func(k *subject) bool { return k.m.Supports.Loop == "" && k.InBackward }, ownLoopReason),
	refuse("clip", "a model with its own loop",
		func(k *subject) bool { return k.m.Supports.Loop == "" && k.Clip != "" }, ownLoopReason),
}
