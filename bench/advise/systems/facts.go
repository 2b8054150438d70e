package systems

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/advise/configfile"
	"github.com/vprof/vprof/internal/input"
)

// UnplannedKey is a configuration key that affects memory and whose value vprof reads but does not recommend.
type UnplannedKey struct {
	Path string `yaml:"path"`
	// Model is a format for [fmt.Sprintf] that makes the name of vprof's model from the key's value.
	Model string `yaml:"model"`
	// Setting is the model setting (--set) that the key sets. Scale converts the key's value to the setting's unit.
	Setting string  `yaml:"setting"`
	Scale   float64 `yaml:"scale"`
	// Planned is the only value that vprof can plan. Why is the note about other values.
	Planned any    `yaml:"planned"`
	Reason  string `yaml:"why"`
}

// Unplanned is a configuration value that vprof cannot plan.
type Unplanned struct {
	Path   string
	Value  any
	Reason string
}

// ReadOtherKeys reads the keys of a project's configuration that affect memory and have no recommendation. It returns
// the model's settings by name, and the values that vprof cannot plan, including unknown keys. A file of another model
// is an [*input.FormatError].
func (s Project) ReadOtherKeys(config, model string) (settings map[string]int64, unplanned []Unplanned, err error) {
	settings = map[string]int64{}
	keys, err := configfile.Keys(config)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range s.Facts {
		at := f.Path
		if f.Model != "" {
			at = s.findKey(at, keys)
		}
		v, err := configfile.Value(config, at)
		if err != nil {
			return nil, nil, err
		}
		if v == nil {
			continue
		}
		wrong := func(format string, args ...any) error {
			return &input.FormatError{File: config, Key: at, Reason: fmt.Sprintf(format, args...)}
		}
		switch named := fmt.Sprintf(f.Model, v); {
		case f.Model != "" && named != model && !strings.HasPrefix(model, named+"-"):
			return nil, nil, wrong("%v is %s, not %s; name it with --model, or mend the file", v, named, model)
		case f.Setting != "":
			var ok bool
			if settings[f.Setting], ok = f.scaledValue(v); !ok {
				return nil, nil, wrong("%v is not a positive number", v)
			}
		case f.Planned != nil && fmt.Sprint(v) != fmt.Sprint(f.Planned):
			unplanned = append(unplanned, Unplanned{f.Path, v, f.Reason})
		}
	}
	read := s.paths()
	for _, key := range keys {
		if why := s.whyIgnored(key, keys, read); why != "" {
			unplanned = append(unplanned, Unplanned{Path: key, Reason: why})
		}
	}
	return settings, unplanned, nil
}

// paths returns the paths of the keys that are read, in order.
func (s Project) paths() (all []string) {
	for _, k := range s.Keys {
		all = append(all, k.Path)
	}
	for _, f := range s.Facts {
		all = append(all, f.Path)
	}
	slices.Sort(all)
	return all
}

// findKey returns the path of a key in a file. If the file lacks the path, it returns one that ends in the same name,
// since users may write a key where the project does not read it.
func (s Project) findKey(path string, keys []string) string {
	if slices.Contains(keys, path) {
		return path
	}
	for _, key := range keys {
		if lastPathElement(key) == lastPathElement(path) && !s.isHarmless(key) {
			return key
		}
	}
	return path
}

func lastPathElement(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// whyIgnored returns the reason why a key that may affect memory is not read: the project does not read it at that
// place, or does not have such a key. The reason is empty for keys that are read or harmless.
func (s Project) whyIgnored(key string, keys, read []string) string {
	if slices.Contains(read, key) {
		return ""
	}
	for _, at := range read {
		if lastPathElement(at) == lastPathElement(key) && !slices.Contains(keys, at) {
			return fmt.Sprintf("%s has it as %s", s.Project, at)
		}
	}
	if s.isHarmless(key) {
		return ""
	}
	return s.Project + " has no such key that vprof knows"
}

// isHarmless reports whether a key has no effect on memory.
func (s Project) isHarmless(key string) bool {
	for group := range s.Harmless {
		for one := range strings.SplitSeq(group, ", ") {
			if key == one || strings.HasPrefix(key, one+".") {
				return true
			}
		}
	}
	return false
}

// scaledValue returns a value of the key in the unit of the model's setting.
func (f UnplannedKey) scaledValue(v any) (int64, bool) {
	n, ok := v.(float64)
	if whole, isWhole := v.(int64); isWhole {
		n, ok = float64(whole), true
	}
	n = math.Round(n * f.Scale)
	return int64(n), ok && n >= 1 && n < 1<<31
}

// ModelOfConfig returns the listed model that a file configures. It recognizes the project by the key of the batch size
// and, for a family of models, by another key. For a file that does not name the model, model is the family, such as
// redimnet-*. found is false if no project matches.
func ModelOfConfig(config string) (model string, found bool) {
	all, err := AllProjects()
	if err != nil {
		return "", false
	}
	for _, s := range all {
		if v, err := configfile.Value(config, s.Keys["batch"].Path); s.Config == "" || err != nil || v == nil {
			continue
		}
		model, found = s.Models[0], !strings.Contains(s.Models[0], "*")
		for _, f := range s.Facts {
			v, err := configfile.Value(config, f.Path)
			if err != nil || v == nil {
				continue
			}
			if found = true; f.Model != "" {
				return fmt.Sprintf(f.Model, v), true
			}
		}
		return model, found
	}
	return "", false
}
