package trainers

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
)

// caseFlagFacts are the facts that set the flag of the same name, in the order of a command line.
var caseFlagFacts = []string{
	"task", "batch", "accumulate", "seq-len", "weights", "amp", "checkpointing", "optimizer", "lora", "quantize",
	"objective", "train-only", "trained-weights", "qat", "float8", "liger", "chunked-loss",
	"torch-compile",
	"offload", "tiled-mlp", "optimizer-in-backward", "loop", "empty-cache", "clip", "evaluate",
	"gpus", "strategy",
	"alloc-conf", cublasWorkspace, "gpu-memory", "workers",
}

// The model settings (--set) that a configuration may request: how attention is computed, and how weights are laid out.
// flashAttention is for models whose attention is eager by default, eager for the others, flex for models that support
// flex_attention. linearized stores experts as lists of linear layers. repeated repeats keys and values for all heads
// that share them. tuneModules has torchtune's norms, projections and rotary tables. flat puts all sequences of a batch
// in one row. loaded moves the model to the device in from_pretrained.
const (
	flashAttention = "flash"
	eagerAttention = "eager"
	flexAttention  = "flex"
	linearized     = "linearized-experts"
	repeated       = "repeated-heads"
	tuneModules    = "torchtune-modules"
	flat           = "flat"
	loaded         = models.DeviceMapSetting
)

// IsProjectSetting reports whether only some models have a setting. It is left out for models that lack it.
func IsProjectSetting(setting string) bool {
	return slices.Contains([]string{flashAttention, flat, linearized, loaded, repeated, tuneModules}, setting)
}

// settingFacts are the facts that set a model setting (--set), with the setting's name.
var settingFacts = []struct{ fact, setting string }{
	{"packed", "packed"},
	{flat, "flat"},
	{"padding", "padding"},
	{"num-labels", "classes"},
	{"head-dropout", "head-dropout"},
	{"fused-loss", "fused-loss"},
	{"kept-scores", "kept-scores"},
	{repeated, repeated},
	{tuneModules, tuneModules},
	{"plain-loss", "plain-loss"},
	{"fp32-embeddings", "fp32-embeddings"},
	{"trl-loss", "trl-loss"},
	{loaded, loaded},
	{linearized, linearized},
}

// imagePixels is the fact of an image's largest number of pixels, ImageSize the flag of a square's side length.
const (
	imagePixels = "image-pixels"
	ImageSize   = "image-size"
)

// loraTarget is the fact of the layers with adapters: names, or a regular expression with one of these characters.
const (
	loraTarget = "lora-target"
	expression = `\*()[]|^$`
)

// composeSettings converts all facts into settings of vprof.
func (c *Config) composeSettings() error {
	if m, ok := c.facts["model"]; ok {
		if strings.Contains(m.value, "$") {
			return m.fault("%s is a variable, whose value stands in no file; write the value", m.value)
		}
		c.Model = Model{
			Name: m.value, Revision: c.facts["revision"].value,
			Folder: c.facts["folder"].value, from: m.from,
		}
	}
	if f := c.facts["gpus"]; strings.HasPrefix(f.value, "$") { // a command or a variable that counts the GPUs
		delete(c.facts, "gpus")
		c.unknownCount = f
	}
	c.Teacher = Model{Name: c.facts["teacher"].value, from: c.facts["teacher"].from}
	for _, complete := range []func() error{
		c.addAdapters, c.addEvaluation, c.unfreeze, c.checkFreeze, c.addGeneration, c.addPreferences, c.addRounding,
		c.setMesh, c.setAccumulation, c.addSharding, c.addDeepSpeed, c.divideGlobalBatch, c.addPipeline,
		c.addProjection,
	} {
		if err := complete(); err != nil {
			return err
		}
	}
	return c.resolveDefaults()
}

