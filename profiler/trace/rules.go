package trace

import (
	"fmt"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// Rules are the behavior of PyTorch and its libraries that differs between releases, as plain data. A recording reads
// them and changes nothing in them. Package stack holds the rules of each release.
type Rules struct {
	// Products are the sizes of cuBLAS's and cuBLASLt's workspaces.
	Products Workspaces
	// Attention describes the choice among the fused attention kernels.
	Attention AttentionRules
	// CUB describes the tunings of CUB's sorts and scans.
	CUB CUB
	// Convolutions describes cuDNN's choice of engines and its workspaces.
	Convolutions *cudnn.Rules
	// LinearLoss describes how linear_cross_entropy divides the rows into chunks.
	LinearLoss LinearLossRules
	// Operators holds the differences of single operators.
	Operators Operators
	// GatherEndsFirst: if true, fully_shard frees an all-gather's buffer before it copies out the next one.
	GatherEndsFirst bool
	// ReduceFreesAll: if true, fully_shard frees all unsharded gradients once they are copied to the reduction's input.
	// Otherwise it frees the last ones after the reduction.
	ReduceFreesAll bool
	// StagesReceiveLate: if true, a pipeline stage allocates each receive buffer when the tensor arrives and frees each
	// output once it is sent, and fully_shard runs its post-backward once for all micro-batches, from the last module
	// to the first. If false, the receive buffers of all micro-batches live throughout, each output lives until its
	// backward, and fully_shard's post-backward goes from the first module to the last.
	StagesReceiveLate bool
	// TF32 selects the fp32 operators that compute in TF32 on GPUs of compute capability 8.0 or higher.
	TF32 TF32
	// Libraries holds the differences of other libraries, such as transformers and TRL.
	Libraries Libraries
}

// TF32 selects the fp32 operators that may compute in TF32 (allow_tf32 of torch.backends).
type TF32 uint8

// The values of TF32. By default, PyTorch uses TF32 for convolutions only.
const (
	ConvolutionsInTF32 TF32 = iota
	AllInTF32
	NoneInTF32
)

// FunctionSharers is a set of transformers' models whose code calls functions shared by all models: the models of a
// group below, and of all groups before it.
type FunctionSharers uint8

// The groups of models, in the order in which releases of transformers moved them to shared functions.
const (
	SharedByNone       FunctionSharers = iota
	SharedByLlama                      // losses of Llama and most decoders
	SharedByStarcoder2                 // its loss, too
	SharedByMistral                    // losses of Mistral, Granite, GPT-2 and OPT, and attention of all but GPT-NeoX
	SharedByNeoX                       // all of GPT-NeoX
)

// UnmarshalText parses a group's name, such as "Mistral".
func (s *FunctionSharers) UnmarshalText(text []byte) (err error) {
	*s, err = groupOf(text, map[string]FunctionSharers{
		"Llama": SharedByLlama, "Starcoder2": SharedByStarcoder2, "Mistral": SharedByMistral, "GPT-NeoX": SharedByNeoX,
	})
	return err
}

// FusedAttentionModels is a set of transformers' models that use scaled_dot_product_attention by default: the models of
// a group below, and of all groups before it. Other models use eager attention.
type FusedAttentionModels uint8

// The groups of models, in the order in which releases of transformers gave them fused attention.
const (
	FusedByLlama   FusedAttentionModels = iota // decoders like Llama, and all models that no group names
	FusedByBERT                                // BERT
	FusedByGPT                                 // GPT-2 and GPT-NeoX
	FusedByRoBERTa                             // RoBERTa, XLM-RoBERTa, CamemBERT and Phi-3
	FusedByOPT                                 // OPT and DistilBERT
)

// UnmarshalText parses a group's name, such as "RoBERTa".
func (m *FusedAttentionModels) UnmarshalText(text []byte) (err error) {
	*m, err = groupOf(text, map[string]FusedAttentionModels{
		"BERT": FusedByBERT, "GPT": FusedByGPT, "RoBERTa": FusedByRoBERTa, "OPT": FusedByOPT,
	})
	return err
}

// groupOf returns the group with the given name.
func groupOf[T any](model []byte, groups map[string]T) (T, error) {
	group, known := groups[string(model)]
	if !known {
		return group, fmt.Errorf("there is no group of models %q", model)
	}
	return group, nil
}

// Libraries is the behavior of libraries besides PyTorch that differs between releases. The zero value is the oldest
// known release of each library.
type Libraries struct {
	// SharedFunctions are the models that call transformers' shared functions for loss and attention. Most other models
	// keep fp32 logits in place of the logits, and copy heads only if there is a mask.
	SharedFunctions FunctionSharers
	// SharedAngles are the models that compute the angles of rotary embeddings once for all layers. NoTables are the
	// models that do not store these angles in buffers.
	SharedAngles, NoTables FunctionSharers
	// FusedAttention are the models that use scaled_dot_product_attention by default.
	FusedAttention FusedAttentionModels
	// ShiftsLabels: if true, the loss of causal models shifts the labels. Otherwise it copies the logits without the
	// last token of each sequence.
	ShiftsLabels bool
	// ReadsPositions: if true, masks are computed from position ids, so that packed sequences do not attend to each
	// other. Otherwise a batch without padding has no mask.
	ReadsPositions bool
	// SkipsMasks: if true, a batch without padding has no mask unless rows hold several sequences.
	SkipsMasks bool
	// PlainScores: if false, OPT's eager attention clamps the scores to the lowest number of their dtype, and saves the
	// scores before the clamp for backward.
	PlainScores bool
	// LayersCheckpoint: if true, a checkpointed layer wraps its own call (GradientCheckpointingLayer). Otherwise the
	// model wraps the call, so that hooks and wrappers of the layer are recomputed, too.
	LayersCheckpoint bool
	// GroupedHeads: if true, scaled_dot_product_attention without a mask gets fewer heads of key and value than of the
	// query (enable_gqa). Otherwise the heads are repeated.
	GroupedHeads bool
	// ViewedHeads: if true, scaled_dot_product_attention gets views of the heads. Otherwise copies.
	ViewedHeads bool
	// RemapsPositions: if true, masks of packed sequences count positions within each sequence.
	RemapsPositions bool
	// NoCausalBuffers: if true, GPT-2 has no buffers of causal masks.
	NoCausalBuffers bool
	// FusedExperts: if true, one module holds the weights of a layer's experts. Otherwise each has linear layers.
	FusedExperts bool
	// EagerCaps: if true, Gemma 2, whose attention scores are capped, uses eager attention by default. Otherwise it
	// uses fused attention without the cap.
	EagerCaps bool
	// SolvesDelta: if true, the gated delta rule solves a triangular system for each chunk of tokens. Otherwise it
	// loops over the rows of a chunk.
	SolvesDelta bool
	// ChunksLoss: if true, TRL's SFTTrainer computes its default loss in chunks of tokens. Otherwise the model does.
	ChunksLoss bool
	// ChunksInHalf: if true, ChunksLoss multiplies in the dtype of the hidden states. Otherwise in fp32.
	ChunksInHalf bool
	// ScalesAnew: if true, TRL's GRPOTrainer divides logits by the temperature into a new tensor, else in place.
	ScalesAnew bool
	// LogKernels: if true, TRL computes log-probabilities and entropies in one kernel, else row by row.
	LogKernels bool
	// FusedHead: if true, TRL's trainers (SFTTrainer included) compute log-probabilities from hidden states in tiles.
	FusedHead bool
}

// Workspaces are the sizes of the scratch memory of matrix products.
type Workspaces struct {
	// BLAS is the workspace of a cuBLAS handle, in bytes.
	BLAS ByCapability
	// Epilogue is the workspace in bytes of cuBLASLt, which adds the bias of linear layers. Zero means that it uses the
	// workspace of the cuBLAS handle.
	Epilogue int64
	// PerCall: if true, each product allocates its workspace and frees it. Otherwise a thread's first product allocates
	// the workspace, and the handle keeps it.
	PerCall bool
}

// AttentionRules describe how scaled_dot_product_attention chooses its kernels.
type AttentionRules struct {
	// CuDNNFirst lists the major compute capabilities on which PyTorch prefers cuDNN's kernels.
	CuDNNFirst []int
	// EfficientGrouped: if true, memory-efficient kernels accept fewer heads of key and value than of the query.
	EfficientGrouped bool
	// OneHead: if true, a single head of key and value serves all heads of the query even without enable_gqa.
	OneHead bool
	// EfficientSeeds: if true, memory-efficient kernels without dropout allocate the random generator's seed and offset
	// on the device, 8 bytes each, and keep them for backward.
	EfficientSeeds bool
	// MultiheadFrees: if true, nn.MultiheadAttention frees query, key and value once it has the attention scores.
	MultiheadFrees bool
}

// Operators holds the behavior of single operators that differs between releases.
type Operators struct {
	// ExtremumMasksFirst: if true, the backward of maximum and minimum computes the mask before it halves the gradient.
	ExtremumMasksFirst bool
	// RMSNormInFP32: if true, autocast runs rms_norm in fp32. Otherwise it runs in the type of the input.
	RMSNormInFP32 bool
	// GroupNormWidens: if true, group_norm in half precision copies its statistics to fp32.
	GroupNormWidens bool
	// EmbeddingSortsFewBits: if true, embedding's backward sorts indices by as many bits as row numbers have, else by
	// all.
	EmbeddingSortsFewBits bool
	// ForeachNormByChunk: if true, _foreach_norm allocates a partial result for each chunk, and a table of each
	// tensor's first chunk. Otherwise each tensor has as many partial results as the longest tensor has chunks.
	ForeachNormByChunk bool
	// RankOneByProduct: if true, bmm with k = 1 multiplies elementwise and calls no cuBLAS, except for complex numbers.
	RankOneByProduct bool
	// FusedAdagrad: if true, Adagrad accepts fused=True.
	FusedAdagrad bool
}

// ByCapability is a number that depends on a GPU's compute capability. Rows are in ascending order; the last row at or
// below the GPU's capability applies.
type ByCapability []CapabilityRow

// CapabilityRow is a number that applies from a compute capability on, in tenths: 86 for 8.6.
type CapabilityRow struct {
	From  int
	Value int64
}

// ForCapability returns the number for a GPU; zero below the first row.
func (b ByCapability) ForCapability(capability int) int64 {
	var n int64
	for _, row := range b {
		if row.From <= capability {
			n = row.Value
		}
	}
	return n
}

// ForGPU returns the number for a GPU.
func (b ByCapability) ForGPU(gpu GPU) int64 { return b.ForCapability(gpu.Capability) }

// CUB describes the tunings of CUB's device-wide algorithms. A tile is the elements that a thread block processes.
type CUB struct {
	// Radix lists the policies of radix sorts; the first one that fits applies.
	Radix []RadixPolicy
	// UniqueTile and ScanTile are the tile sizes of unique-by-key and of prefix sums over 64-bit integers.
	UniqueTile, ScanTile ByCapability
}

// RadixPolicy is the tuning of a radix sort from a compute capability on, for keys and values of at least these bytes.
type RadixPolicy struct {
	Capability int
	Key, Value int64
	// Threads is the number of threads of a block, and Items the number of four-byte elements of a thread. Zero selects
	// the older sort, which reads its input twice per digit (no onesweep).
	Threads, Items int64
}

func (c *CUB) radix(gpu GPU, s radixSort) (threads, items int64) {
	for _, p := range c.Radix {
		if p.Capability <= gpu.Capability && p.Key <= s.key && p.Value <= s.value {
			return p.Threads, p.Items
		}
	}
	return 0, 0
}
