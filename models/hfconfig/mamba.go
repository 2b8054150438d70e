package hfconfig

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/llama"
)

// withoutKernels says with every result that what has kernels of its own is recorded as
// transformers runs it without them.
func (a *architecture) withoutKernels(what, packages string) {
	note := fmt.Sprintf("%s is recorded as transformers runs it in PyTorch alone; with the kernels of %s a step needs less", what, packages)
	a.notes = append(a.notes, note)
	a.caveats = func(models.Case) []string { return []string{note} }
}

// noAdaptersBeside refuses adapters where peft does: the kernels of Mamba take the weight of
// that layer and would not see them.
func (a *architecture) noAdaptersBeside(name string) {
	check := a.check
	a.check = func(c models.Case) (setting, reason string) {
		if c.LoRA != nil && c.LoRA.Adapts("model.layers.0.mamba."+name) {
			return "lora", fmt.Sprintf("peft puts no adapters beside %s of Mamba models; name other layers, such as target=q_proj+v_proj+in_proj", name)
		}
		return check(c)
	}
}

// The bounds of mixers.
const (
	mostState = 1 << 12
	mostChunk = 1 << 14
)

// readFalconH1 reads a decoder whose layers have attention and a mixer side by side.
func readFalconH1(r *reader, c *llama.Config) {
	r.biases(c)
	c.MLPBias = r.flag("mlp_bias", false)
	inner := r.sizeOr("mamba_d_ssm", 1024, 0, mostInner)
	if inner == 0 {
		inner = r.size("mamba_expand", 2, mostMerged) * c.Width
	}
	m := llama.Mamba{
		Heads: r.size("mamba_n_heads", 128, mostWidth), Groups: r.size("mamba_n_groups", 1, mostState), State: r.size("mamba_d_state", 256, mostState),
		Kernel: r.size("mamba_d_conv", 4, mostKernel), Chunk: r.size("mamba_chunk_size", 256, mostChunk),
		ConvBias: r.flag("mamba_conv_bias", true), InBias: r.flag("mamba_proj_bias", false), OutBias: r.flag("projectors_bias", false),
		Norm: r.flag("mamba_rms_norm", false), GateLast: r.flag("mamba_norm_before_gate", true),
	}
	m.HeadSize = max(1, inner/m.Heads)
	if value, _, ok := r.get("mamba_d_head"); ok && string(value) != `"auto"` {
		m.HeadSize = r.size("mamba_d_head", m.HeadSize, mostWidth)
	}
	r.must(m.HeadSize*m.Heads == inner, "mamba_n_heads", "%d heads of %d are not mamba_d_ssm %d", m.Heads, m.HeadSize, inner)
	r.must(m.Heads%m.Groups == 0, "mamba_n_groups", "%d do not divide mamba_n_heads %d", m.Groups, m.Heads)
	r.must(inner%m.Groups == 0, "mamba_n_groups", "%d do not divide mamba_d_ssm %d", m.Groups, inner)
	c.Mamba = m
}
