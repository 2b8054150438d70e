package hf

import "github.com/vprof/vprof/models"

// The names of settings of text models.
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
	// HeadSetting is the name of the setting that leaves out the output layer and its loss.
	HeadSetting = "head"
)

// LengthSetting returns the setting of the number of tokens in a sequence.
func LengthSetting(usual, most int64) models.Setting {
	return models.Setting{
		Name: lengthSetting, Usage: "tokens of a sequence", Length: true, Default: min(usual, most),
		Min: 1, Max: most, Lower: models.Fraction{Num: 1, Den: 2},
	}
}

// Padding is the name of the setting of padded sequences.
const Padding = "padding"

// PaddingSetting returns the setting that pads sequences, which needs an attention mask.
func PaddingSetting(usual int64) models.Setting {
	return models.Setting{
		Name: Padding, Default: usual, Max: 2, Usage: "1 if a sequence of the batch is padded, 2 if that is so in " +
			"batches of several sequences alone, as collators pad, 0 if none is padded",
	}
}

// IsPadded reports whether a sequence of the batch is padded.
func IsPadded(c models.Case) bool {
	return c.IsSwitchOn(Padding) || c.Settings[Padding] == 2 && c.Batch > 1
}

// PaddingNote is a note on the cost of padding.
const PaddingNote = "a batch without padding needs no attention mask, and flash attention serves it in half " +
	"precision: --set padding=0"

// PackedSetting returns the setting that packs several sequences into a row, which needs a mask.
func PackedSetting(usual int64) models.Setting {
	return models.SwitchSetting(packedSetting, usual, "1 if rows hold several sequences, 0 if each holds one")
}

// FlatSetting returns the setting that puts all sequences of a batch into one row, which needs a mask over them.
func FlatSetting() models.Setting {
	return models.SwitchSetting(flatSetting, 0,
		"1 if all sequences of a batch are in one row without padding (padding_free), 0 if each has a row")
}

// An Implementation is a value of transformers' attn_implementation that a case can choose.
type Implementation string

