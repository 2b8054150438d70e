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

// relative is a model_type of Llama's family: transformers' defaults for it, and the differences between its classes
// and Llama's.
type relative struct {
	// Name is the beginning of its classes' names in transformers: Llama of LlamaForCausalLM.
	Name string
	// The sizes that a file may leave out: heads of key and value are as many as heads
	// if there are none here, and heads as wide as the width shared out among them.
	Vocab, Width, Layers, Heads, KVHeads, HeadSize, Inner, Positions int64
	// Part of each head is turned by positions; zero is all of it.
	Part float64
	Tied bool
	// Classes begins the name of the class for sequence classification, Name if empty.
	Classes string
	// HiddenAct reports whether hidden_act is read though Base has an activation.
	HiddenAct bool
	// FusedBy is the group with which PyTorch's fused attention serves it by default.
	FusedBy trace.FusedAttentionModels
	// Flex reports whether its classes can have flex_attention serve attention.
	Flex bool
	// NoClasses reports whether there is no class for sequence classification, Liger that
	// liger-kernel has its kernels for it.
	NoClasses, Liger bool
	// Tokens reports whether there is a class for token classification; SettledHead that its dropout
	// defaults to the dropout of hidden states, which is zero by default.
	Tokens, SettledHead bool
	// Unplanned reports whether transformers has no plan of tensor parallelism for it (base_model_tp_plan), or one that
	// leaves attention or shared experts whole.
	Unplanned bool
	// Fused are the names of layers that transformers has in parameters of all experts, and
	// that peft adapts as such; see [relative.mixture].
	Fused []string
	// Listed are other names of layers, by their names here, where each expert has linear layers; nil if none has.
	Listed llama.TorchNames
	// Aliases maps Llama's names of keys to the file's: the attribute_map, inverted.
	Aliases map[string]string
	// InWrappers reports whether the type stands in text_config of models with towers, and nowhere else.
	InWrappers bool
	// Window is sliding_window, which all layers have, where a file says nothing; zero for none, nil if read reads it.
	Window *int64
	// Base has what its classes do differently from Llama's. Keys are the fields of Base that a file sets, in the form
	// of [reader.fields], or the name of one of [keyGroups]. read sets what needs more than one key.
	Base llama.Config
	Keys string
	read func(r *reader, c *llama.Config)
}

// relativeTable has a row for each type of Llama's family, as transformers defines them.
//
//go:embed relatives.json
var relativeTable []byte

// relativeRows returns the rows by type. They are decoded one by one, since a command needs one or two of them.
var relativeRows = sync.OnceValue(func() (rows map[string]json.RawMessage) {
	if err := json.Unmarshal(relativeTable, &rows); err != nil {
		panic("hfconfig: relatives.json: " + err.Error()) // every test finds it
	}
	return rows
})

// relativeOf returns a type of Llama's family.
func relativeOf(kind string) (d relative, ok bool) {
	row, ok := relativeRows()[kind]
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
	d.read = relativeReaders[kind]
	return d, true
}

// relativeReaders read keys of a type that its row does not describe.
var relativeReaders = map[string]func(r *reader, c *llama.Config){
	"llama":             readLlama,
	"llama4_text":       readLlama4,
	"ministral":         readMinistral,
	"mixtral":           readMixtral,
	"qwen2":             (*reader).qwenWindows,
	"qwen2_moe":         readQwen2MoE,
	"qwen3":             (*reader).qwenWindows,
	"qwen3_5_moe_text":  readQwen35MoE,
	"qwen3_5_text":      (*reader).deltaNets,
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
	"youtu":             (*reader).latent,
	"qwen2_5_vl_text":   (*reader).qwenVLWindows,
	"qwen2_vl_text":     (*reader).qwenVLWindows,
	"qwen3_vl_moe_text": readQwen3VLMoE,
	"mllama_text_model": readMllama,
}
