package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Config holds the fields of a decoder's configuration that affect memory. The zero value of each field means Llama.
type Config struct {
	Sizes
	Biases
	Dropouts
	Masks
	Scaling
	Kernels
	// Activation is the name of an activation, see [hf.Activations].
	Activation string
	// Tied reports whether the output layer shares the embedding's weight (tie_word_embeddings).
	Tied bool

	Norm   Norm
	Order  Order
	QKNorm QKNorm
	QKV    QKV
	MLP    MLP
	// Rotary is the rotary embedding of query and key. Unrotated marks the layers without one; NoRotary means that no
	// layer has one.
	Rotary    Rotary
	Unrotated LayerFlags
	NoRotary  bool
	// AttentionCap caps attention scores by tanh (attn_logit_softcapping), as Gemma 2 does.
	AttentionCap bool
	// Sinks adds a learned sink logit of each head to the softmax, as GPT-OSS does.
	Sinks bool
	// AttentionGate multiplies attention's result by a gate that is projected with the query.
	AttentionGate bool
	// AdaptionPrompts reports whether peft supports LLaMA-Adapter for the model type.
	AdaptionPrompts bool
	// Latent is multi-head latent attention; zero means ordinary attention.
	Latent Latent
	// CrossAttention marks the layers that attend to images, as in Llama 3.2 Vision. ExtraTokens is the number of
	// tokens that the embedding has and the output layer lacks.
	CrossAttention LayerFlags
	ExtraTokens    int64

	// Mamba is the mixer of the layers that Blocks selects. DeltaNet is the linear attention of some layers.
	Mamba    Mamba
	DeltaNet DeltaNet
	// Blocks holds the kind of module that follows each layer's only norm, as in Nemotron H; nil if layers have
	// attention and a feed-forward layer.
	Blocks []Block

	// Experts is the mixture of experts that replaces the feed-forward layer.
	Experts Experts
	// Llama4 holds the differences of Llama 4.
	Llama4 Llama4
	// ScoresFloat keeps the logits in fp32.
	ScoresFloat bool
	// OwnLoss is the loss code of the model's own forward in older releases of transformers.
	OwnLoss hf.ModelLoss
	// Names maps Llama's names of modules to the model's.
	Names TorchNames
}

// Sizes are numbers of tokens, layers and heads, and widths of hidden states, heads and feed-forward layers.
type Sizes struct {
	Vocab, Width, Layers, Heads, KVHeads, HeadSize, Inner int64
}

// Biases reports which linear layers have a bias: of query, key and value, attention's output, feed-forward layers,
// and the output layer.
type Biases struct {
	QKVBias, OutputBias, MLPBias, HeadBias bool
}

// Dropouts are dropout probabilities of attention weights, embeddings, and the results of attention and feed-forward
// layers. The latter is applied in the decoder layer or, with DropoutInside, in the two modules.
type Dropouts struct {
	AttentionDropout, EmbedDropout, ResidualDropout float64
	DropoutInside                                   bool
}

// Masks selects the attention masks that transformers creates.
type Masks struct {
	// Windowed marks the layers with sliding-window attention over Window tokens; nil for none.
	Windowed LayerFlags
	Window   int64
	// AlwaysFullMask creates the full attention mask even if no layer uses it. AlwaysWindowMask creates the window's.
	AlwaysFullMask, AlwaysWindowMask bool
	// CausalBuffers is the number of positions of causal masks that layers store as buffers; zero without them.
	CausalBuffers int64
}

// Scaling selects the factors and caps that the model applies to activations.
type Scaling struct {
	// EmbedScale names the scaling of the embeddings.
	EmbedScale Scale
	// ResidualScaled scales the results of attention and feed-forward layers.
	ResidualScaled bool
	// ScoreCap caps the logits by tanh (final_logit_softcapping), StateCap instead the last norm's hidden states, as
	// torchtune's Gemma2FinalNorm does. ScoreScaled multiplies the logits by a number.
	ScoreCap, ScoreScaled, StateCap bool
	// QueryScaled scales queries by their positions, as Ministral 3 does.
	QueryScaled bool
}

