package liger

import (
	"slices"
	"strings"
)

// Kernels are the replacements by liger-kernel 0.8 in one file of transformers (apply_liger_kernel_to_llama and
// similar), as far as vprof describes them.
type Kernels struct {
	// Norm is the class of the file's norms and what takes their place; Gated is the class of
	// feed-forward layers whose product of activation and values is one kernel.
	Norm  string
	Kind  Norm
	Gated string
	// Activation is the only one that the kernel has.
	Activation string
	// Rotary reports whether apply_rotary_pos_emb is replaced.
	Rotary bool
	// Loss is the class whose forward computes logits and loss in chunks.
	Loss string
}

const (
	silu = "silu"
	gelu = "gelu"
)

// usual returns the kernels of most decoders, whose classes begin with name.
func usual(name string) Kernels {
	return Kernels{
		Norm: name + "RMSNorm", Gated: name + "MLP", Activation: silu, Rotary: true,
		Loss: name + "ForCausalLM",
	}
}

func (k Kernels) outOfPlace() Kernels {
	k.Kind.OutOfPlace = true
	return k
}

func (k Kernels) withGELU() Kernels {
	k.Activation = gelu
	return k
}

func (k Kernels) withoutRotary() Kernels {
	k.Rotary = false
	return k
}

func (k Kernels) withGated(class string) Kernels {
	k.Gated = class
	return k
}

// files are the kernels by the folders of transformers' models.
var files = map[string]Kernels{
	"llama":            usual("Llama"),
	"mistral":          usual("Mistral"),
	"ministral":        usual("Ministral"),
	"qwen2":            usual("Qwen2"),
	"qwen3":            usual("Qwen3"),
	"smollm3":          usual("SmolLM3"),
	"hunyuan_v1_dense": usual("HunYuanDenseV1"),
	"phi3":             usual("Phi3"),
	"olmo2":            usual("Olmo2").outOfPlace(),
	"olmo3":            usual("Olmo3").outOfPlace(),
	"exaone4":          usual("Exaone4").outOfPlace(),
	"glm4":             usual("Glm4").outOfPlace().withoutRotary(),
	"gemma":            usual("Gemma").withGELU(),
	"gemma2":           usual("Gemma2").withGELU().outOfPlace(),
	"gemma3":           usual("Gemma3").withGELU().outOfPlace(),
	"gemma4":           usual("Gemma4").withGELU().outOfPlace().withoutRotary().withGated("Gemma4TextMLP"),
}

// others are the files that liger-kernel has kernels for that this package does not describe,
// such as kernels for experts, images, or a loss over all logits at once.
var others = []string{
	"deepseek_v2", "deepseek_v3", "deepseek_v4", "falcon_h1", "glm4v", "glm4v_moe", "gpt_oss", "granite",
	"hunyuan_v1_moe", "internvl", "llama4",
	"llava", "mixtral", "mllama", "muse_glimmer", "nemotron", "paligemma", "pixtral", "qwen2_5_vl", "qwen2_vl",
	"qwen3_5", "qwen3_5_moe",
	"qwen3_moe", "qwen3_next", "qwen3_vl", "qwen3_vl_moe", "smolvlm",
}

// Of splits a class of transformers ("transformers.models.llama.modeling_llama.LlamaMLP") into the kernels for its file
// and its own name; ok is false if liger-kernel replaces nothing in the file, or nothing that vprof supports.
func Of(class string) (k Kernels, name string, ok bool) {
	folder, name := fileOf(class)
	k, ok = files[folder]
	return k, name, ok
}

// Undescribed reports whether liger-kernel replaces classes in the class's file by kernels that vprof does not
// describe, such as vision-language models'.
func Undescribed(class string) bool {
	folder, name := fileOf(class)
	return slices.Contains(others, folder) || files[folder].Norm != "" &&
		strings.HasSuffix(name, "ForConditionalGeneration")
}

// fileOf returns the folder of a class of transformers ("" for other classes) and the class's name.
func fileOf(class string) (folder, name string) {
	rest, ok := strings.CutPrefix(class, "transformers.models.")
	if !ok {
		return "", ""
	}
	folder, rest, _ = strings.Cut(rest, ".")
	name, ok = strings.CutPrefix(rest, "modeling_"+folder+".")
	if !ok {
		return "", ""
	}
	return folder, name
}
