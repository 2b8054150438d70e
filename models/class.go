package models

import (
	"encoding/json"
	"maps"
	"reflect"
)

// Class is the class of a library that a model stands for, as vprof capture takes it.
type Class struct {
	// Spec names it: "timm:resnet50", or of transformers "hf:" and the text of its config.json.
	Spec string
	// Inputs are arguments of forward that capture does not give by itself, as name=dtype[dim,...].
	Inputs []string
	// Size is the height and width of images in pixels, Seq the tokens of a text; zero where there are none.
	Size, Seq int
}

// TransformersClass returns a class of transformers with some values of its configuration (the others have their
// defaults) and inputs of the sizes in the settings.
func TransformersClass(class string, s Settings, config map[string]any) Class {
	config["architectures"] = []string{class}
	text, err := json.Marshal(config)
	if err != nil {
		panic(err) // values are names and numbers
	}
	return Class{Spec: "hf:" + string(text), Size: int(s["image-size"]), Seq: int(s["seq-len"])}
}

// ClassOf returns the class that a complete case trains, or the reason why there is none.
func (m Model) ClassOf(c Case) (class Class, reason string) {
	if m.Class == nil {
		return class, m.Name + " is no class of a library; capture your own code, as docs/compile.md has it"
	}
	class = m.Class(c.Settings)
	for _, s := range m.Settings {
		usual := maps.Clone(c.Settings)
		usual[s.Name] = s.Default
		if c.Settings[s.Name] != s.Default && reflect.DeepEqual(m.Class(usual), class) {
			return class, "the library's class does not depend on " + s.Name
		}
	}
	return class, ""
}

// capturedBy returns the command that records the case's step under torch.compile, or the reason why none does.
func (m Model) capturedBy(c Case) string {
	switch _, reason := m.ClassOf(c); {
	case m.Description != (Description{}):
		return "vprof capture --compile records it"
	case reason != "":
		return reason
	default:
		command := "vprof capture " + m.Name + " --compile"
		if c.AMP != "bf16" {
			command += " --amp " + c.AMP.String()
		}
		for _, w := range m.Canonical(c).Settings.Words() {
			command += " --set " + w
		}
		return command + " records it"
	}
}
