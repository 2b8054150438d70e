package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Config has the fields of a decoder's configuration that affect memory. The zero value of a field means Llama.
type Config struct {
	Sizes
	Biases
	Dropouts
	Masks
	Scaling
	Kernels
	// Activation is the name of a function, see [hf.Activations].
	Activation string
	// Tied reports whether the output layer shares the weight of the embeddings.
	Tied bool

	Norm   Norm
	Order  Order
	QKNorm QKNorm
	QKV    QKV
	MLP    MLP
	// Rotary is the rotary position embedding of query and key; Unrotated gives for each layer whether it has none
	// (nil: all have it), NoRotary that no layer has it.
	Rotary    Rotary
	Unrotated LayerFlags
	NoRotary  bool
	// AttentionCap bounds attention scores by a tanh (attn_logit_softcapping), as Gemma 2 does.
	AttentionCap bool
	// Sinks has a learned sink for each head take part in the softmax of scores, as GPT-OSS does.
	Sinks bool
	// AttentionGate has a gate projected with the query, by which the result of attention is multiplied.
	AttentionGate bool
	// AdaptionPrompts reports whether peft has LLaMA-Adapter for the type.
	AdaptionPrompts bool
	// Latent is multi-head latent attention, in place of the other.
	Latent Latent
	// CrossAttention marks the layers that attend to images, as some of Llama 3.2 Vision do; ExtraTokens is the number
	// of tokens that the embeddings have and the output layer does not.
	CrossAttention LayerFlags
	ExtraTokens    int64

	// Mamba is the mixer of blocks that Blocks names; DeltaNet replaces attention.
	Mamba    Mamba
	DeltaNet DeltaNet
	// Blocks names of each layer what follows its only norm, as in Nemotron H; nil means that layers have two halves.
	Blocks []Block

	// Experts is the mixture that replaces the feed-forward half.
	Experts Experts
	// Llama4 holds the differences of Llama 4.
	Llama4 Llama4
	// ScoresFloat keeps the logits in fp32.
	ScoresFloat bool
	// OwnLoss is the loss of releases in which the model shares no function for it.
	OwnLoss hf.OwnLoss
	// Names maps Llama's names of modules to other ones.
	Names TorchNames
}

// Sizes are counts of tokens, layers and heads, and widths of the residual stream, a head and the feed-forward half.
type Sizes struct {
	Vocab, Width, Layers, Heads, KVHeads, HeadSize, Inner int64
}

// Biases are of query, key and value, the projection after attention, feed-forward layers and the output layer.
type Biases struct {
	QKVBias, OutputBias, MLPBias, HeadBias bool
}

// Dropouts are probabilities: of attention weights, of the embeddings, and of the results of a layer's halves, which is
// applied in the layer or, with DropoutInside, in its halves.
type Dropouts struct {
	AttentionDropout, EmbedDropout, ResidualDropout float64
	DropoutInside                                   bool
}

// Masks are the attention masks that transformers makes.
type Masks struct {
	// Windowed gives for each layer whether its tokens see only those up to Window before them; nil for none.
	Windowed LayerFlags
	Window   int64
	// AlwaysFullMask makes the mask of full attention even if no layer has it, AlwaysWindowMask the mask of a window.
	AlwaysFullMask, AlwaysWindowMask bool
	// CausalBuffers is the number of positions of the causal masks that the layers keep; zero for no such masks.
	CausalBuffers int64
}

// Scaling holds the factors and bounds that the configuration applies to activations.
type Scaling struct {
	// EmbedScale describes how the embeddings are scaled.
	EmbedScale Scale
	// ResidualScaled scales what the halves of a layer give.
	ResidualScaled bool
	// ScoreCap bounds the logits by a tanh (final_logit_softcapping), ScoreScaled scales them.
	ScoreCap, ScoreScaled bool
	// QueryScaled scales queries by their positions, as Ministral 3 does.
	QueryScaled bool
}

// Kernels are the implementations of attention and layers that a case selects.
type Kernels struct {
	// Liger has the kernels of liger-kernel compute norms, rotary positions and feed-forward layers.
	Liger bool
	// Tiles has the feed-forward layers see a part of the tokens at a time.
	Tiles hf.Tiles
	// Context has ranks share each sequence.
	Context hf.ContextParallel
	// Eager computes and keeps attention's scores, Flash uses flash-attn's kernels, Flex the ones of flex_attention.
	Eager, Flash, Flex bool
	// RepeatKV reports whether keys and values are repeated for every head of the query.
	RepeatKV bool
	// Cache has the keys and values of all layers; nil for none.
	Cache *hf.KVCache
}

// Norm is the kind of the norms.
type Norm string

const (
	// RMSNorm is LlamaRMSNorm.
	RMSNorm Norm = ""
	// GemmaNorm is GemmaRMSNorm: all in fp32, multiplied by 1 + weight.
	GemmaNorm Norm = "GemmaNorm"
	// OlmoNorm is Olmo2RMSNorm: the weight is applied in fp32, too.
	OlmoNorm Norm = "OlmoNorm"
	// LayerNorm is torch.nn.LayerNorm.
	LayerNorm Norm = "LayerNorm"
	// LayerNorm1P is NemotronLayerNorm1P: LayerNorm with 1 + weight, in the type of autocast.
	LayerNorm1P Norm = "LayerNorm1P"
	// FloatNorm is OlmoNorm that brings the weight to fp32, as Nemotron H does.
	FloatNorm Norm = "FloatNorm"
	// CohereNorm is CohereLayerNorm: written out in fp32, without a bias.
	CohereNorm Norm = "CohereNorm"
	// Llama4Norm is Llama4TextRMSNorm, whose weight is applied in the type of what comes in.
	Llama4Norm Norm = "Llama4Norm"
)

