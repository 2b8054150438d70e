package models

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/nearest"
	"github.com/vprof/vprof/internal/options"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// Fields returns all fields of a case except the model's name and the batch size. Descriptions of a case list them in
// this order, and patches are applied in it.
func Fields() []Field { return fields }

var noText = fixedText("")

var fields = []Field{
	{
		Name: "task", JSON: "task", Group: GroupWhat,
		Usage: "`task` that a transformers model (hf:) is trained for: {values} (default: read from its config.json)",
		codec: textCodec(func(c *Case) *string { return &c.Task }),
	},
	{
		Name: "stage", JSON: "stage", Group: GroupWhat,
		Usage: "`stage` of training: which layers are frozen; vprof models show lists them (default: the model's)",
		codec: textCodec(func(c *Case) *string { return &c.Stage }), phrase: func(c *Case, stage string) string {
			return phrase.If(c.LoRA == nil, "stage %s", stage) // with adapters no stage is trained
		},
	},
	{
		Name: "amp", JSON: "amp", Label: "precision", Group: GroupHow, IsMain: true,
		Values: listTexts(AutocastPrecisions()),
		Usage:  "`precision` of torch.autocast: {values} (default: the model's)",
		codec:  stringerCodec(ParseAutocast, func(c *Case) *Autocast { return &c.AMP }),
		phrase: func(c *Case, _ string) string { return c.Precision() },
	},
	{
		Name: "weights", JSON: "weights", Group: GroupHow, Values: listTexts(WeightTypes()),
		Usage: "`type` of the weights: {values} (default: the model's; for hf: models, the dtype of config.json)",
		codec: stringerCodec(ParseWeightType, func(c *Case) *WeightType { return &c.Weights }), phrase: noText,
	},
	{
		Name: "loss", JSON: "loss", Group: GroupWhat,
		Usage: "`loss` of a .pt2 model: {values}; output is the model's own loss (default: output, else cross-entropy)",
		codec: codec{parseLoss, func(c *Case) string { return c.Loss }}, phrase: addPrefix("loss "),
	},
	{
		Name: "output", JSON: "output", SetOnly: true, Group: GroupWhat,
		Usage: "`name` or number of the .pt2 model's output that the loss is computed from, also as --loss LOSS:NAME " +
			"(default: the first)",
		codec: textCodec(func(c *Case) *string { return &c.Output }), phrase: addPrefix("of output "),
	},
	{
		Name: "freeze", JSON: "freeze", SetOnly: true, Group: GroupWhat,
		Usage: "freeze the parameters of a .pt2 model whose names match these `patterns`, like 'stem.*,blocks.0.*'",
		codec: textCodec(func(c *Case) *string { return &c.Freeze }), phrase: addPrefix("frozen "),
	},
	{
		Name: "checkpoint", JSON: "blocks", SetOnly: true, Group: GroupHow,
		Usage: "recompute the modules of a .pt2 model whose paths match these `patterns`, like 'layers.*' (implies " +
			"--checkpointing; default: the longest list of equal modules)",
		codec: codec{func(text string) (func(*Case), error) {
			return func(c *Case) { c.Blocks, c.Checkpointing = text, c.Checkpointing || text != "" }, nil
		}, func(c *Case) string { return c.Blocks }}, phrase: noText,
	},
	{
		Name: "checkpointing", JSON: "checkpointing", Group: GroupHow, IsMain: true, BareValue: "true",
		Usage: "recompute activations in backward (activation checkpointing), and `how`: true, false, non-reentrant, " +
			"reentrant, reentrant-trained (only layers with trained parameters), every=2 (every second layer), " +
			"selective=mm,sdpa (keeps the results of these operators) (default: the model's)",
		codec: codec{parseCheckpointing, checkpointingText},
		phrase: func(c *Case, _ string) string {
			if !c.Checkpointing {
				return ""
			}
			return strings.TrimSpace("checkpointing " + c.Blocks)
		},
	},
	{
		Name: "accumulate", JSON: "accumulate", Label: "micro-batches", Group: GroupHow, IsMain: true,
		Usage: "accumulate the gradients of `n` micro-batches in each optimizer step (default: the model's)",
		codec: countCodec(CheckAccumulate, func(c *Case) *int { return &c.Accumulate }),
		phrase: func(c *Case, text string) string {
			if c.Accumulate <= 1 {
				return ""
			}
			return text + " micro-batches a step"
		},
	},
	{
		Name: "optimizer", JSON: "optimizer", Group: GroupHow, IsMain: true, Values: Optimizers,
		Usage: "`name` of the optimizer (default: the model's): {values}; optimizers that project gradients accept " +
			"options like galore-adamw:rank=64,target=attn+mlp",
		codec: stringCodec(parseOptimizer, func(c *Case) *string { return &c.Optimizer }),
		phrase: func(_ *Case, text string) string {
			if text == string(optim.None) {
				return "no optimizer"
			}
			return text
		},
	},
	{
		Name: "lora", JSON: "lora", Label: "adapters", Group: GroupWhat, IsMain: true,
		Usage: "train LoRA adapters instead of the model, with `options` like r=8,alpha=16,target=all-linear or " +
			"r=8,target=q_proj,v_proj; dora=true uses DoRA; towers=false adapts no image or audio encoder; " +
			"parameters=experts.gate_up_proj,experts.down_proj also adapts experts; save=embed_tokens,lm_head also " +
			"trains these modules in full; match=REGEX, as the last option, adapts modules whose whole path matches; " +
			"method=NAME, as the first, uses another method of peft with its options, like " +
			"method=oft,oft_block_size=32,target=q_proj,v_proj",
		codec: optionalCodec(ParseLoRA, func(c *Case) **LoRA { return &c.LoRA },
			(*LoRA).String), phrase: addPrefix("LoRA "),
	},
	{
		Name: "quantize", JSON: "quantize", Group: GroupWhat, IsMain: true, Values: Quantizations,
		Usage: "quantize the frozen layers under the adapters of --lora to this bitsandbytes `type`: {values} (dq: " +
			"double quantization; +experts: experts, too)",
		codec: keywordCodec("quantization", Quantizations, func(c *Case) *string { return &c.Quantize }),
	},
	{
		Name: "liger", JSON: "liger", Group: GroupHow, BareValue: "true",
		Usage: "compute norms, rotary embeddings, feed-forward layers and the loss with liger-kernel",
		codec: boolCodec(func(c *Case) *bool { return &c.Liger }), phrase: fixedText("liger"),
	},
	{
		JSON: "recompute", phrase: addPrefix("recompute "),
		codec: codec{text: func(c *Case) string { return string(c.Recompute) }},
	},
	{
		Name: "offload", JSON: "offload", SetOnly: true, Group: GroupHow, BareValue: "true",
		Usage: "keep activations for backward in host memory (torch.autograd.graph.save_on_cpu)",
		codec: boolCodec(func(c *Case) *bool { return &c.Offload }), phrase: fixedText("activations on the host"),
	},
	{
		Name: "optimizer-in-backward", JSON: "optimizer_in_backward", Group: GroupHow, BareValue: "true",
		Usage: "update each parameter in backward, as soon as its gradient is computed, and free the gradient",
		codec: boolCodec(func(c *Case) *bool { return &c.InBackward }), phrase: fixedText("optimizer in backward"),
	},
	{
		Name: "loop", JSON: "loop", Group: GroupHow, IsMain: true, Values: LoopNames,
		Usage: "`loop` that trains, which decides when the model's outputs other than the loss are freed: {values}; " +
			"trainer frees them at once, function when the step ends, plain when the next forward pass has returned " +
			"(default: trainer; for a .pt2 model, function)",
		codec: keywordCodec("loop", LoopNames, func(c *Case) *Loop { return &c.Loop }), phrase: addPrefix("loop "),
	},
	{
		Name: "zero-grad", JSON: "zero_grad", SetOnly: true, Group: GroupHow, Values: ZeroGradModes,
		Usage: "`when` to zero gradients: after (the optimizer's step), before (forward), between (forward and " +
			"backward, as Lightning does), keep (filled with zeros and not freed) (default: after)",
		codec: keywordCodec("way to zero gradients", ZeroGradModes, func(c *Case) *ZeroGrad {
			return &c.ZeroGrad
		}), phrase: addPrefix("zero_grad "),
	},
	{
		Name: "use-cache", JSON: "use_cache", SetOnly: true, Group: GroupHow, Values: cacheValues,
		Usage: "return the keys and values of all layers as an output (use_cache): {values} (default: true with " +
			"--loop function or plain without checkpointing, as in transformers, else false)",
		codec: keywordCodec("choice of the cache", cacheValues, func(c *Case) *string {
			return &c.UseCache
		}), phrase: addPrefix("use_cache "),
	},
	{
		Name: "empty-cache", JSON: "empty_cache", SetOnly: true, Group: GroupHow, BareValue: "1",
		Usage: "call torch.cuda.empty_cache() every `n` steps, after the step; with --loop trainer before backward, " +
			"as torch_empty_cache_steps does (default: never)",
		codec:  codec{parseEmptyCache, func(c *Case) string { return options.FormatNumber(c.EmptyCache) }},
		phrase: func(_ *Case, text string) string { return "empty_cache every " + text },
	},
	{
		Name: "first-step", JSON: "first_step", SetOnly: true, Group: GroupHow, BareValue: "true",
		Usage: "estimate only the first training step, which starts without optimizer state, as in scripts that " +
			"measure one step",
		codec: boolCodec(func(c *Case) *bool { return &c.FirstStep }), phrase: fixedText("first step"),
	},
	{
		Name: "beside", JSON: "beside_bytes", SetOnly: true, Group: GroupHow,
		Usage: "`size` of other data on the GPU in all steps, like 1.2GiB for a frozen network or averaged weights",
		codec: codec{parseBytes(func(c *Case) *int64 { return &c.OtherTrainingBytes }), func(c *Case) string {
			return options.FormatNumber(c.OtherTrainingBytes)
		}},
		phrase: func(c *Case, _ string) string { return bytesize.Format(c.OtherTrainingBytes) + " beside the model" },
	},
	{
		Name: "clip", JSON: "clip", Group: GroupHow,
		Usage: "clip gradients, and `how`: norm (clip_grad_norm_) or none (default: as the model's project does)",
		codec: stringCodec(parseClip, func(c *Case) *string { return &c.Clip }), phrase: addPrefix("clip "),
	},
	{
		Name: "routing", JSON: "routing", SetOnly: true, Group: GroupHow,
		Usage: "`share` of tokens for the experts on a rank, under expert parallelism (--strategy with ep=N): " +
			"balanced, skew=F (F times as many) or worst (all tokens of the rank's group) (default: balanced)",
		codec: stringCodec(parseRouting, func(c *Case) *string { return &c.Routing }), phrase: addPrefix("routing "),
	},
	{
		Name: "objective", JSON: "objective", Group: GroupWhat, Values: Objectives,
		Usage: "train with this objective instead of next-token prediction, by `name`: {values}; with options like " +
			"dpo:precomputed,as=llama-factory",
		codec: stringerCodec(ParseObjective, func(c *Case) *Objective { return &c.Objective }),
	},
	{
		Name: "train-only", JSON: "train_only", Group: GroupWhat,
		Usage: "train only the parameters whose names match a `regex`, " +
			"such as 'layers\\.(30|31)\\.|lm_head', and freeze the others",
		codec:  stringCodec(parseTrainOnly, func(c *Case) *string { return &c.TrainOnly }),
		phrase: func(_ *Case, text string) string { return "training " + text + " alone" },
	},
	{
		Name: "trained-weights", JSON: "trained_weights", SetOnly: true, Group: GroupHow,
		Usage: "with --train-only, `type` of the trained weights; frozen ones have the type of --weights: fp32",
		codec: textCodec(func(c *Case) *string { return &c.TrainedWeights }), phrase: addPrefix("trained weights in "),
	},
	{
		Name: "qat", JSON: "qat", SetOnly: true, Group: GroupHow, Values: QATKinds,
		Usage: "quantization-aware training with torchao, by `kind`: {values}; with options like int8-int4:group=32",
		codec: stringerCodec(ParseQAT, func(c *Case) *QAT { return &c.QAT }), phrase: addPrefix("qat "),
	},
	{
		Name: "float8", JSON: "float8", SetOnly: true, Group: GroupHow, Values: Float8Recipes,
		Usage: "compute linear layers except the output layer in float8 with torchao's convert_to_float8_training, " +
			"by `recipe`: {values}",
		codec: stringCodec(parseFloat8, func(c *Case) *string { return &c.Float8 }), phrase: addPrefix("float8 "),
	},
	{
		Name: "torch-compile", JSON: "torch_compile", Group: GroupHow, BareValue: "true",
		Usage: "estimate the step under torch.compile, from a recording of vprof capture --compile, or else from the " +
			"eager step with a wide interval",
		codec: boolCodec(func(c *Case) *bool { return &c.Compile }), phrase: fixedText("torch.compile"),
	},
	{
		Name: "tiled-mlp", JSON: "tiled_mlp", SetOnly: true, Group: GroupHow,
		Usage: "compute feed-forward layers in `n` tiles of tokens, one after the other, in forward and backward, as " +
			"axolotl's tiled_mlp does: a number, or auto for one tile per 32768 tokens",
		codec: stringerCodec(ParseTiles, func(c *Case) *Tiles { return &c.TiledMLP }), phrase: addPrefix("tiled mlp "),
	},
	{
		Name: "evaluate", JSON: "evaluate", Group: GroupHow,
		Usage: "evaluate between training steps, with `options`: batch=8 sets the batch size (default: the " +
			"training's); scores=4 keeps the logits of 4 batches on the GPU, as eval_accumulation_steps of " +
			"transformers' Trainer does (default: only losses are kept); new-tokens=128 generates tokens, without a " +
			"loss; none leaves evaluation out",
		codec: stringerCodec(ParseEvaluation,
			func(c *Case) *Evaluation { return &c.Evaluate }), phrase: addPrefix("evaluation "),
	},
	{
		Name: "dataset-on-gpu", JSON: "dataset_bytes", Label: "data set", Group: GroupWhat,
		Usage: "also count training data of this `size` that stays on the GPU, like 3.2GiB (default: none)",
		codec: codec{parseBytes(func(c *Case) *int64 { return &c.Dataset }), func(c *Case) string {
			return options.FormatNumber(c.Dataset)
		}},
		phrase: func(c *Case, _ string) string { return bytesize.Format(c.Dataset) + " of data on the GPU" },
	},
	{
		Name: "workers", JSON: "workers", SetOnly: true, Group: GroupWhere,
		Usage: "run `n` DataLoader processes for each GPU (num_workers), which use host memory (default: none)",
		codec: countCodec(checkRange("workers", 0, maxWorkers),
			func(c *Case) *int { return &c.Workers }), phrase: noText,
	},
	settingField("seq-len", "length of a sequence for text models, as `n` tokens", true),
	setOnlyField(settingField("image-size", "height and width of an image, as `n` pixels, for some models", false)),
	setOnlyField(settingField("audio-seconds", "length of an audio clip, as `n` seconds, for some models", false)),
	setOnlyField(settingField("max-length", "length of a text, as `n` tokens, for some models", false)),
	{
		Name: "chunked-loss", JSON: "settings", SetOnly: true, Group: GroupHow, codec: settingCodec("chunked-loss"),
		phrase: noText,
		Usage: "compute logits and loss of a language model in `n` chunks of tokens, one after the other, as " +
			"torchtune does (default: all at once)",
	},
	{
		Name: "linear-cross-entropy", JSON: "settings", SetOnly: true, Group: GroupHow,
		codec: settingCodec("linear-cross-entropy"), phrase: noText,
		Usage: "`n` is 1 to compute logits and loss of a language model in chunks of tokens with " +
			"torch.nn.functional.linear_cross_entropy (default: 0)",
	},
	{
		JSON:  "settings",
		codec: codec{text: func(c *Case) string { return strings.Join(c.Settings.Assignments(), ", ") }},
	},
	{
		Name: "gpus", JSON: "gpus", Label: "GPUs", Group: GroupWhere, IsMain: true,
		Usage: "train on `n` equal GPUs, one process (rank) on each; results are for one rank",
		codec: countCodec(checkRange("GPUs", 1, maxRanks), func(c *Case) *int { return &c.GPUs }), phrase: noText,
	},
	{
		Name: "strategy", JSON: "strategy", Group: GroupWhere, IsMain: true, Values: Strategies,
		Usage: "how the GPUs (ranks) share the work, by `name` and options like fsdp2:mp=bf16,replicate=2: {values} " +
			"(see vprof help strategies)",
		codec: optionalCodec(ParseStrategy, func(c *Case) **Strategy { return &c.Strategy }, (*Strategy).String),
		phrase: func(c *Case, text string) string {
			if c.GPUs == 1 {
				return "1 GPU with " + text
			}
			return fmt.Sprintf("%d GPUs with %s", c.GPUs, text)
		},
	},
	{
		Name: "torch", JSON: "torch", Group: GroupWhere, IsMain: true,
		Usage: "estimate training with this `release` of PyTorch, like 2.15",
		codec: stringCodec(ParseRelease, func(c *Case) *string { return &c.Torch }), phrase: addPrefix("PyTorch "),
		absentText: "PyTorch " + unnamedRelease,
	},
	{
		Name: "stack", JSON: "stack", Label: "libraries", Group: GroupWhere, IsMain: true,
		Usage: "estimate training with these `releases` of libraries, like transformers=5.12,trl=1.16, or the " +
			"releases in uv.lock, requirements.txt, pixi.lock, environment.yml, pyproject.toml or a Python " +
			"interpreter (a path)",
		codec: valueCodec(stack.ParseLibraries, func(c *Case) *stack.Libraries { return &c.Stack },
			stack.Libraries.String),
		phrase: func(c *Case, _ string) string { return c.Stack.Text() },
	},
	{
		Name: "alloc-conf", JSON: "alloc_conf", Label: "allocator", Group: GroupWhere,
		Usage: "`settings` of PyTorch's allocator, as in PYTORCH_CUDA_ALLOC_CONF, like expandable_segments:True",
		codec: textCodec(func(c *Case) *string { return &c.AllocConf }),
	},
	{
		Name: "tf32", JSON: "tf32", SetOnly: true, Group: GroupHow, Values: TF32Modes,
		Usage: "fp32 operators that use TF32 on Ampere and newer GPUs, by `name`: {values}; all is " +
			"torch.set_float32_matmul_precision of high or medium; changes times only (default: convolutions)",
		codec: keywordCodec("choice of TF32", TF32Modes,
			func(c *Case) *string { return &c.TF32 }), phrase: addPrefix("TF32 "),
	},
	{
		Name: "cublas-workspace", JSON: "cublas_workspace", SetOnly: true, Label: "workspace of cuBLAS",
		Group: GroupWhere,
		Usage: "`sizes` of cuBLAS's workspaces, as in CUBLAS_WORKSPACE_CONFIG, like :4096:8, which deterministic " +
			"training and MONAI set",
		codec:  stringCodec(parseCublasWorkspace, func(c *Case) *string { return &c.CublasWorkspace }),
		phrase: addPrefix("CUBLAS_WORKSPACE_CONFIG="),
	},
}

