package models

import (
	"cmp"

	"github.com/vprof/vprof/internal/options"
)

// QAT is torchao's quantization-aware training: linear layers round their weights and inputs to few bits, in their own
// types. The zero value rounds nothing.
type QAT struct {
	// Name is one of [QATs].
	Name string
	// Group is how many weights of a row share a scale.
	Group int64
}

// The kinds of training for quantization.
const (
	// QAT8da4w is Int8DynActInt4WeightQATQuantizer, as in torchtune.
	QAT8da4w = "8da4w"
	// QATInt8Int4 has Int4WeightFakeQuantizeConfig for weights and 8 bits for each token of inputs, as in axolotl.
	QATInt8Int4 = "int8-int4"
)

// QATs returns the names of the kinds.
func QATs() []string { return []string{QAT8da4w, QATInt8Int4} }

// defaultGroupSizes is the group of each kind that names none.
var defaultGroupSizes = map[string]int64{QAT8da4w: 256, QATInt8Int4: 32}

// qatOptions holds the option of all kinds.
var qatOptions = options.Table[QAT]{options.Count("group", 2, 1<<16, func(q *QAT) *int64 { return &q.Group })}

// ParseQAT reads a kind like "8da4w" or "int8-int4:group=32".
func ParseQAT(text string) (q QAT, err error) {
	err = qatOptions.ReadNamed(&q, &q.Name, "training for quantization", text, QATs())
	q.Group = cmp.Or(q.Group, defaultGroupSizes[q.Name])
	return q, err
}

// String returns the form that [ParseQAT] reads; empty for none.
func (q QAT) String() string {
	if q.Group == defaultGroupSizes[q.Name] {
		q.Group = 0
	}
	return qatOptions.Named(q.Name, &q)
}

// IsZero reports whether nothing is rounded.
func (q QAT) IsZero() bool { return q.Name == "" }

// MarshalText implements [encoding.TextMarshaler].
func (q QAT) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (q *QAT) UnmarshalText(text []byte) error { return unmarshal(q, text, ParseQAT) }

// Float8s returns torchao's recipes for linear layers in 8-bit floats.
func Float8s() []string { return []string{"tensorwise"} }

// Settings of decoders whose layers bitsandbytes holds in another way than it does now, or
// others of them than transformers has it do.
const (
	// EarlySetting is for layers in 4 bits as in bitsandbytes 0.42.
	EarlySetting = "early-bitsandbytes"
	// PackedHeadSetting is for a quantized output layer.
	PackedHeadSetting = "packed-head"
	// HalfEmbeddingsSetting is for embeddings and an output layer that stay in half precision beside fp32 norms.
	HalfEmbeddingsSetting = "half-embeddings"
	// DeviceMapSetting is for how a model comes to the device: as [Case.LoadsWeights] says (0), by
	// from_pretrained(device_map) (1), or by model.to(device) (2).
	DeviceMapSetting = "device-map"
)

// LoadsWeights reports whether from_pretrained itself moves the model to the device, as it does where bitsandbytes
// packs layers. Sharded models are moved in parts instead, and libraries that pack the output layer have their own
// loaders.
func (c Case) LoadsWeights() bool {
	s := c.Strategy
	if s != nil && s.Name == DeviceMap {
		return true
	}
	if how := c.Settings[DeviceMapSetting]; how != 0 {
		return how == 1
	}
	return c.Quantize != "" && (s == nil || s.Name == DDP) && !c.ShardsEarly() && !c.PacksHead()
}

// ShardsEarly reports whether 4-bit layers behave as in bitsandbytes 0.42.
func (c Case) ShardsEarly() bool { return c.On(EarlySetting) }

// PacksHead reports whether the output layer is quantized with the others.
func (c Case) PacksHead() bool { return c.On(PackedHeadSetting) }
