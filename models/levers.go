package models

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/trace"
)

// Levers are the memory-saving options of a [Case], besides its precision, adapters and optimizer. The zero value uses
// none of them.
type Levers struct {
	// Quantize is how bitsandbytes holds the frozen linear layers below adapters, one of [Quantizations].
	Quantize string `json:"quantize,omitempty"`
	// Liger replaces norms, rotary positions, gated feed-forward layers and the loss with the kernels of liger-kernel.
	Liger bool `json:"liger,omitempty"`
	// Recompute is how checkpointing does it; absent is non-reentrant, every layer.
	Recompute Recompute `json:"recompute,omitempty"`
	// Offload keeps what backward needs in the host's memory (save_on_cpu).
	Offload bool `json:"offload,omitempty"`
	// InBackward steps the optimizer of each parameter as soon as its gradient is there, and frees the gradient.
	InBackward bool `json:"optimizer_in_backward,omitempty"`
	// Loop is what the training loop keeps of a step; absent is the loop of the model's source.
	Loop Loop `json:"loop,omitempty"`
	// UseCache is whether keys and values are a part of what the model returns: "true", "false", or absent for
	// what transformers does in the loop, see [Case.UsesCache].
	UseCache string `json:"use_cache,omitempty"`
	// EmptyCache is after how many steps torch.cuda.empty_cache() is called each time; zero is never.
	EmptyCache int `json:"empty_cache,omitempty"`
	// FirstStep has the first step alone, which makes the optimizer's state when all else is over.
	FirstStep bool `json:"first_step,omitempty"`
	// OtherTrainingBytes is the size in bytes of what stays on the GPU beside the model: a frozen network, a copy of
	// the weights.
	OtherTrainingBytes int64 `json:"beside_bytes,omitempty"`
	// ZeroGrad is when gradients go; absent is after the optimizer's step.
	ZeroGrad ZeroGrad `json:"zero_grad,omitempty"`
	// Clip is whether gradients are clipped to a norm before the optimizer's step:
	// "norm", "none", or absent for what the model's own system does.
	Clip string `json:"clip,omitempty"`

	// Routing is how the routers of a mixture choose among experts that ranks share out: empty for all
	// equally often, "worst" for the experts of one rank alone, or "skew=F" for F times as many tokens as that.
	Routing string `json:"routing,omitempty"`
	// Objective is what is learnt in place of the next token, from pairs of answers or from judged ones.
	Objective Objective `json:"objective,omitzero"`
	// TrainOnly is a regular expression that is looked for in the names of parameters: those without it are frozen.
	TrainOnly string `json:"train_only,omitempty"`
	// TrainedWeights is the type of the parameters that TrainOnly chooses, where it differs
	// from the type of the frozen parameters: "fp32", or absent.
	TrainedWeights string `json:"trained_weights,omitempty"`
	// QAT rounds weights and inputs of linear layers as torchao's training for quantization does.
	QAT QAT `json:"qat,omitzero"`
	// Float8 has linear layers multiply in 8-bit floats: "tensorwise", or absent.
	Float8 string `json:"float8,omitempty"`
	// Compile reports whether the step runs under torch.compile. What is recorded is the eager step.
	Compile bool `json:"torch_compile,omitempty"`
	// TiledMLP has feed-forward layers see a part of the tokens at a time.
	TiledMLP Tiles `json:"tiled_mlp,omitzero" jsonschema:"type=string"`
	// Evaluate is the evaluation between training steps; absent for the evaluation of the model's own system.
	Evaluate Evaluation `json:"evaluate,omitzero" jsonschema:"type=string"`
}

// ownLoop is why a model refuses memory-saving options of the training loop.
const ownLoop = "this model has its own training loop; models of transformers and exported models (.pt2) have a choice"

// LeverSet names which memory-saving options a model has.
type LeverSet struct {
	// Loop is the loop that is recorded where a case sets none; cases may have another, and offload, the optimizer in
	// backward, and clipping. Empty is that the model has a loop of its own.
	Loop Loop
	// Cache: keys and values as a part of the output.
	Cache bool
	// Quantize: frozen layers below adapters.
	Quantize bool
	// Recompute: how checkpointing does it.
	Recompute bool
	// Liger: the kernels of liger-kernel; NoLiger says of some models why they have none.
	Liger   bool
	NoLiger string
	// EagerAttention: attention is eager however the model is loaded; no case turns it.
	EagerAttention bool
	// Objective: pairs of answers.
	Objective bool
	// QAT: linear layers that are rounded.
	QAT bool
	// Experts is how many experts ranks can share out; zero is that they cannot.
	Experts int64
	// Context: sequences that ranks share.
	Context bool
	// TensorPlan: layers that ranks share by transformers' own plan.
	TensorPlan bool
	// Tiles: feed-forward layers that see a part of the tokens at a time.
	Tiles bool
}

// withExperts is the suffix of a quantization that also applies to the experts of mixtures.
const withExperts = "+experts"