// resolveDefaults converts facts that need no other fact into settings.
func (c *Config) resolveDefaults() error {
	for _, name := range caseFlagFacts {
		f, ok := c.facts[name]
		if !ok {
			continue
		}
		if how := c.Recompute(); name == "checkpointing" && f.value == "true" && how != "" {
			f.value = string(how)
		}
		if err := c.add(name, f.value, f.from); err != nil {
			return err
		}
	}
	for _, s := range settingFacts {
		if f, ok := c.facts[s.fact]; ok {
			if err := c.add("set", s.setting+"="+f.value, f.from); err != nil {
				return err
			}
		}
	}
	f := c.facts[imagePixels]
	if n, err := strconv.ParseFloat(f.value, 64); err == nil && n >= 1 {
		if err := c.add(ImageSize, strconv.FormatInt(int64(math.Sqrt(n)), 10), f.from); err != nil {
			return err
		}
	}
	if f = c.facts["attention"]; slices.Contains([]string{flashAttention, eagerAttention, flexAttention}, f.value) {
		return c.add("set", f.value+"=1", f.from)
	}
	return nil
}

// Recompute returns the kind of activation checkpointing that the configuration selects, on or off. Empty is the
// default: non-reentrant, in every layer.
func (c *Config) Recompute() models.Recompute {
	if kept := c.facts["kept"].value; kept != "" {
		return models.Recompute("selective=" + kept)
	}
	switch c.facts["reentrant"].value {
	case "true":
		return models.Reentrant
	case "trained":
		return models.ReentrantTrained
	}
	if n := c.facts["every"].value; n != "" && n != "0" && n != "1" {
		return models.Recompute("every=" + n)
	}
	return ""
}

// Batching returns how samples of different lengths are batched: "padded", "grouped" or "packed".
func (c *Config) Batching() string {
	switch {
	case c.facts["packing"].value == "true":
		return "packed"
	case c.facts["grouped"].value == "true":
		return "grouped"
	}
	return "padded"
}

// PadToMultiple returns the number of tokens to whose multiples batches are padded: the full length (seq-len) if every
// batch is padded to it, 1 if batches are padded only to their longest sample.
func (c *Config) PadToMultiple() string {
	if c.facts["to-length"].value == "true" {
		return cmp.Or(c.facts["seq-len"].value, "1")
	}
	return cmp.Or(c.facts["multiple"].value, "1")
}

// addSharding adds the options of fully_shard, or of FullyShardedDataParallel, to the strategy: whether gathered
// weights are freed after forward, and the number of replicas.
func (c *Config) addSharding() error {
	s, ok := c.facts["strategy"]
	if !ok || !strings.HasPrefix(s.value, "fsdp") {
		return nil
	}
	name, options, _ := strings.Cut(s.value, ":")
	list := phrase.List(strings.FieldsFunc(options, func(r rune) bool { return r == ',' }))
	flat := name == "fsdp" && c.facts["fsdp-version"].value != "2"
	more := slices.ContainsFunc([]string{meshTensor, meshContext, meshExperts, "shards"}, func(m string) bool {
		return c.facts[m].value != ""
	})
	c.Notes.If(flat && more, "%v: FSDP of flat parameters on the host, or with other ways to share, is planned as "+
		"fully_shard (FSDP2), which shards each by itself", s.from)
	if name = models.FSDP2; flat && !more {
		name = models.FSDP1
		list = append(list, "prefetch="+cmp.Or(c.facts["prefetch"].value, "none"))
	}
	if mixed := c.facts["mixed"].value; mixed != "" && options == "" { // accelerate's policy, with weights in fp32
		list = append(list, "mp="+mixed, "reduce="+mixed)
		if tuner := c.facts["tuner"].value; tuner == "full" || tuner == "" {
			c.facts.set("weights", "fp32", s.from)
		}
	}
	list.AddTexts(c.shardOptions(flat)...)
	if v := c.facts[meshTensor]; v.value != "" {
		name = "tp"
		whole := c.facts.options("sequence", "tensor-sequence", "loss", "tensor-loss")
		if by := c.facts[meshTensorBy].value; by != "" {
			whole = []string{meshTensorBy + "=" + by}
		}
		list = slices.Concat([]string{"tp=" + v.value}, whole, list)
		if len(whole) == 0 { // clip_grad_norm_ then raises
			c.facts.set("clip", "none", v.from)
		}
	}
	for _, o := range []string{"reshard", meshCopies} {
		v := c.facts[o].value
		list.If(v != "" && v != "1", "%s=%s", o, v)
	}
	c.facts.set("strategy", name+phrase.Prefix(":", strings.Join(list, ",")), s.from)
	return nil
}

