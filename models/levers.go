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

// MemoryOptions holds the memory-saving options of a [Case] besides precision, adapters and optimizer. The zero value
// uses none.
type MemoryOptions struct {
	// Quantize names bitsandbytes' format of the frozen linear layers under adapters, one of [Quantizations].
	Quantize string `json:"quantize,omitempty"`
	// Liger replaces norms, rotary embeddings, gated feed-forward layers and the loss by the kernels of liger-kernel.
	Liger bool `json:"liger,omitempty"`
	// Recompute is the kind of checkpointing; absent means non-reentrant for every layer.
	Recompute Recompute `json:"recompute,omitempty"`
	// Offload copies the tensors that autograd saves to host memory (torch.autograd.graph.save_on_cpu).
	Offload bool `json:"offload,omitempty"`
	// InBackward steps the optimizer for each parameter once its gradient is complete, and frees the gradient.
	InBackward bool `json:"optimizer_in_backward,omitempty"`
	// Loop is which tensors of a step the training loop keeps; absent means the loop of the model's own project.
	Loop Loop `json:"loop,omitempty"`
	// UseCache is whether the model returns keys and values: "true" or "false". Absent means what transformers does
	// in the training loop, see [Case.UsesCache].
	UseCache string `json:"use_cache,omitempty"`
	// EmptyCache is the number of steps between calls of torch.cuda.empty_cache(); zero means no calls.
	EmptyCache int `json:"empty_cache,omitempty"`
	// FirstStep reports whether only the first step is planned. It creates optimizer state after backward's peak.
	FirstStep bool `json:"first_step,omitempty"`
	// OtherTrainingBytes is the size in bytes of further tensors on the GPU, like a frozen network or copied weights.
	OtherTrainingBytes int64 `json:"beside_bytes,omitempty"`
	// ZeroGrad is when gradients are freed; absent means after the optimizer's step.
	ZeroGrad ZeroGrad `json:"zero_grad,omitempty"`
	// Clip is "norm" if gradients are clipped to a norm before the optimizer's step, or "none". Absent means what the
	// model's own project does.
	Clip string `json:"clip,omitempty"`

	// Routing distributes tokens over experts that ranks share: empty means evenly, "worst" sends all
	// tokens to one rank's experts, and "skew=F" sends one rank F times the even number.
	Routing string `json:"routing,omitempty"`
	// Objective is the training objective in place of next-token prediction.
	Objective Objective `json:"objective,omitzero"`
	// TrainOnly is a regular expression. Parameters whose names do not contain a match are frozen.
	TrainOnly string `json:"train_only,omitempty"`
	// TrainedWeights is the data type of the parameters that TrainOnly selects, if it differs from the type of frozen
	// ones: "fp32", or absent.
	TrainedWeights string `json:"trained_weights,omitempty"`
	// QAT is torchao's quantization-aware training, which rounds weights and inputs of linear layers.
	QAT QAT `json:"qat,omitzero"`
	// Float8 is the scaling recipe of torchao's float8 training: "tensorwise", or absent.
	Float8 string `json:"float8,omitempty"`
	// Compile reports whether the step runs under torch.compile. Without a recorded one, vprof records the eager step.
	Compile bool `json:"torch_compile,omitempty"`
	// TiledMLP is the number of parts in which feed-forward layers process a sequence.
	TiledMLP Tiles `json:"tiled_mlp,omitzero" jsonschema:"type=string"`
	// Evaluate is the evaluation between training steps; absent means the evaluation of the model's own project.
	Evaluate Evaluation `json:"evaluate,omitzero" jsonschema:"type=string"`
}

// ownLoopReason is the error's reason for models that reject options of the training loop.
const ownLoopReason = "this model has its own training loop, which vprof records as it is; leave out this option " +
	"(models of transformers and exported models, .pt2, accept it)"