// The values of attn_implementation, by the names of their settings.
const (
	// Flash is flash-attn, for models that use eager attention or a mask by default.
	Flash Implementation = "flash"
	// Eager computes the attention scores and keeps them.
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

// Setting returns the setting that chooses the implementation.
func (i Implementation) Setting() models.Setting {
	return models.SwitchSetting(string(i), 0, implementationUsage[i])
}

// IsChosen reports whether a case chooses the implementation.
func (i Implementation) IsChosen(c models.Case) bool { return c.IsSwitchOn(string(i)) }

// PackedNote is a note on the cost of packing.
const PackedNote = "rows that hold one sequence each need no attention mask, and flash attention serves them in " +
	"half precision: --set packed=0"

// SharedLabels is the name of the setting that uses the tensor of input_ids also as labels.
const SharedLabels = "shared-labels"

// SharedLabelsSetting returns the setting that uses the tensor of token ids as labels.
func SharedLabelsSetting() models.Setting {
	const usage = "1 if labels are the very tensor of the token ids (labels=input_ids), 0 if they are another, " +
		"as data collators make them"
	return models.SwitchSetting(SharedLabels, 0, usage)
}

// HeadlessSetting returns the setting that leaves out the output layer and its loss.
func HeadlessSetting() models.Setting {
	return models.SwitchSetting(HeadSetting, 1, "1 if the output layer and its loss are computed, 0 for the layers "+
		"before it alone, whose result is summed up, as benchmarks of layers time them")
}

// LossSettings returns the settings of a language model's logits and loss.
func LossSettings() []models.Setting {
	return append(ChunkSettings(),
		models.SwitchSetting(keptSetting, 0, "1 if --set chunked-loss has the scores of all chunks at a time, as "+
			"torchtune's CEWithChunkedOutputLoss does; 0 if one chunk's"),
		models.SwitchSetting(plainSetting, 0,
			"1 if PyTorch computes scores and loss where --liger replaces layers, 0 if liger-kernel's fused loss does"),
		models.SwitchSetting(fusedSetting, 0,
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

// trlLossKind reports whether TRL's SFTTrainer computes logits and loss instead of the model: in tiles, or in chunks.
func trlLossKind(c models.Case) (tiles, chunks bool) {
	how := c.Settings[trlSetting]
	if how == 0 {
		return false, false
	}
	rules := c.Libraries()
	return rules.FusedHead, !rules.FusedHead && how == trlDefault && rules.ChunksLoss && !c.Liger
}

// ChunkSettings returns the settings of PyTorch's and torchtune's losses in chunks of tokens.
func ChunkSettings() []models.Setting {
	return []models.Setting{
		{
			Name: chunksSetting,
			Usage: "chunks of tokens whose scores and loss are computed one after the other, as torchtune's " +
				"LinearCrossEntropyLoss does; 0 for all at once", Default: 0, Min: 0, Max: 1 << 12,
		},
		models.SwitchSetting(linearSetting, 0, "1 if torch.nn.functional.linear_cross_entropy of PyTorch 2.13 and "+
			"newer computes scores and loss in chunks of tokens, with LinearCrossEntropyOptions() as it is; 0 if not"),
	}
}

// LossSettingNames returns the names of [LossSettings].
func LossSettingNames() []string {
	return []string{chunksSetting, keptSetting, fusedSetting, linearSetting, plainSetting, trlSetting}
}

// CheckLoss returns the first loss setting that contradicts another one, and the reason.
func CheckLoss(c models.Case) (setting, reason string) {
	if c.IsSwitchOn(plainSetting) && (!c.Liger || c.IsSwitchOn(fusedSetting)) {
		return plainSetting, "is about --liger without its fused loss; leave it out, or give --liger alone"
	}
	if isHeadless(c) &&
		(usesLigerLoss(c) || c.Settings[chunksSetting] > 1 || c.IsSwitchOn(linearSetting) || !c.Objective.IsZero()) {
		return HeadSetting, "is 0, and another setting is about the loss of the output layer; leave one of them out"
	}
	if c.IsSwitchOn(keptSetting) && c.Settings[chunksSetting] < 2 {
		return keptSetting, "is about --set chunked-loss; give that, too"
	}
	if c.Settings[chunksSetting] > 1 && usesLigerLoss(c) {
		return chunksSetting, "the fused loss of liger-kernel goes through chunks of its own; give one of the two"
	}
	if c.Settings[trlSetting] > 0 &&
		(c.IsSwitchOn(fusedSetting) || c.Settings[chunksSetting] > 1 || c.IsSwitchOn(linearSetting)) {
		return trlSetting, "another way of computing scores and loss is asked for, too; give one of them"
	}
	if !c.IsSwitchOn(linearSetting) {
		return "", ""
	}
	if usesLigerLoss(c) || c.Settings[chunksSetting] > 1 {
		return linearSetting, "another way of computing scores and loss is asked for, too; give one of them"
	}
	if s, err := c.Release(); err == nil && !s.Rules().LinearLoss.Known {
		return linearSetting, "PyTorch " + c.ReleaseName() +
			" has no linear_cross_entropy, which began with 2.13; use another --torch or --set chunked-loss=N"
	}
	return "", ""
}

func isHeadless(c models.Case) bool {
	n, given := c.Settings[HeadSetting]
	return given && n == 0
}

// usesLigerLoss reports whether liger-kernel computes logits and loss.
func usesLigerLoss(c models.Case) bool {
	tiles, _ := trlLossKind(c)
	return !tiles && (c.Liger && !c.IsSwitchOn(plainSetting) || c.IsSwitchOn(fusedSetting))
}

// ReadsHeadWeight reports whether the loss reads the output layer's weight instead of calling the layer.
func ReadsHeadWeight(c models.Case) bool {
	tiles, chunks := trlLossKind(c)
	return tiles || chunks || usesLigerLoss(c) || c.IsSwitchOn(linearSetting)
}

// HasLigerLoss reports whether --liger selects liger-kernel's fused loss, rather than the setting fused-loss.
func HasLigerLoss(c models.Case) bool { return usesLigerLoss(c) && !c.IsSwitchOn(fusedSetting) }

// TextOf returns the text options of a case.
func TextOf(c models.Case) Text {
	tiles, chunks := trlLossKind(c)
	return Text{
		SequenceOptions: SequenceOptions{
			Length: c.Settings[lengthSetting], SharedLabels: c.IsSwitchOn(SharedLabels),
			Padded: IsPadded(c), Packed: packingOf(c), Flat: c.IsSwitchOn(flatSetting),
		},
		Recomputation: Recomputation{
			Checkpointing: c.Checkpointing, Every: c.Recompute.EveryLayers(), Reentrant: c.Recompute.Reentrant(),
			TrainedOnly: c.Recompute == models.ReentrantTrained,
		},
		LogitsOptions: LogitsOptions{
			FusedLoss: usesLigerLoss(c), LossChunks: c.Settings[chunksSetting], KeptLogits: c.IsSwitchOn(keptSetting),
			LinearLoss: c.IsSwitchOn(linearSetting), TiledLoss: tiles, CheckpointedLoss: chunks,
			LoggedLoss: c.Settings[trlSetting] > 0, Headless: isHeadless(c),
		},
		Parallelism: Parallelism{
			Ranks: int64(max(1, c.GPUs)), Context: contextOf(c), Experts: expertParallelism(c),
			TokenRanks: tensorParallelRanks(c, func(s *models.Strategy) bool { return s.Sequence }),
			VocabRanks: tensorParallelRanks(c, func(s *models.Strategy) bool { return s.ParallelLoss }),
		},
		Objective: c.Objective, AMP: c.AMP, Micro: int64(max(1, c.Accumulate)), Liger: c.Liger, Adapted: c.LoRA != nil,
		Tiles: Tiles{Count: int64(c.TiledMLP), Synchronized: c.GPUs > 1}, Cache: NewKVCache(c),
	}
}

// tensorParallelRanks returns the number of ranks in a tensor-parallel group if does holds for the strategy, else zero.
func tensorParallelRanks(c models.Case, does func(s *models.Strategy) bool) int64 {
	if c.Strategy == nil || !does(c.Strategy) {
		return 0
	}
	return c.Strategy.TP
}

// Positions returns the position ids; nil if the model creates them.
func (t Text) Positions() *tensor { return t.positions }