// settingField returns the field of a setting of several models. A line about a case lists all settings together.
func settingField(name, usage string, main bool) Field {
	return Field{
		Name: name, JSON: "settings", Group: GroupWhat, IsMain: main, Usage: usage + " (default: the model's)",
		codec: settingCodec(name), phrase: noText,
	}
}

// setOnlyField makes a field one that --set sets instead of a flag.
func setOnlyField(f Field) Field {
	f.SetOnly = true
	return f
}

// parseLoss parses a loss and the model output that it is computed from (optional): "mse:logits".
func parseLoss(text string) (func(*Case), error) {
	loss, output, more := strings.Cut(text, ":")
	return func(c *Case) {
		if c.Loss = loss; more {
			c.Output = output
		}
	}, nil
}

// parseCheckpointing parses a bool or a kind of checkpointing.
func parseCheckpointing(text string) (func(*Case), error) {
	if word, ok := map[string]string{"on": "true", "off": "false", "none": "false"}[text]; ok {
		text = word
	}
	if on, err := strconv.ParseBool(text); err == nil {
		return func(c *Case) { c.Checkpointing, c.Recompute = on, "" }, nil
	}
	how, err := ParseRecompute(text)
	if err != nil {
		return nil, fmt.Errorf("%w, or use true or false", err)
	}
	return func(c *Case) { c.Checkpointing, c.Recompute = true, how }, nil
}