// Quantizations returns the values of [Levers.Quantize]: 4-bit NormalFloat, the same with quantized scales, and
// LLM.int8(); and the same three with the experts quantized too, whose weights are in no linear layer.
func Quantizations() []string {
	return []string{"nf4", "nf4-dq", "int8", "nf4" + withExperts, "nf4-dq" + withExperts, "int8" + withExperts}
}

// Packing returns the quantization of linear layers in [Levers.Quantize].
func (l Levers) Packing() string { return strings.TrimSuffix(l.Quantize, withExperts) }

// ExpertQuantization returns the [Levers.Quantize] that quantizes both linear layers and the experts of a mixture.
func (l Levers) ExpertQuantization() string { return l.Packing() + withExperts }

// PacksExperts reports whether the experts of a mixture are quantized as well.
func (l Levers) PacksExperts() bool { return strings.HasSuffix(l.Quantize, withExperts) }

// The values of [Levers.Clip].
const (
	ClipNorm = "norm"
	ClipNone = "none"
)

// Recompute selects a kind of checkpointing: "" and "non-reentrant" are PyTorch's default for every layer, "every=N" is
// the default for every N-th layer, and "selective=mm/2,sdpa" keeps the results of some operators.
type Recompute string

// Reentrant is torch.utils.checkpoint's reentrant variant. ReentrantTrained runs again layers alone that have something
// to train, and has their inputs require gradients, as LLaMA-Factory does.
const (
	Reentrant        Recompute = "reentrant"
	ReentrantTrained Recompute = "reentrant-trained"
)

const (
	nonReentrant    = "non-reentrant"
	everyPrefix     = "every="
	selectivePrefix = "selective="
)

// ParseRecompute reads how checkpointing is done; "non-reentrant" and "every=1" are "".
func ParseRecompute(text string) (Recompute, error) {
	ops, selective := strings.CutPrefix(text, selectivePrefix)
	n, every := strings.CutPrefix(text, everyPrefix)
	switch r := Recompute(text); {
	case selective:
		_, err := parseKept(ops)
		return r, err
	case text == nonReentrant:
		return "", nil
	case r.Reentrant():
		return r, nil
	case every:
		k, err := strconv.Atoi(n)
		if err != nil || k < 1 || k > maxLayersApart {
			return "", fmt.Errorf("invalid number of layers %q: need 1 to %d, as in every=2 for every second layer", n,
				maxLayersApart)
		}
		if k == 1 {
			return "", nil
		}
		return Recompute(everyPrefix + strconv.Itoa(k)), nil
	}
	return "", fmt.Errorf("there is no checkpointing %q; use %s, %s, %s, every=N or selective=mm,sdpa", text,
		nonReentrant, Reentrant, ReentrantTrained)
}

// Reentrant reports whether checkpointing is reentrant, in all or in some layers.
func (r Recompute) Reentrant() bool { return r == Reentrant || r == ReentrantTrained }

// EveryLayers returns the N of every=N; 1 if every layer is recomputed.
func (r Recompute) EveryLayers() int {
	n, err := strconv.Atoi(strings.TrimPrefix(string(r), everyPrefix))
	if err != nil {
		return 1
	}
	return n
}

// KeptOperators returns the operators whose results checkpointed layers keep.
func (r Recompute) KeptOperators() []trace.KeptOperator {
	ops, selective := strings.CutPrefix(string(r), selectivePrefix)
	if !selective {
		return nil
	}
	all, _ := parseKept(ops) // what is wrong was said when it was parsed
	return all
}

// parseKept reads the operators whose results checkpointed layers keep: "mm/2,sdpa", where mm/2 recomputes every second
// call.
func parseKept(text string) (all []trace.KeptOperator, err error) {
	for word := range strings.SplitSeq(text, ",") {
		name, n, every := strings.Cut(word, "/")
		k := trace.KeptOperator{Op: name, Every: 1}
		if every {
			if k.Every, err = strconv.Atoi(n); err != nil || k.Every < 2 || k.Every > maxLayersApart {
				return nil, fmt.Errorf("selective: invalid %q: write mm/2 to recompute every second mm", word)
			}
		}
		if !slices.Contains(trace.KeptOperators(), name) || slices.ContainsFunc(all, func(o trace.KeptOperator) bool {
			return o.Op == name
		}) {
			return nil, fmt.Errorf("selective: %q is repeated or unknown; use %s", word,
				strings.Join(trace.KeptOperators(), ", "))
		}
		all = append(all, k)
	}
	return all, nil
}

// maxLayersApart bounds every=N.
const maxLayersApart = 1 << 10

