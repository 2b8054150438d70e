package hf

import "github.com/vprof/vprof/models"

// The names of the settings of texts.
const (
	lengthSetting = "seq-len"
	packedSetting = "packed"
	flatSetting   = "flat"
	chunksSetting = "chunked-loss"
	keptSetting   = "kept-scores"
	fusedSetting  = "fused-loss"
	linearSetting = "linear-cross-entropy"
	plainSetting  = "plain-loss"
	trlSetting    = "trl-loss"
	// HeadSetting is the name of the setting of the output layer and its loss.
	HeadSetting = "head"
)

// LengthSetting returns the setting of the number of tokens in a row.
func LengthSetting(usual, most int64) models.Setting {
	return models.Setting{
		Name: lengthSetting, Usage: "tokens of a sequence", Length: true, Default: min(usual, most),
		Min: 1, Max: most, Lower: models.Fraction{Num: 1, Den: 2},
	}
}

// Padding is the name of the setting that reports whether rows are padded.
const Padding = "padding"

// PaddingSetting returns the setting that pads rows, which needs a mask.
func PaddingSetting(usual int64) models.Setting {
	return models.Switch(Padding, usual, "1 if a sequence of the batch is padded, 0 if none is")
}

// PaddingNote tells what padding costs.
const PaddingNote = "a batch without padding needs no attention mask, and flash attention serves it in half " +
	"precision: --set padding=0"

// PackedSetting returns the setting that packs several sequences into a row, which needs a mask.
func PackedSetting(usual int64) models.Setting {
	return models.Switch(packedSetting, usual, "1 if rows hold several sequences, 0 if each holds one")
}

// FlatSetting returns the setting that puts all sequences of a batch into one row, which needs a mask over all.
func FlatSetting() models.Setting {
	return models.Switch(flatSetting, 0,
		"1 if all sequences of a batch are in one row without padding (padding_free), 0 if each has a row")
}

// An Implementation of attention is a value of transformers' attn_implementation that a case can choose instead of the
// model's own.
type Implementation string

// The implementations, by the names of their settings.
const (
	// Flash is FlashAttention, a choice for models that are loaded with eager attention or a mask.
	Flash Implementation = "flash"
	// Eager computes scores and keeps them.
	Eager Implementation = "eager"
	// Flex is torch.nn.attention.flex_attention, compiled by TorchInductor.
	Flex Implementation = "flex"
)

var implementationUsage = map[Implementation]string{
	Flash: "1 if FlashAttention serves attention (attn_implementation), 0 if what the model is loaded with does",
	Eager: "1 if attention is eager (attn_implementation), 0 if PyTorch's fused attention serves it",
	Flex: "1 if TorchInductor's kernels of flex_attention serve attention (attn_implementation), 0 if PyTorch's " +
		"fused attention does",
}

// Setting returns the setting by which a case chooses the implementation.
func (i Implementation) Setting() models.Setting {
	return models.Switch(string(i), 0, implementationUsage[i])
}

// Chosen reports whether a case has chosen it.
func (i Implementation) Chosen(c models.Case) bool { return c.On(string(i)) }

// PackedNote tells what packing costs.
const PackedNote = "rows that hold one sequence each need no attention mask, and flash attention serves them in " +
	"half precision: --set packed=0"

// SharedLabels is the name of the setting of labels.
const SharedLabels = "shared-labels"

// SharedLabelsSetting returns the setting by which the labels are the same tensor as the token ids.
func SharedLabelsSetting() models.Setting {
	const usage = "1 if labels are the very tensor of the token ids (labels=input_ids), 0 if they are another, " +
		"as data collators make them"
	return models.Switch(SharedLabels, 0, usage)
}

// Head returns the setting that leaves out the output layer and its loss.
func Head() models.Setting {
	return models.Switch(HeadSetting, 1, "1 if the output layer and its loss are computed, 0 for the layers before it "+
		"alone, whose result is summed up, as benchmarks of layers time them")
}

// LossSettings returns the settings of a language model's logits and loss.
func LossSettings() []models.Setting {
	return append(ChunkSettings(),
		models.Switch(keptSetting, 0, "1 if --set chunked-loss has the scores of all chunks at a time, as torchtune's "+
			"CEWithChunkedOutputLoss does; 0 if one chunk's"),
		models.Switch(plainSetting, 0,
			"1 if PyTorch computes scores and loss where --liger replaces layers, 0 if liger-kernel's fused loss "+
				"does"),
		models.Switch(fusedSetting, 0,
			"1 if liger-kernel's fused linear cross entropy computes scores and loss, 0 if PyTorch does"),
		models.Setting{
			Name: trlSetting, Min: 0, Max: trlNLL,
			Usage: "1 if TRL's SFTTrainer computes scores and loss, by its release (--stack trl=), 2 if it does with " +
				"loss_type=nll, 0 if the model does",
		},
	)
}

// The values of trl-loss.
const (
	trlDefault = 1
	trlNLL     = 2
)

// trlLoss reports whether TRL's SFTTrainer computes logits and loss in place of the model: in tiles, or in chunks.
func trlLoss(c models.Case) (tiles, chunks bool) {
	how := c.Settings[trlSetting]
	if how == 0 {
		return false, false
	}
	rules := c.Libraries()
	return rules.FusedHead, !rules.FusedHead && how == trlDefault && rules.ChunksLoss && !c.Liger
}