// MemoryOptionSupport reports which memory-saving options a model supports.
type MemoryOptionSupport struct {
	// Loop is the recorded training loop of a case that sets none. If it is empty, the model has a loop of its own:
	// other loops, offload, an optimizer in backward and clipping cannot be chosen.
	Loop Loop
	// Cache reports whether the model can return keys and values.
	Cache bool
	// Quantize reports whether frozen linear layers under adapters can be quantized.
	Quantize bool
	// Recompute reports whether the kind of checkpointing can be chosen.
	Recompute bool
	// Liger reports whether liger-kernel has kernels for the model. NoLiger is the reason why some models have none.
	Liger   bool
	NoLiger string
	// EagerAttention reports whether the model always computes attention eagerly, without SDPA.
	EagerAttention bool
	// Objective reports whether the model can train on other objectives, such as DPO.
	Objective bool
	// QAT reports whether torchao can replace the model's linear layers.
	QAT bool
	// Experts is the number of experts that ranks can share; zero if expert parallelism is not supported.
	Experts int64
	// Context reports whether ranks can share a sequence (context parallelism).
	Context bool
	// TensorPlan reports whether transformers has a tensor-parallel plan for the model.
	TensorPlan bool
	// Tiles reports whether feed-forward layers can process a sequence in parts.
	Tiles bool
}

// withExperts is the suffix of a quantization that includes the experts of mixtures.
const withExperts = "+experts"

// Quantizations returns the values of [MemoryOptions.Quantize]: 4-bit NormalFloat, the same with quantized scales, and
// LLM.int8(). Each also exists with quantized experts, whose weights are not in linear layers.
func Quantizations() []string {
	return []string{"nf4", "nf4-dq", "int8", "nf4" + withExperts, "nf4-dq" + withExperts, "int8" + withExperts}
}

// LayerQuantization returns the quantization of linear layers.
func (l MemoryOptions) LayerQuantization() string { return strings.TrimSuffix(l.Quantize, withExperts) }

// ExpertQuantization returns the quantization that includes the experts of a mixture.
func (l MemoryOptions) ExpertQuantization() string { return l.LayerQuantization() + withExperts }

// QuantizesExperts reports whether the quantization includes the experts of a mixture.
func (l MemoryOptions) QuantizesExperts() bool { return strings.HasSuffix(l.Quantize, withExperts) }

// The values of [MemoryOptions.Clip].
const (
	ClipNorm = "norm"
	ClipNone = "none"
)

// Recompute is a kind of checkpointing. "" and "non-reentrant" are PyTorch's default for every layer, "every=N" for
// every N-th layer; "selective=mm/2,sdpa" keeps the results of some operators.
type Recompute string

// Reentrant is torch.utils.checkpoint's reentrant variant. ReentrantTrained is the variant of LLaMA-Factory: it
// recomputes only layers with trained parameters and makes their inputs require gradients.
const (
	Reentrant        Recompute = "reentrant"
	ReentrantTrained Recompute = "reentrant-trained"
)

const (
	nonReentrant    = "non-reentrant"
	everyPrefix     = "every="
	selectivePrefix = "selective="
)

