package trace

import (
	"fmt"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// Rules are the behavior of PyTorch and its libraries that differs between releases, as plain data. A recording reads
// them and changes nothing in them. Package stack has the rules of each release.
type Rules struct {
	// Products are the workspaces of cuBLAS and cuBLASLt.
	Products Workspaces
	// Attention is the order in which PyTorch tries the fused attention kernels.
	Attention AttentionRules
	// CUB are the tunings of sorts and scans.
	CUB CUB
	// Convolutions are cuDNN's choices and workspaces.
	Convolutions *cudnn.Rules
	// LinearLoss is how linear_cross_entropy divides its rows.
	LinearLoss LinearLossRules
	// Operators are the differences of single operators.
	Operators Operators
	// GatherEndsFirst: fully_shard frees an all-gather before it copies the next one out, instead of afterwards.
	GatherEndsFirst bool
	// ReduceFreesAll: fully_shard frees all gradients once copied, not the last ones after reduction.
	ReduceFreesAll bool
	// StagesReceiveLate: a pipeline stage allocates each tensor when it receives it and frees it when it is sent, and
	// fully_shard ends backward once for all micro-batches, from the last module to the first. If false, buffers of all
	// micro-batches stay, outputs stay until their backward, and fully_shard ends backward from the first to the last.
	StagesReceiveLate bool
	// TF32 is what fp32 operators compute in TF32 from compute capability 8.0 on (torch.backends).
	TF32 TF32
	// Libraries are the rules of libraries beside PyTorch.
	Libraries Libraries
}

// TF32 is which fp32 operators may compute in TF32, on tensor cores.
type TF32 uint8

// The choices; PyTorch's default is convolutions alone.
const (
	ConvolutionsInTF32 TF32 = iota
	AllInTF32
	NoneInTF32
)

// FunctionSharers are models that share functions: a group, and all groups before it.
type FunctionSharers uint8

// The groups that share functions, in the order in which releases of transformers changed them.
const (
	SharedByNone       FunctionSharers = iota
	SharedByLlama                      // losses of Llama and most decoders
	SharedByStarcoder2                 // its loss, too
	SharedByMistral                    // losses of Mistral, Granite, GPT-2 and OPT, and attention of all but GPT-NeoX
	SharedByNeoX                       // all of GPT-NeoX
)

// UnmarshalText reads the model that a group is named after: "Mistral".
func (s *FunctionSharers) UnmarshalText(text []byte) (err error) {
	*s, err = groupOf(text, map[string]FunctionSharers{
		"Llama": SharedByLlama, "Starcoder2": SharedByStarcoder2, "Mistral": SharedByMistral, "GPT-NeoX": SharedByNeoX,
	})
	return err
}

// FusedAttentionModels are models that PyTorch's fused attention serves by default: a group, and all groups before it.
// Attention of later groups is eager.
type FusedAttentionModels uint8

// The groups, in the order in which releases of transformers gave them fused attention.
const (
	FusedByLlama   FusedAttentionModels = iota // decoders like Llama, and all models that no group names
	FusedByBERT                                // BERT
	FusedByGPT                                 // GPT-2 and GPT-NeoX
	FusedByRoBERTa                             // RoBERTa, XLM-RoBERTa, CamemBERT and Phi-3
	FusedByOPT                                 // OPT and DistilBERT
)

// UnmarshalText reads the model that a group is named after: "RoBERTa".
func (m *FusedAttentionModels) UnmarshalText(text []byte) (err error) {
	*m, err = groupOf(text, map[string]FusedAttentionModels{
		"BERT": FusedByBERT, "GPT": FusedByGPT, "RoBERTa": FusedByRoBERTa, "OPT": FusedByOPT,
	})
	return err
}

// groupOf returns the group that is named after a model.
func groupOf[T any](model []byte, groups map[string]T) (T, error) {
	group, known := groups[string(model)]
	if !known {
		return group, fmt.Errorf("unknown group of models %q", model)
	}
	return group, nil
}

// Libraries are how libraries beside PyTorch compute a step; zero is the oldest known release of each.
type Libraries struct {
	// SharedFunctions are the models whose loss and attention are computed by functions that models share. Other models
	// do so themselves: most have logits in fp32 in place of the logits, and copy heads only where there is a mask.
	SharedFunctions FunctionSharers
	// SharedAngles are the models whose layers share the angles of rotary positions. NoTables are the models without
	// angles in buffers.
	SharedAngles, NoTables FunctionSharers
	// FusedAttention are the models whose attention is not eager by default.
	FusedAttention FusedAttentionModels
	// ShiftsLabels: the loss of a causal model shifts the labels, else it copies the logits without each row's last.
	ShiftsLabels bool
	// ReadsPositions: masks are made of the positions of tokens, so that sequences of one row do not see each other.
	// Otherwise rows without a padding mask have no mask.
	ReadsPositions bool
	// SkipsMasks: rows without a padding mask have no mask where each holds one sequence. Otherwise all have one.
	SkipsMasks bool
	// PlainScores: eager attention of OPT leaves its scores as they are. Otherwise it raises them to the least number
	// of their type, and keeps the earlier scores for backward.
	PlainScores bool
	// LayersCheckpoint: a layer that is checkpointed does so in its call (GradientCheckpointingLayer). Otherwise the
	// model checkpoints the call, so that wrappers around the layer run again, too.
	LayersCheckpoint bool
	// GroupedHeads: scaled_dot_product_attention without a mask is given fewer heads of key and value than of the
	// query. Otherwise they are repeated.
	GroupedHeads bool
	// ViewedHeads: it is given heads as they are in memory. Otherwise they are copied to be contiguous.
	ViewedHeads bool
	// RemapsPositions: a mask for several sequences in one row counts positions within each sequence.
	RemapsPositions bool
	// NoCausalBuffers: GPT-2 has no buffers of causal masks.
	NoCausalBuffers bool
	// FusedExperts: the experts of a layer are parameters of one module. Otherwise each has linear layers.
	FusedExperts bool
	// EagerCaps: attention whose scores are capped is eager by default (Gemma 2). Otherwise it leaves the cap out.
	EagerCaps bool
	// SolvesDelta: the gated delta rule solves a triangular system per chunk of tokens, else it goes row by row.
	SolvesDelta bool
	// ChunksLoss: TRL's SFTTrainer computes its default loss in chunks of tokens. Otherwise the model computes it.
	ChunksLoss bool
	// ChunksInHalf: those chunks multiply in the precision of the hidden states. Otherwise they cast to fp32.
	ChunksInHalf bool
	// ScalesAnew: TRL's GRPOTrainer divides logits by the temperature into new memory. Otherwise it does so in place.
	ScalesAnew bool
	// LogKernels: TRL's trainers compute log-probabilities and entropies in one kernel, not by operators, row by row.
	LogKernels bool
	// FusedHead: TRL's trainers, SFTTrainer included, compute log-probabilities of hidden states in tiles.
	FusedHead bool
}

// Workspaces are the sizes of the scratch memory of matrix products.
type Workspaces struct {
	// BLAS is the workspace of a handle of cuBLAS, in bytes.
	BLAS ByCapability
	// Epilogue is the workspace of cuBLASLt, which adds the bias of linear layers, in bytes;
	// zero where it uses the handle's.
	Epilogue int64
	// PerCall: each product allocates its workspace and frees it. Otherwise the first one
	// of a thread allocates it, and the handle keeps it.
	PerCall bool
}

// AttentionRules describe how scaled_dot_product_attention chooses its kernels.
type AttentionRules struct {
	// CuDNNFirst are the major compute capabilities that prefer cuDNN's kernels.
	CuDNNFirst []int
	// EfficientGrouped: the memory-efficient kernels accept fewer heads of key and value than of the query.
	EfficientGrouped bool
	// OneHead: one head of key and value serves all heads of the query, also without enable_gqa.
	OneHead bool
	// EfficientSeeds: without dropout, they allocate a seed and an offset of the
	// random generator on the device, 8 bytes each, and keep them for backward.
	EfficientSeeds bool
	// MultiheadFrees: nn.MultiheadAttention releases query, key and value once it has the attention scores.
	MultiheadFrees bool
}

// Operators describe the behavior of operators that differ between releases.
type Operators struct {
	// ExtremumMasksFirst: the backward of maximum and minimum compares for the mask before it halves the gradient.
	ExtremumMasksFirst bool
	// RMSNormInFP32: autocast runs rms_norm in fp32. Else it runs in the type of the input.
	RMSNormInFP32 bool
	// GroupNormWidens: group_norm of half precision works on copies of its statistics in fp32.
	GroupNormWidens bool
	// EmbeddingSortsFewBits: the backward of embedding sorts its indices by the
	// bits that rows of the weight need. Else by all.
	EmbeddingSortsFewBits bool
	// ForeachNormByChunk: _foreach_norm has a partial result for each chunk, and a table of each tensor's first one.
	// Otherwise each tensor has as many partial results as the longest has chunks.
	ForeachNormByChunk bool
	// RankOneByProduct: batched products over a single element (bmm with k = 1)
	// multiply elements and call no cuBLAS, except for complex numbers.
	RankOneByProduct bool
	// FusedAdagrad: Adagrad has an implementation in one kernel.
	FusedAdagrad bool
}

// ByCapability is a number that depends on a GPU's compute capability: rows in ascending
// order, of which the last one at or below the GPU's capability applies.
type ByCapability []CapabilityRow

// CapabilityRow is a number from a compute capability on, in tenths: 86 for 8.6.
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

// CUB is how CUB's device-wide algorithms are tuned. A tile is the elements that one block of threads handles.
type CUB struct {
	// Radix are the policies of radix sorts: the first row that fits applies.
	Radix []RadixPolicy
	// UniqueTile and ScanTile are the tiles of unique-by-key and of prefix sums over 64-bit integers.
	UniqueTile, ScanTile ByCapability
}

// RadixPolicy is how a radix sort runs on GPUs of at least a compute
// capability, with keys and values of at least so many bytes.
type RadixPolicy struct {
	Capability int
	Key, Value int64
	// Threads is the number of threads of a block, and Items the number of four-byte elements that each handles. Zero
	// means a sort that sweeps its input up and down instead of once (no onesweep).
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
