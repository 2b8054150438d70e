package models

// Float8s are how linear layers multiply in 8-bit floats: torchao's recipes.
func Float8s() []string { return []string{"tensorwise"} }

// checkFloat8 finds what does not go together with products in 8-bit floats.
func (l Levers) checkFloat8(m *Model, c *Case) (field, reason string) {
	const at = "float8"
	switch {
	case l.Float8 == "":
	case !m.Levers.QAT:
		return at,
			"vprof puts layers in 8-bit floats in the place of those of transformers (hf:config.json) and of " +
				"exported models (.pt2)"
	case l.Quantize != "" || !l.QAT.IsZero() || c.LoRA != nil:
		return at,
			"vprof records 8-bit floats in models that are trained as a whole; leave out --lora, --quantize and --qat"
	case c.Strategy != nil && c.Strategy.Name != DDP && c.Strategy.Name != FSDP2:
		return at, "vprof records layers in 8-bit floats on one GPU, under ddp and under fsdp2"
	}
	return "", ""
}