// ParseRecompute parses a kind of checkpointing; "non-reentrant" and "every=1" give "".
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
			return "", fmt.Errorf("invalid number of layers %q: need 1 to %d, like every=2 for every second layer", n,
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

// Reentrant reports whether checkpointing is reentrant.
func (r Recompute) Reentrant() bool { return r == Reentrant || r == ReentrantTrained }

// EveryLayers returns N of "every=N"; 1 if every layer is recomputed.
func (r Recompute) EveryLayers() int {
	n, err := strconv.Atoi(strings.TrimPrefix(string(r), everyPrefix))
	if err != nil {
		return 1
	}
	return n
}

// KeptOperators returns the operators whose results checkpointed layers keep (selective checkpointing).
func (r Recompute) KeptOperators() []trace.KeptOperator {
	ops, selective := strings.CutPrefix(string(r), selectivePrefix)
	if !selective {
		return nil
	}
	all, _ := parseKept(ops) // ParseRecompute has reported an error before
	return all
}

// parseKept parses the operators whose results checkpointed layers keep: in "mm/2,sdpa", mm/2 recomputes every second
// call of mm.
func parseKept(text string) (all []trace.KeptOperator, err error) {
	for word := range strings.SplitSeq(text, ",") {
		name, n, every := strings.Cut(word, "/")
		k := trace.KeptOperator{Op: name, Every: 1}
		if every {
			if k.Every, err = strconv.Atoi(n); err != nil || k.Every < 2 || k.Every > maxLayersApart {
				return nil, fmt.Errorf("selective: %q cannot be read; write mm/2 to recompute every second mm", word)
			}
		}
		if !slices.Contains(trace.KeptOperators(), name) || slices.ContainsFunc(all, func(o trace.KeptOperator) bool {
			return o.Op == name
		}) {
			return nil, fmt.Errorf("selective: %q is unknown or given twice; use each of %s at most once", word,
				strings.Join(trace.KeptOperators(), ", "))
		}
		all = append(all, k)
	}
	return all, nil
}

// maxLayersApart limits N of "every=N".
const maxLayersApart = 1 << 10

func (l MemoryOptions) warnings(c *Case) []string {
	var all []string
	if l.InBackward && c.Accumulate > 1 {
		all = append(all,
			fmt.Sprintf("optimizer-in-backward: every one of the %d micro-batches is a step of its own, since its "+
				"gradients are used and freed at once", c.Accumulate))
	}
	if l.QuantizesExperts() && c.Checkpointing && l.Recompute != Reentrant && c.Libraries().FusedExperts {
		all = append(all, "quantize: where recomputing a layer ends in its experts (there is no shared one), it "+
			"leaves them past the hook with which bitsandbytes frees what it has unpacked, and all experts stay "+
			"unpacked from the first step on; reentrant checkpointing does not")
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

// cublasBuffers matches one pair of a CUBLAS_WORKSPACE_CONFIG: the size of buffers in KiB, and their number.
var cublasBuffers = regexp.MustCompile(`:(\d{1,9}):(\d{1,4})`)

// maxCublasPairs limits the pairs, so that the sum of their sizes does not overflow an int64.
const maxCublasPairs = 8

// cublasBytes returns the bytes of the workspace that PyTorch allocates for a value of CUBLAS_WORKSPACE_CONFIG: the
// sum of all buffers (parseChosenWorkspaceSize in ATen/cuda/CublasHandlePool.cpp).
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
		return "", fmt.Errorf("invalid cuBLAS workspace %q: need :KIB:COUNT, like :4096:8 or :16:8", text)
	}
	return text, nil
}

// tf32Policies maps values of [Case.TF32] to the recorder's.
var tf32Policies = map[string]trace.TF32{
	"": trace.ConvolutionsInTF32, "convolutions": trace.ConvolutionsInTF32, "all": trace.AllInTF32,
	"none": trace.NoneInTF32,
}

// TF32Modes returns the values of the option tf32.
func TF32Modes() []string { return []string{"convolutions", "all", "none"} }

// The values of [MemoryOptions.Routing].
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
		return "", fmt.Errorf("invalid routing %q: need %sF, where F (1 or more) is the rank's number of tokens "+
			"relative to balanced routing", text, skewedRouting)
	case !skewed && text != balancedRouting && text != worstRouting:
		return "", fmt.Errorf("there is no routing %q; use %s, %s or %sF, with a number for F",
			text, balancedRouting, worstRouting, skewedRouting)
	case text == balancedRouting:
		return "", nil
	}
	return text, nil
}

// ExpertLoad returns the number of tokens that reach a rank's experts, relative to an even distribution.
func (l MemoryOptions) ExpertLoad() float64 {
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

// Tiles is the number of parts in which feed-forward layers process the tokens of a sequence, one after the other, in
// forward and backward (axolotl's tiled_mlp). Zero means all tokens at once.
type Tiles int64

// AutoTiles is axolotl's default number of parts: one for every 32768 tokens.
const AutoTiles = -1

const (
	autoTiles = "auto"
	maxTiles  = 1 << 16
)

// ParseTiles parses a number of parts, or "auto".
func ParseTiles(text string) (Tiles, error) {
	if text == autoTiles {
		return AutoTiles, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > maxTiles {
		return 0, fmt.Errorf("invalid number of tiles %q: need %s, or 1 to %d", text, autoTiles, maxTiles)
	}
	return Tiles(n), nil
}

func (t Tiles) String() string {
	switch t {
	case 0:
		return ""
	case AutoTiles:
		return autoTiles
	}
	return strconv.FormatInt(int64(t), 10)
}

// MarshalText returns the text of String, for [encoding.TextMarshaler].
func (t Tiles) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText parses the text that MarshalText returns.
func (t *Tiles) UnmarshalText(text []byte) error { return unmarshalText(t, text, ParseTiles) }
