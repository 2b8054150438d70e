package models

import (
	"fmt"
	"slices"
	"strings"
)

// Caveats returns warnings about a complete case that its values do not show, one sentence each, without the full stop.
func (m Model) Caveats(c Case) []string {
	var caveats []string
	for _, s := range m.Settings {
		if v, given := c.Settings[s.Name]; s.Inert != "" && given && v != s.Default {
			caveats = append(caveats, fmt.Sprintf("%s does not change memory: %s", s.Name, s.Inert))
		}
	}
	if s, err := c.Release(); err == nil {
		caveats = append(caveats, s.Notes()...)
	}
	caveats = append(caveats, c.caveats(&c)...)
	if why := m.NotRecorded(c); why != "" {
		caveats = append(caveats, "torch-compile: not recorded ("+why+"), so that planned is the eager step, with an "+
			"interval that holds what compiled steps of such models need (coefficient torch_compile)")
	}
	caveats = append(caveats, m.loraTargetCaveats(c)...)
	if m.Caveat != nil {
		caveats = append(caveats, m.Caveat(c)...)
	}
	return caveats
}

// NotRecorded returns why a plan does not use a compiled step of the case; empty if it does, or if the case is eager.
func (m Model) NotRecorded(c Case) string {
	switch {
	case !c.Compile:
		return ""
	case m.Unrecorded == nil:
		return m.capturedBy(c)
	}
	return m.Unrecorded(c)
}

// ReadsText reports whether samples are, or may be, text: the batch does not count images, clips or spectrograms.
func (m Model) ReadsText() bool {
	return !slices.Contains([]string{"image", "clip", "spectrogram", "anchor"}, m.BatchUnit)
}

// loraTargetCaveats returns warnings about the targets of adapters: names that match no module, which peft ignores if
// other targets match, and modules whose adapters are not recorded.
func (m Model) loraTargetCaveats(c Case) []string {
	if c.LoRA == nil || len(c.LoRA.Targets) == 0 {
		return nil
	}
	trainer, err := m.Build(c)
	w, ok := trainer.(Wrappable)
	if err != nil || !ok {
		return nil
	}
	const adapter = ".lora_" // in the paths of adapters, where parts have them
	parts := w.Parts()
	shown := slices.ContainsFunc(parts, func(p Part) bool { return strings.Contains(p.Path, adapter) })
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

// StageNote returns a sentence on what one of the model's stages trains.
func (m Model) StageNote(stage string) string {
	if note := m.Trains[stage]; note != "" {
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