// shardOptions returns the options of fully_shard for the device of shards, the loading of weights, and the wrapped
// modules. flat reports whether the trainer uses FullyShardedDataParallel, whose loading and wrapping differ.
func (c *Config) shardOptions(flat bool) (list phrase.List) {
	loading, ends := c.facts["loading"].value, c.facts["wrap"].value == models.WrapEnds && !flat
	list.If(c.facts["shards"].value == "host", "offload=all")
	list.If(loading == "each", "init=host")
	list.If(loading == "rank0" && !flat && c.facts["quantize"].value == "", "init=rank0")
	list.If(ends, "wrap=%s", models.WrapEnds)
	list.If(ends && c.facts["reshard"].value == "", "reshard=auto")
	return list
}

// unfrozenRange matches the range of rows after an axolotl pattern. Axolotl sets the gradients of other rows to zero.
var unfrozenRange = regexp.MustCompile(`\[\d*:?\d*\]$`)

// unfreeze converts axolotl's patterns of trained parameters to a regular expression. A dot that is not before a plus
// is literal, and a parameter's name must begin with the pattern.
func (c *Config) unfreeze() error {
	f, ok := c.facts["unfrozen"]
	if !ok || f.value == "" {
		return nil
	}
	var list []string
	for p := range strings.SplitSeq(f.value, ",") {
		p = strings.ReplaceAll(unfrozenRange.ReplaceAllString(p, ""), ".", `\.`)
		list = append(list, "^(?:"+strings.ReplaceAll(p, `\.+`, ".+")+")")
	}
	all := strings.Join(list, "|")
	if _, err := regexp.Compile(all); err != nil {
		return f.fault("has a regular expression that vprof cannot read; name the parameters with --train-only")
	}
	c.facts.set("train-only", all, f.from)
	return nil
}

// addEvaluation converts the facts about evaluation to --evaluate.
func (c *Config) addEvaluation() error {
	on, batch := c.facts["evaluates"], c.facts["eval-batch"]
	if on.value != "true" {
		return nil
	}
	options := c.facts.options("batch", "eval-batch", "scores", "eval-scores", "new-tokens", "new-tokens")
	c.facts.set("evaluate", cmp.Or(strings.Join(options, ","), "batch=training"), cmp.Or(batch.from, on.from))
	return nil
}

// addRounding appends the group size of quantization-aware training to the value of its flag.
func (c *Config) addRounding() error {
	if q, g := c.facts["qat"], c.facts["qat-group"]; q.value != "" && g.value != "" {
		c.facts.appendOptions("qat", "group="+g.value)
	}
	return nil
}

// addPreferences appends options to the objective: whether the reference model's log-probabilities are precomputed, and
// which library's code computes log-probabilities.
func (c *Config) addPreferences() error {
	o, ok := c.facts["objective"]
	if !ok {
		return nil
	}
	var list phrase.List
	list.If(c.facts["reference"].value == "precomputed" && (o.value == "dpo" || o.value == "kto"), "precomputed")
	list.If(c.facts["pairs-packed"].value == "true", "packed")
	c.facts.appendOptions("objective", append(list, c.facts.options("as", "objective-as")...)...)
	return nil
}

// zeroSizes are the options of the DeepSpeed ZeRO strategies that are numbers of elements, named like their facts.
var zeroSizes = []string{"bucket", "prefetch", "persist", "reuse", "live", "part"}

