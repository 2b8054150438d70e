package systems

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/advise/configfile"
	"github.com/vprof/vprof/models"
)

// Read reads the values in a project's configuration file, config, by their names: the values of
// [Names], and of settings. Values that the project does not read from its configuration are
// left out; for those missing in the file the project's own default is returned.
func (s System) Read(config string) (map[string]any, error) {
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
		if !s.Reads(name) {
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

// ReadStages reads the settings of a model from the files of curriculum stages that stand
// beside the configuration. Where several files have a setting the largest value is returned,
// since the stage with most memory decides. Missing files and keys are left out.
func (s System) ReadStages(config, model string) (map[string]int64, error) {
	settings := map[string]int64{}
	for _, stage := range s.Stages {
		if stage.Model != model {
			continue
		}
		have, err := configfile.Read(stage.path(config), slices.Sorted(maps.Keys(stage.Set)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for key, v := range have {
			n, ok := v.(int64)
			if !ok {
				return nil, fmt.Errorf("%s: %s: %v is not a whole number", stage.path(config), key, v)
			}
			name := strings.ReplaceAll(key, "_", "-")
			settings[name] = max(settings[name], n)
		}
	}
	return settings, nil
}

// ReadMapped takes values from any other file, by "name=path" pairs as of [Map].
// Precision may be a yes or no, a number of bits or a name with one in it. A key
// that the file does not have is an error.
func ReadMapped(config string, pairs []string) (map[string]any, error) {
	values := map[string]any{}
	for _, pair := range pairs {
		name, at, err := parsePair(pair)
		if err != nil {
			return nil, err
		}
		have, err := configfile.Read(config, []string{at})
		if err != nil {
			return nil, err
		}
		v, ok := have[at]
		if !ok {
			return nil, fmt.Errorf("%s has no %s; add it, or leave %s out", config, at, pair)
		}
		if values[name], err = inOurTerms(name, v); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", config, at, err)
		}
	}
	return values, nil
}

// precision returns what a file says of precision, in our words.
func precision(v any) (string, error) {
	switch s := strings.ToLower(fmt.Sprint(v)); {
	case s == "false" || s == "no" || s == "none" || strings.Contains(s, "32"):
		return "none", nil
	case strings.Contains(s, "bf16") || s == "bfloat16":
		return "bf16", nil
	case s == "true" || s == "yes" || s == "half" || strings.Contains(s, "16"):
		return "fp16", nil
	}
	return "", fmt.Errorf("%v is no precision; use none, fp16 or bf16", v)
}

// translate returns a value of the file in our words.
func (k Key) translate(name string, v any) (any, error) {
	if len(k.Values) == 0 {
		return inOurTerms(name, v)
	}
	var words []string
	for _, ours := range []string{"none", "fp16", "bf16"} {
		theirs := k.Values[ours]
		if fmt.Sprint(theirs) == fmt.Sprint(v) {
			return ours, nil
		}
		words = append(words, fmt.Sprint(theirs))
	}
	return nil, fmt.Errorf("%v is none of %s", v, strings.Join(words, ", "))
}

// inOurTerms returns a value of a file in the terms of vprof's flags; settings of models stay as they are.
func inOurTerms(name string, v any) (any, error) {
	n, isNumber := v.(int64)
	_, isBool := v.(bool)
	switch {
	case name == "amp":
		return precision(v)
	case (name == "batch" || name == "accumulate") && !isNumber:
		return nil, fmt.Errorf("%v is not a number of samples", v)
	case name == "batch":
		return v, models.CheckBatch(int(n))
	case name == "accumulate":
		return v, models.CheckAccumulate(int(n))
	case name == "checkpointing" && !isBool:
		return nil, fmt.Errorf("%v is not a yes or no", v)
	}
	return v, nil
}
