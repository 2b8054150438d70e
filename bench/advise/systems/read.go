package systems

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/advise/configfile"
	"github.com/vprof/vprof/models"
)

// Read returns the values in a project's configuration file by name ([Names] and settings). Missing values are the
// project's defaults. Values that the project does not read from its configuration are left out.
func (s Project) Read(config string) (map[string]any, error) {
	var paths []string
	for _, k := range s.Keys {
		paths = append(paths, k.Path)
	}
	have, err := configfile.Read(config, paths)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	for name, k := range s.Keys {
		if !s.Supports(name) {
			continue
		}
		v, ok := have[k.Path]
		if !ok {
			if k.Default != nil {
				values[name] = k.Default
			}
			continue
		}
		if values[name], err = k.translate(name, v); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", config, k.Path, err)
		}
	}
	for name, v := range values {
		if n, ok := v.(int); ok {
			values[name] = int64(n)
		}
	}
	return values, nil
}

// StageSettings is one stage of a curriculum: a file beside the configuration, whose settings replace its own.
type StageSettings struct {
	// Name is the file's name without its suffix. Model is the listed model that the stage trains.
	Name, Model string
	Settings    models.Settings
}

// ReadStages reads the stages of a project's curriculum from the files beside its configuration. If written is true, it
// returns them as [Project.Files] would write them. Missing files and keys are left out.
func (s Project) ReadStages(config string, written bool) ([]StageSettings, error) {
	var parts []StageSettings
	for _, stage := range s.Stages {
		have, err := configfile.Read(stage.path(config), slices.Sorted(maps.Keys(stage.Set)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		name := path.Base(stage.File)
		p := StageSettings{strings.TrimSuffix(name, path.Ext(name)), stage.Model, models.Settings{}}
		for key, set := range stage.Set {
			v, found := have[key]
			n, whole := v.(int64)
			switch {
			case written:
				n = set
			case !found:
				continue
			case !whole:
				return nil, fmt.Errorf("%s: %s: %v is not a whole number", stage.path(config), key, v)
			}
			p.Settings[strings.ReplaceAll(key, "_", "-")] = n
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// LargestSettings returns the largest value of each setting among the stages of a curriculum that use a model.
func LargestSettings(parts []StageSettings, model string) models.Settings {
	settings := models.Settings{}
	for _, p := range parts {
		for name, n := range p.Settings {
			if p.Model == model {
				settings[name] = max(settings[name], n)
			}
		}
	}
	return settings
}

// ReadMapped reads values from any other file, by "name=path" pairs as in [Map]. Precision may be a boolean, a number
// of bits, or a name that contains one. A key that the file lacks is an error.
func ReadMapped(config string, pairs []string) (map[string]any, error) {
	values := map[string]any{}
	for _, pair := range pairs {
		name, at, err := parsePair(pair)
		if err != nil {
			return nil, err
		}
		v, err := configfile.Value(config, at)
		if err != nil {
			return nil, err
		}
		if v == nil {
			return nil, fmt.Errorf("%s: the key %s is missing; add it, or leave out %s", config, at, pair)
		}
		if values[name], err = toCaseValue(name, v); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", config, at, err)
		}
	}
	return values, nil
}

// parsePrecision converts a file's precision to vprof's name of that precision.
func parsePrecision(v any) (string, error) {
	switch s := strings.ToLower(fmt.Sprint(v)); {
	case s == "false" || s == "no" || s == "none" || strings.Contains(s, "32"):
		return "none", nil
	case strings.Contains(s, "bf16") || s == "bfloat16":
		return "bf16", nil
	case s == "true" || s == "yes" || s == "half" || strings.Contains(s, "16"):
		return "fp16", nil
	}
	return "", fmt.Errorf("unknown precision %v; use none, fp16 or bf16", v)
}

// translate converts a value of the configuration file to vprof's value.
func (k Key) translate(name string, v any) (any, error) {
	if len(k.Values) == 0 {
		return toCaseValue(name, v)
	}
	var words []string
	for _, ours := range []string{"none", "fp16", "bf16"} {
		theirs := k.Values[ours]
		if fmt.Sprint(theirs) == fmt.Sprint(v) {
			return ours, nil
		}
		words = append(words, fmt.Sprint(theirs))
	}
	return nil, fmt.Errorf("unknown value %v; use one of %s", v, strings.Join(words, ", "))
}

// toCaseValue converts a value of a file to the value of vprof's flag. Values of model settings stay unchanged.
func toCaseValue(name string, v any) (any, error) {
	n, isNumber := v.(int64)
	_, isBool := v.(bool)
	switch {
	case name == "amp":
		return parsePrecision(v)
	case (name == "batch" || name == "accumulate") && !isNumber:
		return nil, fmt.Errorf("%v: need a number of samples, such as 8", v)
	case name == "batch":
		return v, models.CheckBatch(int(n))
	case name == "accumulate":
		return v, models.CheckAccumulate(int(n))
	case name == "checkpointing" && !isBool:
		return nil, fmt.Errorf("%v: need true or false as the value", v)
	}
	return v, nil
}