// caveats returns warnings about the memory-saving options of a case.
func (l Levers) caveats(c *Case) []string {
	var all []string
	if l.InBackward && c.Accumulate > 1 {
		all = append(all,
			fmt.Sprintf("optimizer-in-backward: every one of the %d micro-batches is a step of its own, since its "+
				"gradients are used and freed at once", c.Accumulate))
	}
	if l.PacksExperts() && c.Checkpointing && l.Recompute != Reentrant && c.Libraries().FusedExperts {
		all = append(all,
			"quantize: where recomputing a layer ends in its experts (there is no shared one), it leaves them past "+
				"the hook with which bitsandbytes frees what it has unpacked, and all experts stay unpacked "+
				"from the first step on; reentrant checkpointing does not")
	}
	if c.Objective.Generates() {
		all = append(all, c.Objective.Name+
			": what generates the answers is not in these figures: vLLM on the same GPU (--gpu-memory 70% leaves "+
			"it 30), or the cache of generate, before the step")
	}
	if c.Objective.SequencesPerSample() > 1 {
		all = append(all, fmt.Sprintf("%s: a sample of the batch is a pair of answers, two rows", c.Objective.Name))
	}
	return all
}

// cublasBuffers is a pair of a CUBLAS_WORKSPACE_CONFIG: KiB, and how many buffers of that size.
var cublasBuffers = regexp.MustCompile(`:(\d{1,9}):(\d{1,4})`)

// maxCublasPairs bounds the pairs, so that their sum is no longer than an int64.
const maxCublasPairs = 8

// cublasBytes returns the workspace that PyTorch allocates for a value of CUBLAS_WORKSPACE_CONFIG, in bytes: the sum of
// all buffers (parseChosenWorkspaceSize in ATen/cuda/CublasHandlePool.cpp).
func cublasBytes(config string) (bytes int64) {
	for _, pair := range cublasBuffers.FindAllStringSubmatch(config, maxCublasPairs) {
		size, _ := strconv.ParseInt(pair[1], 10, 64)
		count, _ := strconv.ParseInt(pair[2], 10, 64)
		bytes += size * count << 10
	}
	return bytes
}

func parseCublasWorkspace(text string) (string, error) {
	const most = 1 << 40
	pairs := cublasBuffers.FindAllString(text, maxCublasPairs)
	if strings.Join(pairs, "") != text || cublasBytes(text) > most {
		return "", fmt.Errorf("invalid %q: need :KIB:COUNT, like :4096:8 or :16:8", text)
	}
	return text, nil
}

// tf32Policies are the choices of [Case.TF32].
var tf32Policies = map[string]trace.TF32{
	"": trace.ConvolutionsInTF32, "convolutions": trace.ConvolutionsInTF32, "all": trace.AllInTF32,
	"none": trace.NoneInTF32,
}

// TF32s returns the values of [Case.TF32].
func TF32s() []string { return []string{"convolutions", "all", "none"} }

// The values of [Levers.Routing].
const (
	balancedRouting = "balanced"
	worstRouting    = "worst"
	skewedRouting   = "skew="
)

func parseRouting(text string) (string, error) {
	factor, skewed := strings.CutPrefix(text, skewedRouting)
	f, err := strconv.ParseFloat(factor, 64)
	switch {
	case skewed && (err != nil || !(f >= 1) || math.IsInf(f, 1)):
		return "", fmt.Errorf("invalid %q: need %sF; F, 1 or more, is the rank's number of tokens relative to "+
			"balanced routing", text, skewedRouting)
	case !skewed && text != balancedRouting && text != worstRouting:
		return "", fmt.Errorf("invalid %q: need %s, %s or %sF", text, balancedRouting, worstRouting, skewedRouting)
	case text == balancedRouting:
		return "", nil
	}
	return text, nil
}

// ExpertLoad returns the load factor of a rank's experts: the tokens that arrive, by the number for evenly chosen ones.
func (l Levers) ExpertLoad() float64 {
	if factor, skewed := strings.CutPrefix(l.Routing, skewedRouting); skewed {
		f, err := strconv.ParseFloat(factor, 64)
		if err == nil {
			return f
		}
	}
	if l.Routing == worstRouting {
		return math.Inf(1)
	}
	return 1
}

// Tiles is the number of parts in which feed-forward layers process the tokens of a row, one after the other, in
// forward and backward (axolotl's tiled_mlp). Zero means all tokens at once.
type Tiles int64

// AutoTiles is as many parts as axolotl takes if it is not told: one for every 32768 tokens.
const AutoTiles = -1

const (
	autoTiles = "auto"
	maxTiles  = 1 << 16
)

// ParseTiles reads a number of parts, or "auto".
func ParseTiles(text string) (Tiles, error) {
	if text == autoTiles {
		return AutoTiles, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > maxTiles {
		return 0, fmt.Errorf("invalid %q: need %s or a number of tiles from 1 to %d", text, autoTiles, maxTiles)
	}
	return Tiles(n), nil
}

// String returns the form that [ParseTiles] reads; empty for none.
func (t Tiles) String() string {
	switch t {
	case 0:
		return ""
	case AutoTiles:
		return autoTiles
	}
	return strconv.FormatInt(int64(t), 10)
}

// MarshalText implements [encoding.TextMarshaler].
func (t Tiles) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *Tiles) UnmarshalText(text []byte) error { return unmarshal(t, text, ParseTiles) }