// Kernels selects the implementations of attention and layers.
type Kernels struct {
	// Liger uses liger-kernel's norms, rotary embeddings and feed-forward layers.
	Liger bool
	// Tiles splits the tokens in feed-forward layers (tiled_mlp).
	Tiles hf.Tiles
	// Context splits sequences among ranks.
	Context hf.ContextParallel
	// Eager computes and keeps attention scores. Flash uses flash-attn's kernels, Flex flex_attention's.
	Eager, Flash, Flex bool
	// RepeatKV repeats keys and values for every query head.
	RepeatKV bool
	// Cache stores the keys and values of all layers; nil without a cache.
	Cache *hf.KVCache
}

// Norm is the kind of the model's norms.
type Norm string

const (
	// RMSNorm is LlamaRMSNorm.
	RMSNorm Norm = ""
	// GemmaNorm is GemmaRMSNorm, which computes x * (1 + weight) in fp32.
	GemmaNorm Norm = "GemmaNorm"
	// OlmoNorm is Olmo2RMSNorm, which multiplies by the weight in fp32.
	OlmoNorm Norm = "OlmoNorm"
	// LayerNorm is torch.nn.LayerNorm.
	LayerNorm Norm = "LayerNorm"
	// LayerNorm1P is NemotronLayerNorm1P: LayerNorm with 1 + weight, in autocast's type.
	LayerNorm1P Norm = "LayerNorm1P"
	// TuneNorm is torchtune's RMSNorm: rms_norm of the input in fp32.
	TuneNorm Norm = "TuneNorm"
	// FloatNorm is OlmoNorm with the weight cast to fp32, as in Nemotron H.
	FloatNorm Norm = "FloatNorm"
	// CohereNorm is CohereLayerNorm: separate fp32 operators, without a bias.
	CohereNorm Norm = "CohereNorm"
	// Llama4Norm is Llama4TextRMSNorm, which multiplies by the weight in the input's type.
	Llama4Norm Norm = "Llama4Norm"
)

// Order is the position of the norms in a layer.
type Order string

const (
	// NormFirst has a norm before attention and before the feed-forward layer.
	NormFirst Order = ""
	// NormAround also has a norm after attention and after the feed-forward layer, as Gemma 2 does.
	NormAround Order = "NormAround"
	// CohereParallel computes attention and feed-forward layer from the same norm and adds both to the input.
	CohereParallel Order = "CohereParallel"
	// NeoX is NormFirst with GPT-NeoX's order of statements.
	NeoX Order = "NeoX"
	// NeoXParallel computes attention and feed-forward layer from the same input, each through its own norm.
	NeoXParallel Order = "NeoXParallel"
	// Llama4Order is NormFirst with Llama 4's order of statements, in which a variable keeps attention's result.
	Llama4Order Order = "Llama4Order"
	// NemotronBlock is a norm and the module that Blocks selects.
	NemotronBlock Order = "NemotronBlock"
)

// QKNorm is the normalization of query and key.
type QKNorm string

const (
	// NoQKNorm means that there is none.
	NoQKNorm QKNorm = ""
	// HeadsNorm normalizes each head before the heads are transposed with the tokens.
	HeadsNorm QKNorm = "HeadsNorm"
	// TransposedNorm normalizes each head after that transposition.
	TransposedNorm QKNorm = "TransposedNorm"
	// ViewedNorm normalizes each head with weights of its own, after all three projections.
	ViewedNorm QKNorm = "ViewedNorm"
)

// QKV is how query, key and value are projected.
type QKV string

const (
	// ThreeProjections is a linear layer each for query, key and value.
	ThreeProjections QKV = ""
	// OneProjection is one linear layer for all three, one after the other, as in Phi-3.
	OneProjection QKV = "OneProjection"
	// HeadsProjection is one linear layer for all three, head by head, as in GPT-NeoX.
	HeadsProjection QKV = "HeadsProjection"
)