// ChunkSettings returns the settings of how PyTorch and torchtune compute logits and loss in chunks of tokens.
func ChunkSettings() []models.Setting {
	return []models.Setting{
		{
			Name: chunksSetting,
			Usage: "chunks of tokens whose scores and loss are computed one after the other, as torchtune's " +
				"LinearCrossEntropyLoss does; 0 for all at once", Default: 0, Min: 0, Max: 1 << 12,
		},
		models.Switch(linearSetting, 0,
			"1 if torch.nn.functional.linear_cross_entropy of PyTorch 2.13 and newer computes scores and loss in "+
				"chunks of tokens, with LinearCrossEntropyOptions() as it is; 0 if not"),
	}
}

// LossSettingNames returns the names of [LossSettings].
func LossSettingNames() []string {
	return []string{chunksSetting, keptSetting, fusedSetting, linearSetting, plainSetting, trlSetting}
}

// CheckLoss returns the first setting of the loss that contradicts another, and the reason.
func CheckLoss(c models.Case) (setting, reason string) {
	if c.On(plainSetting) && (!c.Liger || c.On(fusedSetting)) {
		return plainSetting, "is about --liger without its fused loss; leave it out, or give --liger alone"
	}
	if headless(c) && (fusedLoss(c) || c.Settings[chunksSetting] > 1 || c.On(linearSetting) || !c.Objective.IsZero()) {
		return HeadSetting, "is 0, and another setting is about the loss of the output layer; leave one of them out"
	}
	if c.On(keptSetting) && c.Settings[chunksSetting] < 2 {
		return keptSetting, "is about --set chunked-loss; give that, too"
	}
	if c.Settings[chunksSetting] > 1 && fusedLoss(c) {
		return chunksSetting, "the fused loss of liger-kernel goes through chunks of its own; give one of the two"
	}
	if c.Settings[trlSetting] > 0 && (c.On(fusedSetting) || c.Settings[chunksSetting] > 1 || c.On(linearSetting)) {
		return trlSetting, "another way of computing scores and loss is asked for, too; give one of them"
	}
	if !c.On(linearSetting) {
		return "", ""
	}
	if fusedLoss(c) || c.Settings[chunksSetting] > 1 {
		return linearSetting, "another way of computing scores and loss is asked for, too; give one of them"
	}
	if s, err := c.Release(); err == nil && !s.Rules().LinearLoss.Known {
		return linearSetting, "PyTorch " + c.ReleaseName() +
			" has no linear_cross_entropy, which began with 2.13; use another --torch or --set chunked-loss=N"
	}
	return "", ""
}

// headless reports whether the output layer is left out.
func headless(c models.Case) bool {
	n, given := c.Settings[HeadSetting]
	return given && n == 0
}

// fusedLoss reports whether liger-kernel computes scores and loss.
func fusedLoss(c models.Case) bool {
	tiles, _ := trlLoss(c)
	return !tiles && (c.Liger && !c.On(plainSetting) || c.On(fusedSetting))
}

// ReadsHead reports whether the loss reads the weight of the output layer instead of calling the layer.
func ReadsHead(c models.Case) bool {
	tiles, chunks := trlLoss(c)
	return tiles || chunks || fusedLoss(c) || c.On(linearSetting)
}

// LigerLoss reports whether the fused loss comes from liger-kernel's replacement of modules (--liger), not from a
// setting of its own.
func LigerLoss(c models.Case) bool { return fusedLoss(c) && !c.On(fusedSetting) }

// TextOf reads the settings of a case.
func TextOf(c models.Case) Text {
	tiles, chunks := trlLoss(c)
	return Text{
		Rows: Rows{
			Length: c.Settings[lengthSetting], SharedLabels: c.On(SharedLabels),
			Padded: c.On(Padding), Packed: packingOf(c), Flat: c.On(flatSetting),
		},
		Recomputation: Recomputation{
			Checkpointing: c.Checkpointing, Every: c.Recompute.EveryLayers(), Reentrant: c.Recompute.Reentrant(),
			TrainedOnly: c.Recompute == models.ReentrantTrained,
		},
		LogitsOptions: LogitsOptions{
			FusedLoss: fusedLoss(c), LossChunks: c.Settings[chunksSetting], KeptLogits: c.On(keptSetting),
			LinearLoss: c.On(linearSetting), TiledLoss: tiles, CheckpointedLoss: chunks,
			LoggedLoss: c.Settings[trlSetting] > 0, Headless: headless(c),
		},
		Sharing: Sharing{
			Ranks: int64(max(1, c.GPUs)), Context: contextOf(c), Experts: expertParallelism(c),
			TokenRanks: tensorRanks(c, func(s *models.Strategy) bool { return s.Sequence }),
			VocabRanks: tensorRanks(c, func(s *models.Strategy) bool { return s.ParallelLoss }),
		},
		Objective: c.Objective, AMP: c.AMP, Micro: int64(max(1, c.Accumulate)), Liger: c.Liger, Adapted: c.LoRA != nil,
		Tiles: Tiles{Count: int64(c.TiledMLP), Synchronized: c.GPUs > 1}, Cache: NewKVCache(c),
	}
}

// tensorRanks returns the number of ranks in a tensor-parallel group if does holds for its strategy, else zero.
func tensorRanks(c models.Case, does func(s *models.Strategy) bool) int64 {
	if c.Strategy == nil || !does(c.Strategy) {
		return 0
	}
	return c.Strategy.TP
}

// Positions returns the positions of tokens, nil if the model computes them itself.
func (t Text) Positions() *tensor { return t.positions }
