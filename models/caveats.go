package models

import (
	"fmt"
	"slices"
	"strings"
)

// Caveats returns warnings about a complete case, one sentence each, without the full stop.
func (m Model) Caveats(c Case) []string {
	var caveats []string
	for _, s := range m.Settings {
		if v, given := c.Settings[s.Name]; s.Inert != "" && given && v != s.Default {
			caveats = append(caveats, fmt.Sprintf("%s does not change memory: %s", s.Name, s.Inert))
		}
		if v := c.Settings[s.Name]; s.Trained > 0 && v > s.Trained {
			caveats = append(caveats, fmt.Sprintf("%s %d is above the model's max_position_embeddings, %d: the step "+
				"runs, but the model has not learned such positions", s.Name, v, s.Trained))
		}
	}
	if s, err := c.Release(); err == nil {
		caveats = append(caveats, s.Notes()...)
	}
	caveats = append(caveats, c.warnings(&c)...)
	if why := m.NotRecordedReason(c); why != "" {
		caveats = append(caveats, "torch-compile: not recorded ("+why+"), so that planned is the eager step, with an "+
			"interval that holds what compiled steps of such models need (coefficient torch_compile)")
	}
	caveats = append(caveats, m.loraTargetCaveats(c)...)
	if m.Caveat != nil {
		caveats = append(caveats, m.Caveat(c)...)
	}
	return caveats
}

// NotRecordedReason returns the reason why no recorded step under torch.compile can be used. It is empty if one can, or
// without torch.compile.
func (m Model) NotRecordedReason(c Case) string {
	switch {
	case !c.Compile:
		return ""
	case m.Unrecorded == nil:
		return m.captureNote(c)
	}
	return m.Unrecorded(c)
}

// ReadsText reports whether samples can be text, that is, whether they are not images, clips or spectrograms.
func (m Model) ReadsText() bool {
	return !slices.Contains([]string{"image", "clip", "spectrogram", "anchor"}, m.BatchUnit)
}

// loraTargetCaveats returns warnings about names in LoRA's target list: names that match no module, which peft
// ignores if other names match, and modules that are not linear layers, whose adapters vprof does not record.
func (m Model) loraTargetCaveats(c Case) []string {
	if c.LoRA == nil || len(c.LoRA.Targets) == 0 {
		return nil
	}
	trainer, err := m.Build(c)
	w, ok := trainer.(Wrappable)
	if err != nil || !ok {
		return nil
	}
	const adapter = ".lora_" // the paths of adapters contain it
	parts := w.WrappableModules()
	shown := slices.ContainsFunc(parts, func(p WrappableModule) bool { return strings.Contains(p.Path, adapter) })
	var caveats []string
	for _, target := range c.LoRA.Targets {
		all := target == allLinear || target == LinearLayers
		named, adapted := all, all
		for _, p := range parts {
			module, _, beside := strings.Cut(p.Path, adapter)
			if module == target || strings.HasSuffix(module, "."+target) {
				named, adapted = true, adapted || beside
			}
		}
		switch {
		case !named:
			caveats = append(caveats,
				fmt.Sprintf("no module is called %s, which peft passes over where other targets are found", target))
		case shown && !adapted:
			caveats = append(caveats,
				fmt.Sprintf("adapters beside %s, which is no linear layer, are not recorded", target))
		}
	}
	return caveats
}

// StageDescription describes the parameters that a freeze stage trains.
func (m Model) StageDescription(stage string) string {
	if note := m.TrainedByStage[stage]; note != "" {
		return note
	}
	switch stage {
	case "full":
		return "all parameters"
	case "head":
		return "the last layer alone"
	}
	return ""
}
