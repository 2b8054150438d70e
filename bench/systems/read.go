package systems

import (
	"fmt"
	"strings"

	"github.com/vprof/vprof/bench/configfile"
)

// Read takes the values of a project's configuration, found at config: those
// that its keys have, by name, in our words. What the project does not read is
// left out, and what the file does not have is what the project does then.
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
		if values[name], err = k.ours(name, v); err != nil {
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

// ours is a value of the file in our words.
func (k Key) ours(name string, v any) (any, error) {
	if len(k.Values) > 0 {
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
	n, isNumber := v.(int64)
	_, isBool := v.(bool)
	switch {
	case (name == "batch" || name == "accumulate") && (!isNumber || n < 1):
		return nil, fmt.Errorf("%v is not a number of samples", v)
	case name == "checkpointing" && !isBool:
		return nil, fmt.Errorf("%v is not a yes or no", v)
	}
	return v, nil
}
