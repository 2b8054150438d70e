package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vprof/vprof/internal/nearest"
)

// Edit sets one value.
type Edit struct {
	// Path names the value by keys between dots, and items of lists by their index: "training.trainer.devices.0". A key
	// that contains dots is in double quotes.
	Path string
	// Value is an int64, a bool or a string. The file's value must be of the same kind, or null.
	Value any
	// AcceptedValue, if not nil, replaces Value if the file's value has the kind of AcceptedValue: precision is a name
	// in some files and a boolean in others.
	AcceptedValue any
	// Create adds a missing key, with the groups that contain it (YAML and JSON only).
	Create bool
	// Item adds the value to the list at Path (YAML only), unless the list already contains it.
	Item bool
	// Default is the value of a missing key: if it is Value, the key may stay missing.
	Default any
}

// Format is the file format of a configuration: YAML, TOML or JSON.
type Format string

// The supported file formats.
const (
	YAML Format = "YAML"
	TOML Format = "TOML"
	JSON Format = "JSON"
)

// FormatOf returns the format of a file by its suffix.
func FormatOf(path string) (Format, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml":
		return YAML, nil
	case ".toml":
		return TOML, nil
	case ".json":
		return JSON, nil
	}
	return "", fmt.Errorf("%s: the suffix is no known format; use .yaml, .yml, .toml or .json", path)
}

// A KeyError reports that a value cannot be set, and why.
type KeyError struct {
	Path   string
	Reason string
	// Missing reports whether the file lacks the key.
	Missing bool
}

func (e *KeyError) Error() string { return e.Path + ": " + e.Reason }

func (e Edit) keyError(format string, args ...any) error {
	return &KeyError{Path: e.Path, Reason: fmt.Sprintf(format, args...)}
}

// missingKeyError returns the error for a path that the file does not have.
func (e Edit) missingKeyError() error {
	return &KeyError{Path: e.Path, Reason: "there is no such key", Missing: true}
}

// maxFileBytes is the size of the largest configuration file that is read.
const maxFileBytes = 4 << 20

