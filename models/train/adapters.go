package train

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/peft"
	"github.com/vprof/vprof/profiler/trace"
)

const noMagnitude = "vprof records DoRA beside linear layers that are neither packed in 8 bits nor rounded, and not " +
	"beside embeddings or convolutions; leave out dora"

// addAdapters puts adapters into the task's model as peft does, and returns the adapters that come to the device after
// the model. With checkpointing, peft makes the input embeddings require gradients. Adapters are in fp32 whatever the
// weights are in (autocast_adapter_dtype).
func addAdapters(task Task, c models.Case) ([]nn.Adapter, error) {
	wrong := func(reason string) ([]nn.Adapter, error) {
		return nil, c.Wrong("lora", "%s", reason)
	}
	a, ok := task.(Adaptable)
	switch {
	case !ok:
		panic("train: " + c.Model + " is said to take adapters and does not")
	case c.Stage != "full":
		return wrong(fmt.Sprintf("stage %s trains what adapters freeze; use stage full", c.Stage))
	case c.LoRA.DoRA != "" && c.Strategy != nil:
		return wrong("vprof records DoRA on one GPU; leave out --strategy")
	}
	options := nn.LoRA{
		Rank: c.LoRA.Rank, Dropout: c.LoRA.Dropout, DoRA: c.LoRA.DoRA != "",
		Torchtune: c.LoRA.DoRA == models.TorchtuneDoRA, NoTowers: c.LoRA.NoTowers, Adapts: c.LoRA.AdaptsPath(),
		Named: c.LoRA.IsTarget, RankAt: c.LoRA.RankAt, Biased: c.LoRA.Biased,
	}
	excluded := a.Unadapted()
	saved, missing := savedLayers(a, c.LoRA.Save)
	if len(missing) > 0 {
		return wrong(fmt.Sprintf("no module that can be trained as a whole is called %s; there are embed_tokens and "+
			"lm_head, or linear layers", strings.Join(missing, " or ")))
	}
	for _, l := range saved {
		excluded = append(excluded, *l)
	}
	if err := quantizeLayers(a, c, excluded); err != nil {
		return nil, err
	}
	excluded = withoutAdapters(c.LoRA, a, excluded)
	made, err := newAdapters(a, c, options, excluded)
	if err != nil {
		return wrong(err.Error())
	}
	parameters, missing := nn.AdaptParameters(a.Model(), c.LoRA.Parameters, c.LoRA.RankOf, c.LoRA.Alpha != c.LoRA.Rank)
	if reason := checkParameterAdapters(c, len(parameters), missing); reason != "" {
		return wrong(reason)
	}
	if made = append(made, parameters...); len(made) == 0 {
		return wrong(noAdapterReason(c.LoRA, pathsOf(a.Model(), excluded)))
	}
	if options.DoRA && slices.ContainsFunc(made, func(l nn.Adapter) bool { return !nn.TakesMagnitude(l) }) {
		return wrong(noMagnitude)
	}
	trainBiases(a.Model(), made, c.LoRA.Bias)
	for _, l := range saved {
		*l = nn.NewModulesToSave(*l)
	}
	if c.Checkpointing {
		a.RequireInputGrads()
	}
	// DeepSpeed brings a model to one type but one that zero.Init has made, as it is under stage 3.
	if c.Strategy.DeepSpeed() && c.Strategy.Name != models.ZeRO3 || c.LoRA.InWeightsType {
		nn.AdapterType(made, dtypeOf(c.Weights))
	}
	if _, exported := task.(Graph); exported { // which has its adapters before it comes to the device
		return nil, nil
	}
	nn.MoveLater(made, saved)
	return made, nil
}

// savedLayers returns the places of layers that are trained as a whole: layers of some names, and the task's own.
func savedLayers(a Adaptable, names []string) (saved []*nn.Layer, missing []string) {
	saved, missing = nn.Places(a.Model(), names)
	return lists.Union(saved, a.Saved()...), missing
}

// newAdapters wraps linear layers in adapters of LoRA or of another method. The error names an option or a layer that
// the method does not support.
func newAdapters(a Adaptable, c models.Case, o nn.LoRA, excluded []nn.Layer) ([]nn.Adapter, error) {
	if c.LoRA.Method == "" {
		made := nn.AdaptLinears(a.Model(), o, excluded...)
		if len(c.LoRA.Tokens) == 0 {
			return made, nil
		}
		tokens, err := adaptEmbeddings(a, "trainable_tokens", map[string]string{
			"token_indices": strings.Trim(strings.ReplaceAll(fmt.Sprint(c.LoRA.Tokens), " ", "+"), "[]"),
		})
		if err != nil {
			return nil, fmt.Errorf("trainable_token_indices: %w", err)
		}
		return append(made, tokens), nil
	}
	switch _, graph := a.(Graph); {
	case graph:
		return nil, errors.New("vprof records methods of peft other than LoRA in models of transformers; leave out " +
			"method, or use \"vprof run\"")
	case c.Quantize != "" || !c.QAT.IsZero() || c.Float8 != "" || c.Strategy != nil || c.Liger:
		return nil, errors.New("vprof records methods of peft other than LoRA only on one GPU, without quantized " +
			"weights and liger-kernel; leave those out, or use \"vprof run\"")
	}
	t, err := peft.NewConfig(c.LoRA.Method, c.LoRA.Options)
	switch {
	case err != nil:
		return nil, err
	case !t.AtEmbeddings():
		return peft.Adapt(a.Model(), t, c.LoRA.AdaptsPath(), excluded...)
	}
	nn.Freeze(a.Model())
	made, err := adaptEmbeddings(a, c.LoRA.Method, c.LoRA.Options)
	return []nn.Adapter{made}, err
}

