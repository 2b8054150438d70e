package models

import (
	"cmp"

	"github.com/vprof/vprof/internal/options"
)

// QAT is torchao's quantization-aware training: linear layers round weights and inputs to few bits and keep their
// data types. The zero value means no rounding.
type QAT struct {
	// Name is one of [QATKinds].
	Name string
	// Group is the number of weights of a row that share a scale.
	Group int64
}

// The kinds of quantization-aware training.
const (
	// QAT8da4w is torchao's Int8DynActInt4WeightQATQuantizer, which torchtune uses.
	QAT8da4w = "8da4w"
	// QATInt8Int4 rounds weights by Int4WeightFakeQuantizeConfig and inputs to 8 bits per token, as axolotl does.
	QATInt8Int4 = "int8-int4"
)

// QATKinds returns the kinds of quantization-aware training.
func QATKinds() []string { return []string{QAT8da4w, QATInt8Int4} }

var defaultGroupSizes = map[string]int64{QAT8da4w: 256, QATInt8Int4: 32}

// qatOptions holds the options of quantization-aware training.
var qatOptions = options.Table[QAT]{options.NewCount("group", 2, 1<<16, func(q *QAT) *int64 { return &q.Group })}

// ParseQAT parses a kind like "8da4w" or "int8-int4:group=32".
func ParseQAT(text string) (q QAT, err error) {
	err = qatOptions.ReadNamed(&q, &q.Name, "training for quantization", text, QATKinds())
	q.Group = cmp.Or(q.Group, defaultGroupSizes[q.Name])
	return q, err
}

// String returns the text that [ParseQAT] reads; empty for none.
func (q QAT) String() string {
	if q.Group == defaultGroupSizes[q.Name] {
		q.Group = 0
	}
	return qatOptions.FormatNamed(q.Name, &q)
}

// IsZero reports whether there is no quantization-aware training.
func (q QAT) IsZero() bool { return q.Name == "" }

// MarshalText returns the text of String, for [encoding.TextMarshaler].
func (q QAT) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText parses the text that MarshalText returns.
func (q *QAT) UnmarshalText(text []byte) error { return unmarshalText(q, text, ParseQAT) }

// Float8Recipes returns the names of torchao's recipes for float8 training.
func Float8Recipes() []string { return []string{"tensorwise"} }

// Settings of decoders that select how bitsandbytes quantizes their layers, where it differs from the current releases.
const (
	// EarlySetting selects the 4-bit layers of bitsandbytes 0.42.
	EarlySetting = "early-bitsandbytes"
	// PackedHeadSetting quantizes the output layer as well.
	PackedHeadSetting = "packed-head"
	// HalfEmbeddingsSetting keeps embeddings and output layer in half precision, next to norms in fp32.
	HalfEmbeddingsSetting = "half-embeddings"
	// FP32EmbeddingsSetting keeps norms, embeddings and output layer in fp32 if other weights are in half precision.
	FP32EmbeddingsSetting = "fp32-embeddings"
	// DeviceMapSetting is how the model is moved to the GPU: as [Case.LoadsOnGPU] decides (0), by
	// from_pretrained(device_map) (1), or by model.to(device) (2).
	DeviceMapSetting = "device-map"
	// TuneSetting selects torchtune's modules: norms, rotary tables, and adapters without input gradients.
	TuneSetting = "torchtune-modules"
)

// RequiresInputGrads reports whether checkpointing makes input embeddings require gradients, as transformers does.
func (c *Case) RequiresInputGrads() bool { return c.Checkpointing && c.Settings[TuneSetting] == 0 }

// LoadsOnGPU reports whether from_pretrained itself moves the model to the GPU, as it does if bitsandbytes
// quantizes layers. It does not for sharded models, which are moved in parts, nor for libraries that quantize the
// output layer, which have their own loaders.
func (c Case) LoadsOnGPU() bool {
	s := c.Strategy
	if s != nil && s.Name == DeviceMap {
		return true
	}
	if how := c.Settings[DeviceMapSetting]; how != 0 {
		return how == 1
	}
	return c.Quantize != "" && (s == nil || s.Name == DDP) && !c.UsesEarlyBitsandbytes() && !c.QuantizesHead()
}

// UsesEarlyBitsandbytes reports whether 4-bit layers behave as in bitsandbytes 0.42.
func (c Case) UsesEarlyBitsandbytes() bool { return c.IsSwitchOn(EarlySetting) }

// QuantizesHead reports whether the output layer is quantized as well.
func (c Case) QuantizesHead() bool { return c.IsSwitchOn(PackedHeadSetting) }
