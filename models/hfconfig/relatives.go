package hfconfig

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/vprof/vprof/models/llama"
	"github.com/vprof/vprof/profiler/trace"
)

// llamaType is a model_type of Llama's family: transformers' defaults for the configuration, and how the model's
// classes differ from Llama's.
type llamaType struct {
	// Name is the prefix of the class names in transformers: Llama in LlamaForCausalLM.
	Name string
	// The defaults of sizes. Without a default, KVHeads equals Heads, and HeadSize is width / heads.
	Vocab, Width, Layers, Heads, KVHeads, HeadSize, Inner, Positions int64
	// Part is the share of each head that rotary embeddings rotate; zero means all of it.
	Part float64
	Tied bool
	// Classes is the prefix of the sequence classification class; empty if it is Name.
	Classes string
	// HiddenAct reports whether hidden_act is read although Base sets an activation.
	HiddenAct bool
	// FusedBy is the group of models with which transformers gave it fused attention by default.
	FusedBy trace.FusedAttentionModels
	// Flex reports whether the model supports flex_attention.
	Flex bool
	// NoClasses reports whether the model has no class for sequence classification. Liger reports whether liger-kernel
	// patches the model.
	NoClasses, Liger bool
	// Tokens reports whether the model has a class for token classification. SettledHead: that class's dropout defaults
	// to hidden_dropout, which is zero by default.
	Tokens, SettledHead bool
	// Unplanned reports whether transformers has no tensor-parallel plan for the model (base_model_tp_plan), or one
	// that leaves attention or shared experts whole.
	Unplanned bool
	// Fused are the names of layers that transformers stores in one parameter for all experts, which peft adapts as a
	// parameter; see [llamaType.addExpertSettings].
	Fused []string
	// Listed maps layer names to the names in releases where each expert has linear layers of its own; nil for none.
	Listed llama.TorchNames
	// Aliases maps Llama's key names to this model_type's: transformers' attribute_map, inverted.
	Aliases map[string]string
	// InWrappers reports whether the model_type occurs only in text_config of multimodal models.
	InWrappers bool
	// Window is the default of sliding_window, for all layers. Zero means none; nil means that read sets the windows.
	Window *int64
	// Base holds how the model's classes differ from Llama's. Keys are rows of [reader.setFields] that set fields of
	// Base from the file, or the name of one of [keyGroups]. read sets fields that depend on several keys.
	Base llama.Config
	Keys string
	read func(r *reader, c *llama.Config)
}

// llamaTypeTable has a row for each model_type of Llama's family.
//
//go:embed relatives.json
var llamaTypeTable []byte

// llamaTypeRows returns the rows by model_type. A row is decoded when it is used, since a command uses one or two.
var llamaTypeRows = sync.OnceValue(func() (rows map[string]json.RawMessage) {
	if err := json.Unmarshal(llamaTypeTable, &rows); err != nil {
		panic("hfconfig: relatives.json: " + err.Error()) // every test finds it
	}
	return rows
})

// llamaTypeOf returns the row of a model_type of Llama's family.
func llamaTypeOf(kind string) (d llamaType, ok bool) {
	row, ok := llamaTypeRows()[kind]
	if !ok {
		return d, false
	}
	j := json.NewDecoder(bytes.NewReader(row))
	j.DisallowUnknownFields()
	if err := j.Decode(&d); err != nil {
		panic(fmt.Sprintf("hfconfig: relatives.json: %s: %v", kind, err)) // the test of all rows finds it
	}
	if keys, ok := keyGroups[d.Keys]; ok {
		d.Keys = keys
	}
	d.read = llamaTypeReaders[kind]
	return d, true
}

// llamaTypeReaders are the functions that read keys which a model_type's row does not describe.
var llamaTypeReaders = map[string]func(r *reader, c *llama.Config){
	"llama":             readLlama,
	"llama4_text":       readLlama4,
	"ministral":         readMinistral,
	"mixtral":           readMixtral,
	"qwen2":             (*reader).readQwenWindows,
	"qwen2_moe":         readQwen2MoE,
	"qwen3":             (*reader).readQwenWindows,
	"qwen3_5_moe_text":  readQwen35MoE,
	"qwen3_5_text":      (*reader).readDeltaNets,
	"qwen3_moe":         readQwen3MoE,
	"qwen3_next":        readQwen3Next,
	"gemma":             readGemma,
	"gemma2":            readGemma2,
	"gemma3_text":       readGemma3,
	"granite":           readLlama,
	"cohere":            readCohere,
	"cohere2":           readCohere2,
	"cwm":               readCWM,
	"deepseek_v2":       readDeepseekV2,
	"deepseek_v3":       readDeepseekV3,
	"dots1":             readDots1,
	"glm4_moe":          readGLM4MoE,
	"glm4_moe_lite":     readGLM4MoELite,
	"gpt_neox":          readNeoX,
	"gpt_oss":           readGPTOSS,
	"internlm3":         readInternLM3,
	"nemotron_h":        readNemotronH,
	"smollm3":           readSmolLM3,
	"solar_open":        readSolarOpen,
	"youtu":             (*reader).readLatentAttention,
	"qwen2_5_vl_text":   (*reader).readQwenVLWindows,
	"qwen2_vl_text":     (*reader).readQwenVLWindows,
	"qwen3_vl_moe_text": readQwen3VLMoE,
	"mllama_text_model": readMllama,
}
