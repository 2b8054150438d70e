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

const noDoRAReason = "vprof records DoRA beside linear layers that are neither packed in 8 bits nor rounded, and not " +
	"beside embeddings or convolutions; leave out dora"

// addCaseAdapters adds the case's adapters to the model, as peft does, and returns adapters that move to the GPU after
// the model. With checkpointing, peft makes the input embeddings require gradients. Adapters are fp32 whatever the
// weights' type is (autocast_adapter_dtype).
func addCaseAdapters(task Task, c models.Case) ([]nn.Adapter, error) {
	wrong := func(reason string) ([]nn.Adapter, error) { return nil, c.FieldError("lora", "%s", reason) }
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
		Torchtune: c.LoRA.DoRA == models.TorchtuneDoRA, NoTowers: c.LoRA.NoTowers, AdaptsPath: c.LoRA.AdaptsPath(),
		Named: c.LoRA.IsTarget, RankOfPath: c.LoRA.RankOfLayer, Biased: c.LoRA.Biased,
	}
	excluded := a.OutputLayers()
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
	parameters, missing := nn.AdaptParameters(a.Model(), c.LoRA.Parameters, c.LoRA.RankOfParameter,
		c.LoRA.Alpha != c.LoRA.Rank)
	if reason := checkParameterAdapters(c, len(parameters), missing); reason != "" {
		return wrong(reason)
	}
	if made = append(made, parameters...); len(made) == 0 {
		return wrong(noAdapterReason(c.LoRA, adaptablePaths(a.Model(), excluded)))
	}
	if options.DoRA && slices.ContainsFunc(made, func(l nn.Adapter) bool { return !nn.SupportsDoRA(l) }) {
		return wrong(noDoRAReason)
	}
	trainBiases(a.Model(), made, c.LoRA.Bias)
	for _, l := range saved {
		*l = nn.NewModulesToSave(*l)
	}
	if c.RequiresInputGrads() {
		a.RequireInputGrads()
	}
	// DeepSpeed converts a model to one data type, unless zero.Init has created it, as under stage 3.
	if c.Strategy.IsDeepSpeed() && c.Strategy.Name != models.ZeRO3 || c.LoRA.InWeightsType {
		nn.SetAdapterType(made, dtypeOf(c.Weights))
	}
	if _, exported := task.(Graph); exported { // a graph has its adapters before it moves to the GPU
		return nil, nil
	}
	nn.MoveLater(made, saved)
	return made, nil
}

// savedLayers returns pointers to the layers of which a copy is trained: those with the given names and the task's own.
func savedLayers(a Adaptable, names []string) (saved []*nn.Layer, missing []string) {
	saved, missing = nn.LayerFields(a.Model(), names)
	return lists.Union(saved, a.LayersToSave()...), missing
}

// newAdapters wraps layers in the adapters of LoRA or another peft method. The error names an option or layer that
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
			return nil, fmt.Errorf("trainable_token_indices of --lora: %w", err)
		}
		return append(made, tokens), nil
	}
	switch _, graph := a.(Graph); {
	case graph:
		return nil, errors.New("vprof records methods of peft other than LoRA only in models of transformers; leave " +
			"out method= of --lora, or run your own script with \"vprof run\"")
	case c.Quantize != "" || !c.QAT.IsZero() || c.Float8 != "" || c.Strategy != nil || c.Liger:
		return nil, errors.New("vprof records methods of peft other than LoRA only on one GPU, without --quantize " +
			"and --liger; leave these out, or run your own script with \"vprof run\"")
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

func adaptEmbeddings(a Adaptable, method string, options map[string]string) (nn.Adapter, error) {
	w, ok := a.(EmbeddingAdapter)
	if !ok {
		return nil, errors.New("the model has no token embeddings, which this method of --lora needs: " + method)
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
			if nn.MatchesSuffix(name, "bias") {
				tree.Parameters[i].Frozen = false
			}
		}
	}
}

// quantizeLayers quantizes linear layers, and the experts of a mixture if the case sets it. It skips the layers in
// stay, the first of which is the output layer.
func quantizeLayers(a Adaptable, c models.Case, stay []nn.Layer) error {
	if c.Quantize == "" {
		return nil
	}
	if c.QuantizesHead() {
		stay = stay[len(a.OutputLayers()):]
	}
	if g, ok := a.(Graph); ok {
		stay = append(slices.Clip(stay), g.UnquantizedLayers()...)
	}
	q := quantizer(c)
	if nn.QuantizeLinears(a.Model(), q, stay...) == 0 {
		return c.FieldError("quantize", "the model has no linear layer that bitsandbytes could hold")
	}
	if c.QuantizesExperts() && !nn.QuantizeExperts(nn.NewTree(a.Model()), q) && c.Libraries().FusedExperts {
		return c.FieldError("quantize", "%s holds the experts of a mixture in few bits, and the model has none; use %s",
			c.Quantize, c.LayerQuantization())
	}
	return nil
}

// withoutAdapters returns the layers of stay that get no adapters. The output layer, which comes first, gets one only
// if it is named.
func withoutAdapters(l *models.LoRA, a Adaptable, stay []nn.Layer) []nn.Layer {
	if l.TargetsAllLinear() {
		return stay
	}
	return stay[len(a.OutputLayers()):]
}

// adaptablePaths returns the paths of a model's linear layers without the excluded ones; of all if none would be left.
func adaptablePaths(model any, excluded []nn.Layer) []string {
	if paths := nn.LinearPaths(model, excluded...); len(paths) > 0 {
		return paths
	}
	return nn.LinearPaths(model)
}

// noAdapterReason returns the error text, empty if there is none, for adapters that match no layer with the given
// paths. peft raises in that case.
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

// checkParameterAdapters returns the reason why a case cannot have n adapters of single parameters; empty if it can.
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
	case !c.QuantizesExperts():
		return ""
	case c.LayerQuantization() == "int8":
		return "vprof records adapters beside experts in 4 bits, not in 8; use nf4+experts, or leave the experts out"
	case c.Checkpointing && c.Recompute != models.Reentrant:
		return "PyTorch raises CheckpointError there: a recomputation that is not reentrant finds experts unpacked " +
			"that the first run unpacked; use --checkpointing reentrant"
	}
	return ""
}

func quantizer(c models.Case) *nn.Quantizer {
	q := nn.NewQuantizer(quantizations[c.LayerQuantization()], computeType(c))
	if c.UsesEarlyBitsandbytes() {
		q.UseEarlyRelease()
	}
	return q
}

// computeType returns bnb_4bit_compute_dtype as it is usually set: bf16, or fp16 if the case trains in fp16.
func computeType(c models.Case) trace.DType {
	if c.Weights == "fp16" || c.AMP == "fp16" {
		return trace.F16
	}
	return trace.BF16
}