func checkpointingText(c *Case) string {
	if c.Recompute != "" {
		return string(c.Recompute)
	}
	return strconv.FormatBool(c.Checkpointing)
}

func parseEmptyCache(text string) (func(*Case), error) {
	n, err := parseCount(strings.TrimPrefix(text, everyPrefix))
	if err == nil && n < 0 {
		err = fmt.Errorf("%d steps: need 0 (never) or more", n)
	}
	return func(c *Case) { c.EmptyCache = n }, err
}

// maxWorkers limits DataLoader workers to more than any machine has threads.
const maxWorkers = 1024

// checkRange returns a check that a number is between least and most.
func checkRange(what string, least, most int) func(int) error {
	return func(n int) error {
		if n < least || n > most {
			return fmt.Errorf("invalid number of %[2]s %[1]d: need %[3]d to %[4]d", n, what, least, most)
		}
		return nil
	}
}

func parseCount(text string) (int, error) {
	n, err := options.ParseInteger(text, 1000)
	return int(n), err
}

// parseOptimizer parses the name of an optimizer, in any case, and its options.
func parseOptimizer(text string) (string, error) {
	name, options, more := strings.Cut(text, ":")
	if name == "" {
		return "", nil
	}
	name, err := parseKeyword("optimizer", name, Optimizers())
	if err != nil {
		near := nearest.Hint(text, Optimizers(), 2)
		return "", fmt.Errorf("there is no optimizer %q%s; all: %s", text, near, strings.Join(Optimizers(), ", "))
	}
	if more {
		name += ":" + options
	}
	_, err = optim.Named(name)
	return name, err
}

