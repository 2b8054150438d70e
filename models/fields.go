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
		Usage: "what an hf: model is trained for: `task` is {values} (default: from its configuration)",
		codec: textCodec(func(c *Case) *string { return &c.Task }),
	},
	{
		Name: "stage", JSON: "stage", Group: GroupWhat,
		Usage: "freeze `stage` (default: the model's)",
		codec: textCodec(func(c *Case) *string { return &c.Stage }), phrase: func(c *Case, stage string) string {
			return phrase.If(c.LoRA == nil, "stage %s", stage) // with adapters no stage is trained
		},
	},
	{
		Name: "amp", JSON: "amp", Label: "precision", Group: GroupHow, IsMain: true,
		Values: listTexts(AutocastPrecisions()),
		Usage:  "autocast `precision`: {values} (default: the model's)",
		codec:  stringerCodec(ParseAutocast, func(c *Case) *Autocast { return &c.AMP }),
		phrase: func(c *Case, _ string) string { return c.Precision() },
	},
	{
		Name: "weights", JSON: "weights", Group: GroupHow, Values: listTexts(WeightTypes()),
		Usage: "`type` of the weights: {values} (default: the model's; for an hf: model, its configuration's dtype)",
		codec: stringerCodec(ParseWeightType, func(c *Case) *WeightType { return &c.Weights }), phrase: noText,
	},
	{
		Name: "loss", JSON: "loss", Group: GroupWhat,
		Usage: "`loss` of a .pt2 model: {values} (default: output if the model returns a loss, else cross-entropy)",
		codec: codec{parseLoss, func(c *Case) string { return c.Loss }}, phrase: addPrefix("loss "),
	},
	{
		Name: "output", JSON: "output", SetOnly: true, Group: GroupWhat,
		Usage: "`name` or number of the output of a .pt2 model that the loss is of, also as --loss LOSS:NAME " +
			"(default: the first)",
		codec: textCodec(func(c *Case) *string { return &c.Output }), phrase: addPrefix("of output "),
	},
	{
		Name: "freeze", JSON: "freeze", SetOnly: true, Group: GroupWhat,
		Usage: "parameters of a .pt2 model that are not trained, by `patterns` of their names like 'stem.*,blocks.0.*'",
		codec: textCodec(func(c *Case) *string { return &c.Freeze }), phrase: addPrefix("frozen "),
	},
	{
		Name: "checkpoint", JSON: "blocks", SetOnly: true, Group: GroupHow,
		Usage: "modules of a .pt2 model that are recomputed, by `patterns` of their paths like 'layers.*' " +
			"(implies --checkpointing; default: the longest list of equal modules)",
		codec: codec{func(text string) (func(*Case), error) {
			return func(c *Case) { c.Blocks, c.Checkpointing = text, c.Checkpointing || text != "" }, nil
		}, func(c *Case) string { return c.Blocks }}, phrase: noText,
	},
	{
		Name: "checkpointing", JSON: "checkpointing", Group: GroupHow, IsMain: true, BareValue: "true",
		Usage: "recompute activations in backward, and `how`: true, false, non-reentrant, reentrant, " +
			"reentrant-trained (only layers with trained parameters), every=2 (every second layer), " +
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
		Usage: "micro-batches `n` of one optimizer step (default: the model's)",
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
		Usage: "`name` of the optimizer (default: the model's): {values}; " +
			"optimizers that project gradients take options like galore-adamw:rank=64,target=attn+mlp",
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
		Usage: "train low-rank adapters instead of the model: `options` like r=8,alpha=16,target=all-linear, " +
			"or target=q_proj,v_proj; dora=true; towers=false leaves out encoders of images and sounds; " +
			"parameters=experts.gate_up_proj,experts.down_proj adapts experts, too; " +
			"save=embed_tokens,lm_head trains these modules in full; match=REGEX, last, matches whole paths; " +
			"method=NAME, first, is another method of peft, with options of its configuration, like " +
			"method=oft,oft_block_size=32,target=q_proj,v_proj",
		codec: optionalCodec(ParseLoRA, func(c *Case) **LoRA { return &c.LoRA },
			(*LoRA).String), phrase: addPrefix("LoRA "),
	},
	{
		Name: "quantize", JSON: "quantize", Group: GroupWhat, IsMain: true, Values: Quantizations,
		Usage: "store the frozen layers below adapters (--lora) in bitsandbytes' `type`: {values}",
		codec: keywordCodec("quantization", Quantizations, func(c *Case) *string { return &c.Quantize }),
	},
	{
		Name: "liger", JSON: "liger", Group: GroupHow, BareValue: "true",
		Usage: "compute norms, rotary positions, feed-forward layers and the loss with liger-kernel",
		codec: boolCodec(func(c *Case) *bool { return &c.Liger }), phrase: fixedText("liger"),
	},
	{
		JSON: "recompute", phrase: addPrefix("recompute "),
		codec: codec{text: func(c *Case) string { return string(c.Recompute) }},
	},
	{
		Name: "offload", JSON: "offload", SetOnly: true, Group: GroupHow, BareValue: "true",
		Usage: "keep what backward needs in the host's memory (save_on_cpu)",
		codec: boolCodec(func(c *Case) *bool { return &c.Offload }), phrase: fixedText("activations on the host"),
	},
	{
		Name: "optimizer-in-backward", JSON: "optimizer_in_backward", Group: GroupHow, BareValue: "true",
		Usage: "update each parameter in backward, as soon as its gradient is computed, and free the gradient",
		codec: boolCodec(func(c *Case) *bool { return &c.InBackward }), phrase: fixedText("optimizer in backward"),
	},
	{
		Name: "loop", JSON: "loop", Group: GroupHow, IsMain: true, Values: LoopNames,
		Usage: "which outputs of the model the training `loop` keeps alive, beside the loss: {values}; trainer " +
			"keeps none, function keeps them until the step ends, plain until the next forward pass has returned " +
			"(default: trainer; for a .pt2 model, function)",
		codec: keywordCodec("loop", LoopNames, func(c *Case) *Loop { return &c.Loop }), phrase: addPrefix("loop "),
	},
	{
		Name: "zero-grad", JSON: "zero_grad", SetOnly: true, Group: GroupHow, Values: ZeroGradModes,
		Usage: "`when` gradients are zeroed: {values}; after the optimizer's step, before forward, " +
			"between forward and backward as Lightning does, or kept and filled with zeros (default: after)",
		codec: keywordCodec("way to zero gradients", ZeroGradModes, func(c *Case) *ZeroGrad {
			return &c.ZeroGrad
		}), phrase: addPrefix("zero_grad "),
	},
	{
		Name: "use-cache", JSON: "use_cache", SetOnly: true, Group: GroupHow, Values: cacheValues,
		Usage: "keys and values of all layers are a part of the output (use_cache): {values} " +
			"(default: true with --loop function or plain without checkpointing, as transformers has it, else false)",
		codec: keywordCodec("choice of the cache", cacheValues, func(c *Case) *string {
			return &c.UseCache
		}), phrase: addPrefix("use_cache "),
	},
	{
		Name: "empty-cache", JSON: "empty_cache", SetOnly: true, Group: GroupHow, BareValue: "1",
		Usage: "call torch.cuda.empty_cache() every `n` steps: after the step, in the loop trainer before backward, " +
			"as torch_empty_cache_steps has it (default: never)",
		codec:  codec{parseEmptyCache, func(c *Case) string { return options.FormatNumber(c.EmptyCache) }},
		phrase: func(_ *Case, text string) string { return "empty_cache every " + text },
	},
	{
		Name: "first-step", JSON: "first_step", SetOnly: true, Group: GroupHow, BareValue: "true",
		Usage: "count the first training step alone, which runs without the optimizer's state, as scripts do that " +
			"measure one step",
		codec: boolCodec(func(c *Case) *bool { return &c.FirstStep }), phrase: fixedText("first step"),
	},
	{
		Name: "beside", JSON: "beside_bytes", SetOnly: true, Group: GroupHow,
		Usage: "`size` of what stays on the GPU beside the model, such as a frozen network or an average of the " +
			"weights (1.2GiB; 2 or 4 bytes a parameter)",
		codec: codec{parseBytes(func(c *Case) *int64 { return &c.OtherTrainingBytes }), func(c *Case) string {
			return options.FormatNumber(c.OtherTrainingBytes)
		}},
		phrase: func(c *Case, _ string) string { return bytesize.Format(c.OtherTrainingBytes) + " beside the model" },
	},
	{
		Name: "clip", JSON: "clip", Group: GroupHow,
		Usage: "clip gradients by their `norm` before the optimizer's step: norm, none (default: as the model's " +
			"project does)",
		codec: stringCodec(parseClip, func(c *Case) *string { return &c.Clip }), phrase: addPrefix("clip "),
	},
	{
		Name: "routing", JSON: "routing", SetOnly: true, Group: GroupHow,
		Usage: "how the routers of a mixture choose experts that ranks share out (--strategy with ep=N): `way` is " +
			"balanced, skew=F for F times as many tokens on the rank, or worst for all tokens of its group (default: " +
			"balanced)",
		codec: stringCodec(parseRouting, func(c *Case) *string { return &c.Routing }), phrase: addPrefix("routing "),
	},
	{
		Name: "objective", JSON: "objective", Group: GroupWhat, Values: Objectives,
		Usage: "train by preferences or rewards instead of next-token prediction, by `name`: {values}; " +
			"options like dpo:precomputed,as=llama-factory",
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
		Usage: "with --train-only, hold what is trained in this `type` and what is frozen in that of --weights: fp32",
		codec: textCodec(func(c *Case) *string { return &c.TrainedWeights }), phrase: addPrefix("trained weights in "),
	},
	{
		Name: "qat", JSON: "qat", SetOnly: true, Group: GroupHow, Values: QATKinds,
		Usage: "round weights and inputs of linear layers as torchao's training for quantization does, " +
			"by `kind`: {values}; options like int8-int4:group=32",
		codec: stringerCodec(ParseQAT, func(c *Case) *QAT { return &c.QAT }), phrase: addPrefix("qat "),
	},
	{
		Name: "float8", JSON: "float8", SetOnly: true, Group: GroupHow, Values: Float8Recipes,
		Usage: "linear layers but the output layer multiply in 8-bit floats " +
			"as torchao's convert_to_float8_training has it, by `recipe`: {values}",
		codec: stringCodec(parseFloat8, func(c *Case) *string { return &c.Float8 }), phrase: addPrefix("float8 "),
	},
	{
		Name: "torch-compile", JSON: "torch_compile", Group: GroupHow, BareValue: "true",
		Usage: "estimate the step under torch.compile: as vprof capture --compile has recorded it, " +
			"or else from the eager step, with a wide interval",
		codec: boolCodec(func(c *Case) *bool { return &c.Compile }), phrase: fixedText("torch.compile"),
	},
	{
		Name: "tiled-mlp", JSON: "tiled_mlp", SetOnly: true, Group: GroupHow,
		Usage: "have feed-forward layers see the tokens in `n` tiles, one after the other, and again in backward, " +
			"as axolotl's tiled_mlp does: a number, or auto for one for every 32768 tokens",
		codec: stringerCodec(ParseTiles, func(c *Case) *Tiles { return &c.TiledMLP }), phrase: addPrefix("tiled mlp "),
	},
	{
		Name: "evaluate", JSON: "evaluate", Group: GroupHow,
		Usage: "evaluation between training steps, by `options`: batch=8 sets its batch size (default: the " +
			"training's); scores=4 keeps the scores of 4 batches on the GPU, as transformers' Trainer does " +
			"for metrics (eval_accumulation_steps; default: only losses are kept); new-tokens=128 generates tokens, " +
			"without a loss; none leaves evaluation out",
		codec: stringerCodec(ParseEvaluation,
			func(c *Case) *Evaluation { return &c.Evaluate }), phrase: addPrefix("evaluation "),
	},
	{
		Name: "dataset-on-gpu", JSON: "dataset_bytes", Label: "data set", Group: GroupWhat,
		Usage: "also count training data that lies on the GPU for the whole run, as `size` like 3.2GiB " +
			"(default: it comes from the host)",
		codec: codec{parseBytes(func(c *Case) *int64 { return &c.Dataset }), func(c *Case) string {
			return options.FormatNumber(c.Dataset)
		}},
		phrase: func(c *Case, _ string) string { return bytesize.Format(c.Dataset) + " of data on the GPU" },
	},
	{
		Name: "workers", JSON: "workers", SetOnly: true, Group: GroupWhere,
		Usage: "processes `n` of the DataLoader for each GPU (num_workers), which take memory of the host " +
			"(default: none)",
		codec: countCodec(checkRange("workers", 0, maxWorkers),
			func(c *Case) *int { return &c.Workers }), phrase: noText,
	},
	settingField("seq-len", "number `n` of tokens in a sequence, for models of text", true),
	setOnlyField(settingField("image-size", "height and width `n` of an image in pixels, where the model has any",
		false)),
	setOnlyField(settingField("audio-seconds", "seconds `n` of a clip, where the model has any", false)),
	setOnlyField(settingField("max-length", "tokens `n` of a text, where the model has any", false)),
	{
		Name: "chunked-loss", JSON: "settings", SetOnly: true, Group: GroupHow, codec: settingCodec("chunked-loss"),
		phrase: noText,
		Usage: "chunks `n` of tokens that scores and loss of a language model are computed in, " +
			"one after the other, as torchtune does (default: all at once)",
	},
	{
		Name: "linear-cross-entropy", JSON: "settings", SetOnly: true, Group: GroupHow,
		codec: settingCodec("linear-cross-entropy"), phrase: noText,
		Usage: "1 to compute scores and loss of a language model by torch.nn.functional.linear_cross_entropy, " +
			"in chunks of tokens (`n` is 0 or 1)",
	},
	{
		JSON:  "settings",
		codec: codec{text: func(c *Case) string { return strings.Join(c.Settings.Assignments(), ", ") }},
	},
	{
		Name: "gpus", JSON: "gpus", Label: "GPUs", Group: GroupWhere, IsMain: true,
		Usage: "train on `n` equal GPUs, one rank on each; values are for one rank",
		codec: countCodec(checkRange("GPUs", 1, maxRanks), func(c *Case) *int { return &c.GPUs }), phrase: noText,
	},
	{
		Name: "strategy", JSON: "strategy", Group: GroupWhere, IsMain: true, Values: Strategies,
		Usage: "how the ranks share the work, by `name` and options like fsdp2:mp=bf16,replicate=2: {values} " +
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
		Usage: "estimate training with these `releases` of libraries, like transformers=5.12,trl=1.16, or of a file: " +
			"uv.lock, requirements.txt, pixi.lock, environment.yml, pyproject.toml, or a Python",
		codec: valueCodec(stack.ParseLibraries, func(c *Case) *stack.Libraries { return &c.Stack },
			stack.Libraries.String),
		phrase: func(c *Case, _ string) string { return c.Stack.Text() },
	},
	{
		Name: "alloc-conf", JSON: "alloc_conf", Label: "allocator", Group: GroupWhere,
		Usage: "allocator `settings`, as in PYTORCH_CUDA_ALLOC_CONF",
		codec: textCodec(func(c *Case) *string { return &c.AllocConf }),
	},
	{
		Name: "tf32", JSON: "tf32", SetOnly: true, Group: GroupHow, Values: TF32Modes,
		Usage: "fp32 operators that compute in TF32 from Ampere on (torch.backends), by `name`: {values}; all is " +
			"set_float32_matmul_precision of high or medium. It changes times and not the workspaces",
		codec: keywordCodec("choice of TF32", TF32Modes,
			func(c *Case) *string { return &c.TF32 }), phrase: addPrefix("TF32 "),
	},
	{
		Name: "cublas-workspace", JSON: "cublas_workspace", SetOnly: true, Label: "workspace of cuBLAS",
		Group: GroupWhere,
		Usage: "workspace of matrix products, as in CUBLAS_WORKSPACE_CONFIG: `sizes` like :4096:8, which " +
			"deterministic training and MONAI set",
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
		return nil, fmt.Errorf("%w, or true and false", err)
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
		err = fmt.Errorf("invalid number of steps %d: need 0 or more", n)
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
		return "", fmt.Errorf("invalid %q: need norm or none", text)
	}
	return text, nil
}

func parseTrainOnly(text string) (string, error) {
	if _, err := regexp.Compile(text); err != nil {
		return "", fmt.Errorf("%q is not a regular expression of Go (RE2, without look-ahead)", text)
	}
	return text, nil
}

func parseFloat8(text string) (string, error) {
	recipe, err := parseKeyword("recipe", text, Float8Recipes())
	if err != nil {
		return "", fmt.Errorf("unknown recipe %q; use %s", text, strings.Join(Float8Recipes(), ", "))
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
			err = fmt.Errorf("%q is only %d bytes; write a unit, as in 3.2GiB", text, n)
		}
		return func(c *Case) { *of(c) = n }, err
	}
}

func listTexts[T fmt.Stringer](values []T) func() []string {
	return func() []string {
		return lists.Map(values, func(v T) string { return v.String() })
	}
}