// Splice sets the values in data and leaves every other byte unchanged. The error joins a [*KeyError] for each edit
// that failed, or reports that data is not of the format.
func Splice(f Format, data []byte, edits []Edit) ([]byte, error) {
	switch {
	case len(data) > maxFileBytes:
		return nil, fmt.Errorf("the file is too long for a configuration: %d bytes, and at most %d MiB are read; "+
			"name another file", len(data), maxFileBytes>>20)
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		return nil, errors.New("not UTF-8 text: name a text file")
	}
	splice := map[Format]func([]byte, path, Edit) ([]byte, error){
		YAML: spliceYAML, TOML: spliceTOML,
		JSON: spliceJSON,
	}[f]
	if splice == nil {
		return nil, fmt.Errorf("unknown format %q: need yaml, toml or json", f)
	}
	bom := []byte("\ufeff")
	rest, marked := bytes.CutPrefix(data, bom)
	out := bytes.Clone(rest)
	var wrong []error
	for _, e := range edits {
		p, err := parsePath(e.Path)
		if err != nil {
			wrong = append(wrong, e.keyError("%v", err))
			continue
		}
		next, err := splice(out, p, e)
		if key, ok := errors.AsType[*KeyError](err); ok && key.Missing {
			if e.Default != nil && e.Default == e.Value {
				continue
			}
			err = e.checkAbsent(f, out, p)
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		out = next
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	if marked {
		out = append(bom, out...)
	}
	return out, nil
}

// checkAbsent returns the error for a path that the file lacks; it lists the keys that the file has at that level.
func (e Edit) checkAbsent(f Format, data []byte, p path) error {
	var v any
	var depth int
	if root, err := decode(f, data); err == nil {
		for v = root; depth < len(p); depth++ {
			next, ok := lookup(v, p[depth:depth+1])
			if !ok {
				break
			}
			v = next
		}
	}
	if depth == len(p) {
		return e.keyError("is a group of keys, not a single value")
	}
	reason := fmt.Sprintf("there is no key %q", strings.Join(p[:depth+1], "."))
	if m, ok := v.(map[string]any); ok && len(m) > 0 {
		keys := slices.Sorted(maps.Keys(m))
		if len(keys) > 5 {
			keys = append(nearest.Names(p[depth], keys, 5), "and others")
		}
		reason += " (there are " + strings.Join(keys, ", ") + ")"
	}
	return &KeyError{Path: e.Path, Reason: reason + "; add it to the file, or name another with --map", Missing: true}
}

// path is [Edit.Path] split into keys.
type path []string

// ValidPath returns an error for an invalid path of keys.
func ValidPath(s string) error {
	_, err := parsePath(s)
	return err
}

func parsePath(s string) (path, error) {
	var p path
	for rest := s; ; {
		var key string
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			end := strings.IndexByte(quoted, '"')
			if end < 0 {
				return nil, errors.New("a closing \" is missing from the path of the key; write it like a.\"b.c\".d")
			}
			key, rest = quoted[:end], quoted[end+1:]
			if rest != "" && rest[0] != '.' {
				return nil, errors.New("the path of the key goes on after a closing \"; write a dot and the next " +
					"key, like \"a.b\".c")
			}
		} else {
			end := strings.IndexByte(rest, '.')
			if end < 0 {
				end = len(rest)
			}
			key, rest = rest[:end], rest[end:]
		}
		if key == "" {
			return nil, errors.New("the path of the key is empty or has two dots in a row; write it like " +
				"training.batch_size")
		}
		p = append(p, key)
		if rest == "" {
			return p, nil
		}
		rest = rest[1:]
	}
}

// kind is the type of a value, as error messages name it.
type kind string

const (
	nullKind    kind = "nothing"
	booleanKind kind = "a yes or no"
	numberKind  kind = "a number"
	textKind    kind = "a text"
)

func kindOf(v any) kind {
	switch v.(type) {
	case bool:
		return booleanKind
	case int64:
		return numberKind
	case string:
		return textKind
	}
	panic(fmt.Sprintf("configfile: a value of type %T", v)) // our caller's bug
}

func (e Edit) chooseValue(old kind, shown string) (any, error) {
	for _, v := range []any{e.Value, e.AcceptedValue} {
		if v == nil {
			continue
		}
		k := kindOf(v)
		// A number may become a name: precision 16 and "16-mixed" are both used.
		if k == old || old == nullKind || (k == textKind && old == numberKind && e.AcceptedValue == nil) {
			return v, nil
		}
	}
	if strings.Contains(shown, "${") {
		return nil, e.keyError("is %s, which another key decides; change that", shown)
	}
	return nil, e.keyError("is %s (%s), not %s; nothing was changed", shown, old, kindOf(e.Value))
}

// pathItems is the value of Edit.Item: a list with one element.
type pathItems []any

// formatLiteral returns a value as all three formats write it; text is in double quotes.
func formatLiteral(v any) (string, error) {
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case pathItems:
		word, err := formatLiteral(v[0])
		return "[" + word + "]", err
	case string:
		for _, r := range v {
			if r < ' ' || r == 0x7f || r == utf8.RuneError || (r >= 0x80 && !strconv.IsPrint(r)) {
				return "", fmt.Errorf("%q has control characters, which vprof does not write into a configuration", v)
			}
		}
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`, nil
	}
	panic(fmt.Sprintf("configfile: a value of type %T", v))
}

func replaceRange(data []byte, from, to int, text string) []byte {
	return slices.Concat(data[:from], []byte(text), data[to:])
}

// verifiedSplice returns the spliced document if it parses to the intended result: the old one with one change.
func (e Edit) verifiedSplice(f Format, data, out []byte, change func(before any) bool) ([]byte, error) {
	before, err := decode(f, data)
	after, wrong := decode(f, out)
	if err != nil || wrong != nil || !change(before) || !reflect.DeepEqual(before, after) {
		return nil, e.keyError("cannot be changed safely in this file; change it by hand")
	}
	return out, nil
}

// lookup returns the value at a path of nested maps.
func lookup(v any, p path) (any, bool) {
	for _, key := range p {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[key]; !ok {
			return nil, false
		}
	}
	return v, true
}

// setValue sets the value at a path of nested lists and maps. Missing maps are added.
func setValue(v any, p path, value any) bool {
	switch at := v.(type) {
	case map[string]any:
		if len(p) == 1 {
			at[p[0]] = value
			return true
		}
		if _, ok := at[p[0]]; !ok {
			at[p[0]] = map[string]any{}
		}
		return setValue(at[p[0]], p[1:], value)
	case []any:
		i, err := strconv.Atoi(p[0])
		if err != nil || i < 0 || i >= len(at) {
			return false
		}
		if len(p) == 1 {
			at[i] = value
			return true
		}
		return setValue(at[i], p[1:], value)
	}
	return false
}
