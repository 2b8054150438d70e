package models

// Settings of decoders whose layers bitsandbytes holds in another way than it does now, or
// others of them than transformers has it do.
const (
	// EarlySetting is for layers in 4 bits as bitsandbytes 0.42 has them.
	EarlySetting = "early-bitsandbytes"
	// PackedHeadSetting is for an output layer in few bits.
	PackedHeadSetting = "packed-head"
)

// EarlyLayers says that 4-bit layers are those of bitsandbytes 0.42.
func (c Case) EarlyLayers() bool { return c.On(EarlySetting) }

// PacksHead says that the output layer is quantized with the others.
func (c Case) PacksHead() bool { return c.On(PackedHeadSetting) }
