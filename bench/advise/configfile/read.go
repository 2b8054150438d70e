package configfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/vprof/vprof/internal/input"
)

// GroupError reports that the value at a path is a group or a list, where a single value is needed.
type GroupError struct{ File, Path string }

func (e *GroupError) Error() string {
	return fmt.Sprintf("%s: %s: is not a single value", e.File, e.Path)
}

// Read returns the single values (int64, float64, bool or string) at the given paths of a file. Missing paths are left
// out. A value of another kind is a [*GroupError].
func Read(file string, paths []string) (map[string]any, error) {
	root, err := open(file)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	for _, at := range paths {
		p, err := parsePath(at)
		if err != nil {
			return nil, &KeyError{Path: at, Reason: err.Error()}
		}
		v, ok := lookup(root, p)
		if !ok || v == nil {
			continue
		}
		switch v.(type) {
		case int64, float64, bool, string:
		default:
			return nil, &GroupError{file, at}
		}
		if s, ok := v.(string); ok && strings.Contains(s, "${") {
			return nil, fmt.Errorf("%s: %s: the value %s refers to another key, which vprof does not follow; set it "+
				"by a flag", file, at, s)
		}
		values[at] = v
	}
	return values, nil
}

// Value reads the single value at a path, as [Read] does; nil if it is missing.
func Value(file, at string) (any, error) {
	have, err := Read(file, []string{at})
	return have[at], err
}

// Keys returns the paths of all single values and lists of a file, in order.
func Keys(file string) ([]string, error) {
	root, err := open(file)
	keys := leafPaths(nil, root, "")
	slices.Sort(keys)
	return keys, err
}

// leafPaths appends the paths of all values that are not groups, at a path and below it.
func leafPaths(to []string, v any, at string) []string {
	group, ok := v.(map[string]any)
	if !ok && at != "" {
		return append(to, at)
	}
	for key, v := range group {
		if key == "" || strings.ContainsRune(key, '.') {
			key = `"` + key + `"`
		}
		to = leafPaths(to, v, strings.TrimPrefix(at+"."+key, "."))
	}
	return to
}

// open reads a file and decodes it by its suffix.
func open(file string) (any, error) {
	format, err := FormatOf(file)
	if err != nil {
		return nil, err
	}
	data, err := input.ReadUpTo(file, maxFileBytes)
	if err != nil {
		return nil, err
	}
	root, err := decode(format, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return root, nil
}

func decode(f Format, data []byte) (any, error) {
	switch f {
	case TOML:
		v := map[string]any{}
		if err := toml.Unmarshal(data, &v); err != nil {
			return nil, tomlError(err)
		}
		return v, nil
	case JSON:
		return readJSON(data)
	}
	root, err := parseYAML(data)
	if err != nil {
		return nil, err
	}
	var v any
	err = root.Decode(&v)
	return convertIntegers(v), err
}