// MLP is the kind of feed-forward layer.
type MLP string

const (
	// Gated has an up projection and a gate projection.
	Gated MLP = ""
	// FusedGated has one linear layer for both projections.
	FusedGated MLP = "FusedGated"
	// Ungated has an up projection alone.
	Ungated MLP = "Ungated"
)

// Rotary is the rotary position embedding of query and key.
type Rotary struct {
	// Size is the number of rotated elements of a head; zero means all.
	Size int64
	// Inside splits heads in the rotating function and joins them again: in one statement, as Phi-3 does, or with
	// Stepwise in several, as GPT-NeoX does. Kept keeps the rotated parts until the end, as Nemotron does.
	Inside, Stepwise, Kept bool
	// Interleaved rotates pairs of neighboring elements. InFloat32 casts query and key to fp32 first, as Cohere does.
	Interleaved, InFloat32 bool
	// Kinds is the number of kinds of layers with rotary angles of their own; zero means one.
	Kinds int
	// Grids is the number of position axes of a token (time, height and width in vision models, M-RoPE): the angles
	// are combined from all axes, for every row of a batch. Zero means one.
	Grids int64
	// Halves rotates the halves of heads and stores each angle once, as GPT-OSS does.
	Halves bool
	// Complex stores angles as complex numbers, as DeepSeek V2 does.
	Complex bool
	// OwnUntil is the group of models whose layers began to share angles; with Own each layer computes its own.
	// TablesUntil is the group whose angles ceased to be buffers, Tables the number of positions in them, or zero.
	OwnUntil, TablesUntil trace.FunctionSharers
	Own                   bool
	Tables                int64
	// TuneTables is the number of rows of angles in fp32 that torchtune's modules hold; zero without them.
	TuneTables int64
}

// Scale is how the embeddings are scaled.
type Scale string

const (
	// Unscaled means no scaling.
	Unscaled Scale = ""
	// ByBuffer multiplies by a buffer, as Gemma does.
	ByBuffer Scale = "ByBuffer"
	// ByNumber multiplies by a Python number, as Granite does.
	ByNumber Scale = "ByNumber"
)

// TorchNames maps Go names of modules to their names in PyTorch.
type TorchNames = nn.TorchNames

// LayerFlags marks some of the layers; nil marks none.
type LayerFlags []bool

func (s LayerFlags) isSet(i int) bool { return i < len(s) && s[i] }

// mixerKinds reports whether layer i has attention, and whether it has a recurrent mixer, which masks padding itself.
func (c *Config) mixerKinds(i int) (attends, recurs bool) {
	if kind, ok := c.blockKind(i); ok {
		return kind == AttentionBlock, kind == MixerBlock
	}
	recurs = c.DeltaNet.Layers.isSet(i)
	return !recurs, recurs
}

// PlainAttention reports whether every layer uses transformers' attention interface with rotary embeddings: without
// latent attention, sinks, caps or other token mixers.
func (c *Config) PlainAttention() bool {
	return c.HasOnlyAttention() && c.Latent.Rank == 0 && !c.Sinks && !c.AttentionCap
}

// CanShardProjections reports whether ranks can shard every projection by rows or columns without communication between
// projections, that is, whether no linear layer computes several projections.
func (c *Config) CanShardProjections() bool {
	return c.PlainAttention() && c.QKV != OneProjection && c.MLP != FusedGated
}

// HasOnlyAttention reports whether every layer has attention, so that a cache holds only keys and values.
func (c *Config) HasOnlyAttention() bool {
	for i := range int(c.Layers) {
		if attends, _ := c.mixerKinds(i); !attends {
			return false
		}
	}
	return true
}

func (c *Config) hasRotary(i int) bool { return !c.NoRotary && !c.Unrotated.isSet(i) }