// Order names the positions of the norms in a layer.
type Order string

const (
	// NormFirst normalizes before each half of a layer.
	NormFirst Order = ""
	// NormAround normalizes after each half, too, as Gemma 2 does.
	NormAround Order = "NormAround"
	// CohereParallel has both halves see the same norm, and adds what they give to the input.
	CohereParallel Order = "CohereParallel"
	// NeoX is NormFirst as GPT-NeoX writes it.
	NeoX Order = "NeoX"
	// NeoXParallel feeds the input to both halves, each through its own norm.
	NeoXParallel Order = "NeoXParallel"
	// Llama4Order is NormFirst that keeps what attention gives, as Llama 4 writes it.
	Llama4Order Order = "Llama4Order"
	// NemotronBlock is a norm and the module that Blocks names.
	NemotronBlock Order = "NemotronBlock"
)

// QKNorm names the normalization of query and key, and its position.
type QKNorm string

const (
	// NoQKNorm is none.
	NoQKNorm QKNorm = ""
	// HeadsNorm is each head, before the heads come before the tokens.
	HeadsNorm QKNorm = "HeadsNorm"
	// TransposedNorm is each head, after that.
	TransposedNorm QKNorm = "TransposedNorm"
	// ViewedNorm is each head with weights of its own, when all three have been projected.
	ViewedNorm QKNorm = "ViewedNorm"
)

// QKV is how query, key and value are projected.
type QKV string

const (
	// ThreeProjections is a layer for each.
	ThreeProjections QKV = ""
	// OneProjection is a layer for all, one after the other, as in Phi-3.
	OneProjection QKV = "OneProjection"
	// HeadsProjection is a layer for all, by heads, as in GPT-NeoX.
	HeadsProjection QKV = "HeadsProjection"
)

// MLP is the kind of the feed-forward half.
type MLP string

const (
	// Gated is two layers in, one of which gates the other.
	Gated MLP = ""
	// FusedGated has both in one.
	FusedGated MLP = "FusedGated"
	// Ungated is one layer in.
	Ungated MLP = "Ungated"
)

// Rotary describes how positions rotate query and key.
type Rotary struct {
	// Size is the number of elements of a head that are rotated; zero means all.
	Size int64
	// Inside splits heads in the function that rotates them and joins them again, as Phi-3 does in one
	// statement and, Stepwise, GPT-NeoX in several. Kept holds the rotated parts until the end, as Nemotron does.
	Inside, Stepwise, Kept bool
	// Interleaved rotates pairs of neighbors, InFloat32 casts query and key to fp32 first, as Cohere does.
	Interleaved, InFloat32 bool
	// Kinds is the number of kinds of layers that have angles of their own; zero is one.
	Kinds int
	// Grids is how many grids a token has a place in, as in models that see: its angles
	// are pieced together from theirs, for every row of a batch. Zero is one.
	Grids int64
	// Halves turns halves of heads, and has no angle twice, as GPT-OSS does.
	Halves bool
	// Complex has angles as complex numbers, as DeepSeek V2 does.
	Complex bool
	// OwnUntil is the group with which layers began to share angles; Own has each compute its own. TablesUntil is the
	// group with which they ceased to be buffers, Tables the number of positions of those; zero for none.
	OwnUntil, TablesUntil trace.FunctionSharers
	Own                   bool
	Tables                int64
}

// Scale is how the embeddings are scaled.
type Scale string

const (
	// Unscaled leaves them.
	Unscaled Scale = ""
	// ByBuffer multiplies by a buffer, as Gemma does.
	ByBuffer Scale = "ByBuffer"
	// ByNumber multiplies by a number, as Granite does.
	ByNumber Scale = "ByNumber"
)

// TorchNames maps the names of modules here to their names in PyTorch.
type TorchNames = nn.TorchNames

// LayerFlags marks layers; nil marks none.
type LayerFlags []bool

func (s LayerFlags) has(i int) bool { return i < len(s) && s[i] }

// kinds reports whether layer i has attention, and whether it has a mixer, which applies the padding mask itself.
func (c *Config) kinds(i int) (attends, recurs bool) {
	if kind, ok := c.blocks(i); ok {
		return kind == AttentionBlock, kind == MixerBlock
	}
	recurs = c.DeltaNet.Layers.has(i)
	return !recurs, recurs
}

// PlainAttention reports whether every layer uses transformers' attention interface with rotary positions and nothing
// else mixes tokens: neither latent attention, nor sinks, nor a cap.
func (c *Config) PlainAttention() bool {
	return c.Attends() && c.Latent.Rank == 0 && !c.Sinks && !c.AttentionCap
}

// Splits reports whether ranks can shard each projection of attention and feed-forward layers by rows or columns
// without communication between them: no projection combines several.
func (c *Config) Splits() bool {
	return c.PlainAttention() && c.QKV != OneProjection && c.MLP != FusedGated
}

// Attends reports whether every layer uses attention, so that a cache holds only keys and values.
func (c *Config) Attends() bool {
	for i := range int(c.Layers) {
		if attends, _ := c.kinds(i); !attends {
			return false
		}
	}
	return true
}

// rotates reports whether layer i has rotary positions.
func (c *Config) rotates(i int) bool { return !c.NoRotary && !c.Unrotated.has(i) }