// addDeepSpeed adds DeepSpeed's options to the strategy. Its engine trains in the type of the weights, with fp32 master
// weights, instead of autocast.
func (c *Config) addDeepSpeed() error {
	s, ok := c.facts["strategy"]
	if !ok || !strings.HasPrefix(s.value, "zero") {
		return nil
	}
	if amp := c.facts["amp"]; amp.value != "" && amp.value != "none" {
		c.facts.set("weights", amp.value, amp.from)
		c.facts.set("amp", "none", s.from)
	}
	var list phrase.List
	three := s.value == "zero3"
	list.If(s.value == "zero1", "engine=deepspeed")
	for _, name := range zeroSizes {
		f := c.facts["zero-"+name]
		if f.value == "" || !three && name != "bucket" {
			continue
		}
		size, err := parseElementCount(f.value)
		if err != nil {
			return f.fault("%v", err)
		}
		list.Add("%s=%s", name, size)
	}
	on := c.facts["zero-overlap"].value
	list.If(on == strconv.FormatBool(!three), "overlap=%s", on) // which stage 3 has by itself
	if f := c.facts["zero-gradients"]; f.value == "fp32" && s.value != "zero2" {
		return f.fault(
			"vprof records gradients of stages 1 and 3 that are added up in the type of the weights; leave it out")
	}
	scattered := c.facts["zero-contiguous"]
	if scattered.value == "false" && !three {
		return scattered.fault("vprof records gradients of stages 1 and 2 that are copied to a bucket; take true")
	}
	list.If(scattered.value == "false", "contiguous=false")
	list.If(c.facts["zero-linear"].value == "false" && three, "linear=torch")
	optimizer, params := c.facts["zero-optimizer"].value == "host", c.facts["zero-params"].value == "host" && three
	list.If(optimizer && params, "offload=all")
	list.If(optimizer && !params, "offload=optimizer")
	list.If(params && !optimizer, "offload=params")
	c.facts.appendOptions("strategy", list...)
	return nil
}

// parseElementCount converts a number in DeepSpeed's JSON ("5e8") to digits; "auto" stays. Zero becomes one.
func parseElementCount(text string) (string, error) {
	if text == "auto" {
		return text, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || n > 1e15 {
		return "", fmt.Errorf("invalid number of elements %q: need a number from 0 to 1e15, or auto", text)
	}
	return strconv.FormatInt(max(1, int64(n)), 10), nil
}

// addAdapters converts the facts about adapters to --lora.
func (c *Config) addAdapters() error {
	if c.facts["tuner"].value != "lora" {
		return nil
	}
	rank := cmp.Or(c.facts["lora-r"].value, "8")
	options := phrase.List{"r=" + rank}
	if n, err := strconv.Atoi(rank); err == nil && c.facts["lora-alpha"].value == "" {
		options.If(c.facts["lora-twice"].value != "", "alpha=%d", 2*n)
	}
	options = append(options, c.facts.options("alpha", "lora-alpha", "dropout", "lora-dropout", "dtype", "lora-type",
		"dora", "dora", "save", "lora-save", "bias", "lora-bias")...)
	for _, option := range []string{"layers_to_transform=lora-blocks", "trainable_token_indices=lora-tokens"} {
		key, name, _ := strings.Cut(option, "=")
		if v := c.facts[name].value; v != "" { // which may be the number 0
			options = append(options, key+"="+strings.ReplaceAll(v, ",", "+"))
		}
	}
	options.If(c.facts["lora-towers"].value == "false", "towers=false")
	options = append(options, c.facts.options("parameters", "lora-parameters")...)
	t := c.facts[loraTarget]
	targets := strings.Split(t.value, ",")
	switch {
	case t.value == "" && c.facts["lora-parameters"].value != "":
	case targets[0] == "all-linear":
		options = append(options, "target=all-linear")
	case t.value == "" || slices.Contains([]string{models.LinearLayers, "all"}, targets[0]):
		options = append(options, "target="+models.LinearLayers)
	case strings.ContainsAny(t.value, expression):
		if _, err := regexp.Compile(t.value); err != nil {
			return t.fault("is a regular expression that vprof cannot read; list the names of the layers instead, " +
				"or say all-linear with --lora")
		}
		options = append(options, "match="+t.value)
	default:
		options = append(options, "target="+strings.Join(targets, "+"))
	}
	c.facts.set("lora", strings.Join(options, ","), cmp.Or(c.facts["lora-r"].from, c.facts["tuner"].from))
	return nil
}