// adaptEmbeddings puts a method of peft at the input embeddings.
func adaptEmbeddings(a Adaptable, method string, options map[string]string) (nn.Adapter, error) {
	w, ok := a.(EmbeddingAdapter)
	if !ok {
		return nil, errors.New("the model has no token embeddings for " + method)
	}
	t, err := peft.NewConfig(method, options)
	if err != nil {
		return nil, err
	}
	return w.AdaptEmbeddings(t)
}

// trainBiases trains the biases of the model, or only of adapted layers (bias of LoraConfig and others).
func trainBiases(model any, made []nn.Adapter, which string) {
	within := []any{model}
	switch which {
	case "":
		return
	case models.AdaptedBiases:
		within = nil
		for _, a := range made {
			if l, ok := a.(interface{ Frozen() nn.Layer }); ok {
				within = append(within, l.Frozen())
			}
		}
	}
	for _, m := range within {
		tree := nn.NewTree(m)
		for i, name := range tree.Names() {
			if nn.Matches(name, "bias") {
				tree.Parameters[i].Frozen = false
			}
		}
	}
}

// quantizeLayers quantizes linear layers and, where the case sets it, the experts of a mixture. It skips the layers in
// stay, which begins with the output layer.
func quantizeLayers(a Adaptable, c models.Case, stay []nn.Layer) error {
	if c.Quantize == "" {
		return nil
	}
	if c.PacksHead() {
		stay = stay[len(a.Unadapted()):]
	}
	if g, ok := a.(Graph); ok {
		stay = append(slices.Clip(stay), g.Unpacked()...)
	}
	q := quantizer(c)
	if nn.QuantizeLinears(a.Model(), q, stay...) == 0 {
		return c.Wrong("quantize", "the model has no linear layer that bitsandbytes could hold")
	}
	if c.PacksExperts() && !nn.PackExperts(nn.NewTree(a.Model()), q) && c.Libraries().FusedExperts {
		return c.Wrong("quantize", "%s holds the experts of a mixture in few bits, and the model has none; use %s",
			c.Quantize, c.Packing())
	}
	return nil
}

// withoutAdapters returns the layers of stay that get no adapters. The output layer, which comes first, is excluded
// from all-linear, but may be named.
func withoutAdapters(l *models.LoRA, a Adaptable, stay []nn.Layer) []nn.Layer {
	if l.TargetsAllLinear() {
		return stay
	}
	return stay[len(a.Unadapted()):]
}

// pathsOf returns the paths of a model's linear layers without the excluded ones, or of all linear layers if none is
// left.
func pathsOf(model any, excluded []nn.Layer) []string {
	if paths := nn.LinearPaths(model, excluded...); len(paths) > 0 {
		return paths
	}
	return nn.LinearPaths(model)
}

// noAdapterReason returns the error message if none of the layers of the given paths gets an adapter. peft raises
// there, too.
func noAdapterReason(l *models.LoRA, paths []string) string {
	if l.Match == "" || len(paths) == 0 {
		names := map[string]bool{}
		for _, p := range paths {
			names[p[strings.LastIndexByte(p, '.')+1:]] = true
		}
		return fmt.Sprintf("%s; there are %s", l.NoTargetError(), strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	}
	alike := func(path string) (n int) {
		for part := range strings.SplitSeq(path, ".") {
			n += min(1, strings.Count(l.Match, part))
		}
		return n
	}
	closest := slices.MaxFunc(paths, func(a, b string) int { return cmp.Compare(alike(a), alike(b)) })
	return fmt.Sprintf("%s, as a whole, which peft raises for; one is called %s", l.NoTargetError(), closest)
}

// checkParameterAdapters returns why n adapters of single parameters are impossible in a case; empty if they are
// possible.
func checkParameterAdapters(c models.Case, n int, missing []string) string {
	switch {
	case len(missing) > 0:
		return fmt.Sprintf("the model has no experts with a parameter called %s; vprof puts adapters beside the "+
			"experts' gate_up_proj and down_proj", strings.Join(missing, " or "))
	case n == 0:
		return ""
	case c.LoRA.Dropout > 0:
		return "peft puts no adapters with dropout beside parameters; leave out dropout"
	case c.LoRA.DoRA != "":
		return "peft has no DoRA beside parameters; leave out dora=true"
	case !c.PacksExperts():
		return ""
	case c.Packing() == "int8":
		return "vprof records adapters beside experts in 4 bits, not in 8; use nf4+experts, or leave the experts out"
	case c.Checkpointing && c.Recompute != models.Reentrant:
		return "PyTorch raises CheckpointError there: a recomputation that is not reentrant finds experts unpacked " +
			"that the first run unpacked; use --checkpointing reentrant"
	}
	return ""
}

// quantizer makes a case's packed layers.
func quantizer(c models.Case) *nn.Quantizer {
	q := nn.NewQuantizer(quantizations[c.Packing()], computeType(c))
	if c.ShardsEarly() {
		q.Early()
	}
	return q
}

// computeType returns the type that packed layers compute in, as people set
// bnb_4bit_compute_dtype: bf16, or fp16 where the rest is.
func computeType(c models.Case) trace.DType {
	if c.Weights == "fp16" || c.AMP == "fp16" {
		return trace.F16
	}
	return trace.BF16
}
