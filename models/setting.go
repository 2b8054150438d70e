package models

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/nearest"
)

// Setting is a number of a model that a case can set, such as the length of a sequence or the number of layers.
type Setting struct {
	// Name is the setting's name on the command line: "seq-len".
	Name string `json:"name"`
	// Usage describes the number: "tokens of a sequence".
	Usage string `json:"usage"`
	// Inert is the reason why the setting does not affect memory; empty if it does.
	Inert string `json:"inert,omitempty"`
	// Length reports whether the setting is a length that differs between samples. A batch has its longest sample's.
	Length bool `json:"-"`
	// Default is the value in the model's own project. Min and Max are the limits.
	Default int64 `json:"default"`
	Min     int64 `json:"min"`
	Max     int64 `json:"max"`
	// Trained is the largest value that the model was made for, if larger ones are possible; zero for none.
	Trained int64 `json:"-"`
	// Lower is the factor by which to reduce the value when memory is short, as the project's guide recommends; zero
	// if it should not be reduced.
	Lower Fraction `json:"-"`
}

// SwitchSetting returns a setting whose value is 1 (on) or 0 (off); usage describes both.
func SwitchSetting(name string, usual int64, usage string) Setting {
	return Setting{Name: name, Usage: usage, Default: usual, Min: 0, Max: 1}
}

// IsSwitchOn reports whether the setting with a name is 1 (on).
func (c Case) IsSwitchOn(name string) bool { return c.Settings[name] == 1 }

// A Fraction is a rational number.
type Fraction struct{ Num, Den int64 }

// Settings holds the values of settings by name.
type Settings map[string]int64

// completeSettings fills absent settings with the model's defaults and checks the others.
func (m Model) completeSettings(s Settings) (Settings, error) {
	if len(m.Settings) == 0 && len(s) == 0 {
		return nil, nil
	}
	s = m.withImageSides(s)
	full := Settings{}
	for _, d := range m.Settings {
		full[d.Name] = d.Default
		v, given := s[d.Name]
		if !given {
			continue
		}
		if v < d.Min || v > d.Max {
			return nil, &CaseError{
				Model: m.Name, Field: d.Name,
				Reason: fmt.Sprintf("%d is out of range: %s, from %d to %d", v, d.Usage, d.Min, d.Max),
			}
		}
		full[d.Name] = v
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if _, known := full[name]; !known {
			return nil, &CaseError{
				Model: m.Name, Field: name,
				Reason: "there is no such setting; " + m.settingNames(name),
			}
		}
	}
	return full, nil
}

// withImageSides replaces image-size by height and width for models that have these two settings instead.
func (m Model) withImageSides(s Settings) Settings {
	has := func(name string) bool {
		return slices.ContainsFunc(m.Settings, func(d Setting) bool { return d.Name == name })
	}
	n, given := s["image-size"]
	if !given || has("image-size") || !has("height") || !has("width") {
		return s
	}
	s = maps.Clone(s)
	delete(s, "image-size")
	s["height"], s["width"] = n, n
	return s
}

func (m Model) settingNames(wrong string) string {
	if len(m.Settings) == 0 {
		return "this model has none"
	}
	names := lists.Map(m.Settings, func(d Setting) string { return d.Name })
	if wrong == "flash" && slices.Contains(names, "eager") {
		return "it would change nothing: rows without padding have PyTorch's flash attention, which needs the same"
	}
	near := ""
	if n := nearest.Names(wrong, names, 1); len(n) > 0 {
		near = "near it: " + n[0] + "; "
	}
	return near + "its settings are " + strings.Join(names, ", ")
}