func parseClip(text string) (string, error) {
	if text != ClipNorm && text != ClipNone {
		return "", fmt.Errorf("invalid clipping %q: need norm or none", text)
	}
	return text, nil
}

func parseTrainOnly(text string) (string, error) {
	if _, err := regexp.Compile(text); err != nil {
		return "", fmt.Errorf("%q is not a regular expression that Go can read (RE2 syntax, without look-ahead)", text)
	}
	return text, nil
}

func parseFloat8(text string) (string, error) {
	recipe, err := parseKeyword("recipe", text, Float8Recipes())
	if err != nil {
		return "", fmt.Errorf("there is no float8 recipe %q; use one of %s", text, strings.Join(Float8Recipes(), ", "))
	}
	return recipe, nil
}

// parseBytes returns a parser of a size in bytes that sets the field of returns.
func parseBytes(of func(*Case) *int64) func(text string) (func(*Case), error) {
	return func(text string) (func(*Case), error) {
		n, err := bytesize.Parse(text)
		if err == nil && (n < 0 || n > maxHeldBytes) {
			err = fmt.Errorf("%d bytes are more than the memory of any GPU", n)
		}
		if err == nil && 0 < n && n < 1<<16 { // too small for a data set: the unit is missing
			err = fmt.Errorf("%q is only %d bytes; write the unit, like 3.2GiB", text, n)
		}
		return func(c *Case) { *of(c) = n }, err
	}
}

func listTexts[T fmt.Stringer](values []T) func() []string {
	return func() []string { return lists.Map(values, func(v T) string { return v.String() }) }
}
