package models

import (
	"encoding/json"
	"maps"
	"reflect"
)

// LibraryClass is the Python class of a model of the registry, with the arguments of vprof capture.
type LibraryClass struct {
	// Spec is the model argument of vprof capture: "timm:resnet50", or "hf:" and the text of a config.json.
	Spec string
	// Inputs are arguments of forward besides the inputs that capture creates, as name=dtype[dim,...].
	Inputs []string
	// Size is the height and width of images in pixels, Seq the number of tokens of a text; zero without such an input.
	Size, Seq int
}

// TransformersClass returns a class of transformers. config holds the values of its configuration that are not
// defaults; the settings give the sizes of its inputs.
func TransformersClass(class string, s Settings, config map[string]any) LibraryClass {
	config["architectures"] = []string{class}
	text, err := json.Marshal(config)
	if err != nil {
		panic(err) // names and numbers can be written as JSON
	}
	return LibraryClass{Spec: "hf:" + string(text), Size: int(s["image-size"]), Seq: int(s["seq-len"])}
}

// LibraryClass returns the class and inputs of a complete case, or the reason why vprof capture cannot record it.
func (m Model) LibraryClass(c Case) (class LibraryClass, reason string) {
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

// captureNote returns a note with the vprof capture command that records the case's step under torch.compile, or the
// reason why there is none.
func (m Model) captureNote(c Case) string {
	switch _, reason := m.LibraryClass(c); {
	case m.Description != (Description{}):
		return "vprof capture --compile records it"
	case reason != "":
		return reason
	default:
		command := "vprof capture " + m.Name + " --compile"
		if c.AMP != "bf16" {
			command += " --amp " + c.AMP.String()
		}
		for _, w := range m.Canonical(c).Settings.Assignments() {
			command += " --set " + w
		}
		return command + " records it"
	}
}
