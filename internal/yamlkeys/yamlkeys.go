// Package yamlkeys decodes YAML files of users into structs, strictly: an unknown key is an error that names the line
// and the keys that may be meant.
package yamlkeys

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/nearest"
)

// Keyed is a type that decodes its keys itself, and lists them.
type Keyed interface{ Keys() []string }

// Decode decodes the one document of data into the struct that v points to. The error is an [*input.FormatError].
func Decode(file string, data []byte, v any) error {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := d.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return keyError(file, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return &input.FormatError{File: file, Reason: "has more than one document"}
	}
	if err := check(file, doc.Content[0], reflect.TypeOf(v).Elem(), ""); err != nil {
		return err
	}
	if err := doc.Decode(v); err != nil {
		return keyError(file, err)
	}
	return nil
}

// keyError returns yaml's error message in one line, for a file.
func keyError(file string, err error) error {
	if errors.As(err, new(*input.FormatError)) {
		return err
	}
	text := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
	e := &input.FormatError{File: file, Reason: strings.TrimPrefix(text, "unmarshal errors: ")}
	if n, scanErr := fmt.Sscanf(e.Reason, "line %d: ", &e.Line); n == 1 && scanErr == nil {
		_, e.Reason, _ = strings.Cut(e.Reason, ": ")
	}
	e.Reason = typeError.ReplaceAllStringFunc(e.Reason, func(text string) string {
		m := typeError.FindStringSubmatch(text)
		need := map[string]string{"[]": "a list", "int": "a whole number", "float": "a number", "string": "a text"}
		return fmt.Sprintf("invalid value%s: need %s", m[1], cmp.Or(need[m[2]], "another kind of value"))
	})
	return e
}

// typeError matches the message of package yaml about a value of the wrong type, which ends with a Go type.
var typeError = regexp.MustCompile("cannot unmarshal !!\\w+( `[^`]*`)? into (\\[\\]|[a-z]*)\\S*")

// check returns an error for keys that a type does not have. Types that decode themselves check their own keys.
func check(file string, n *yaml.Node, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for n.Kind == yaml.AliasNode {
		// The node that an alias refers to is checked where it is defined, and may contain the alias.
		return nil
	}
	_, own := reflect.New(t).Interface().(yaml.Unmarshaler)
	mapping := n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct
	switch {
	case own && !mapping:
		return nil
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for i, item := range n.Content {
			if err := check(file, item, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case mapping:
		return checkMapping(file, n, t, path)
	}
	return nil
}

func checkMapping(file string, n *yaml.Node, t reflect.Type, path string) error {
	fields, names := map[string]reflect.Type{}, []string{}
	keyed, is := reflect.New(t).Interface().(Keyed)
	if is {
		for _, name := range keyed.Keys() {
			fields[name] = reflect.TypeFor[any]() // checked by the type itself
			names = append(names, name)
		}
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if name != "" && name != "-" {
			fields[name] = t.Field(i).Type
			names = append(names, name)
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		of, known := fields[key.Value]
		if !known {
			near := cmp.Or(nearest.Hint(key.Value, names, 3), "; there are "+strings.Join(names, ", "))
			return &input.FormatError{
				File: file, Line: key.Line, Key: path,
				Reason: fmt.Sprintf("there is no key %s%s", input.Quote(key.Value), near),
			}
		}
		if err := check(file, n.Content[i+1], of, strings.TrimPrefix(path+"."+key.Value, ".")); err != nil {
			return err
		}
	}
	return nil
}
