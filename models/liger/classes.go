package liger

import (
	"slices"
	"strings"
)

// Kernels lists the classes and functions in one file of transformers that liger-kernel 0.8 replaces
// (apply_liger_kernel_to_llama and similar), as far as vprof supports them.
type Kernels struct {
	// Norm is the class of norms in the file. Gated is the class of feed-forward layers whose product of activation and
	// values becomes one kernel.
	Norm  string
	Kind  Norm
	Gated string
	// Activation is the only activation function that the kernel of Gated supports.
	Activation string
	// Rotary reports whether apply_rotary_pos_emb is replaced.
	Rotary bool
	// Loss is the class whose forward is replaced to compute logits and loss in chunks.
	Loss string
}

const (
	silu = "silu"
	gelu = "gelu"
)

// decoderKernels returns the kernels of most decoders. name is the prefix of their class names.
func decoderKernels(name string) Kernels {
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

// kernelsOf maps a model's folder in transformers to its kernels.
var kernelsOf = map[string]Kernels{
	"llama":            decoderKernels("Llama"),
	"mistral":          decoderKernels("Mistral"),
	"ministral":        decoderKernels("Ministral"),
	"qwen2":            decoderKernels("Qwen2"),
	"qwen3":            decoderKernels("Qwen3"),
	"smollm3":          decoderKernels("SmolLM3"),
	"hunyuan_v1_dense": decoderKernels("HunYuanDenseV1"),
	"phi3":             decoderKernels("Phi3"),
	"olmo2":            decoderKernels("Olmo2").outOfPlace(),
	"olmo3":            decoderKernels("Olmo3").outOfPlace(),
	"exaone4":          decoderKernels("Exaone4").outOfPlace(),
	"glm4":             decoderKernels("Glm4").outOfPlace().withoutRotary(),
	"gemma":            decoderKernels("Gemma").withGELU(),
	"gemma2":           decoderKernels("Gemma2").withGELU().outOfPlace(),
	"gemma3":           decoderKernels("Gemma3").withGELU().outOfPlace(),
	"gemma4":           decoderKernels("Gemma4").withGELU().outOfPlace().withoutRotary().withGated("Gemma4TextMLP"),
}

// unsupported are the folders in transformers for which liger-kernel has kernels that vprof does not support, such as
// kernels for experts, for images, or for a loss over all logits at once.
var unsupported = []string{
	"deepseek_v2", "deepseek_v3", "deepseek_v4", "falcon_h1", "glm4v", "glm4v_moe", "gpt_oss", "granite",
	"hunyuan_v1_moe", "internvl", "llama4",
	"llava", "mixtral", "mllama", "muse_glimmer", "nemotron", "paligemma", "pixtral", "qwen2_5_vl", "qwen2_vl",
	"qwen3_5", "qwen3_5_moe",
	"qwen3_moe", "qwen3_next", "qwen3_vl", "qwen3_vl_moe", "smolvlm",
}

// KernelsFor returns the kernels for a transformers class's file ("transformers.models.llama.modeling_llama.LlamaMLP"),
// and the class name. ok is false if liger-kernel replaces nothing there, or nothing that vprof supports.
func KernelsFor(class string) (k Kernels, name string, ok bool) {
	folder, name := folderOf(class)
	k, ok = kernelsOf[folder]
	return k, name, ok
}

// IsUndescribed reports whether liger-kernel replaces classes in the file of a transformers class by kernels that vprof
// does not support, such as vision-language models'.
func IsUndescribed(class string) bool {
	folder, name := folderOf(class)
	return slices.Contains(unsupported, folder) || kernelsOf[folder].Norm != "" &&
		strings.HasSuffix(name, "ForConditionalGeneration")
}

// folderOf returns the model's folder of a transformers class (empty for other classes) and the class name.
func folderOf(class string) (folder, name string) {
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
