package models

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/nearest"
	"github.com/vprof/vprof/internal/options"
)

// Field is one field of a [Case]: its flag, its keys in YAML and JSON, its help, and how its value is parsed and
// written. See [Fields].
type Field struct {
	// Name is the field's flag and its key in YAML: "train-only". It is empty for a part of another field's value.
	Name string
	// JSON is the field's key in the files that vprof writes.
	JSON string
	// Label is the field's name in tables and comparisons; empty means Name.
	Label string
	// Usage is the flag's help text, with the name of the value in backquotes. "{values}" becomes the list of Values.
	Usage string
	// Group is the topic under which help lists the field. IsMain reports whether the short help shows it.
	Group  Group
	IsMain bool
	// SetOnly reports whether the field has no flag and is set by --set NAME=VALUE.
	SetOnly bool
	// BareValue is the value that the flag sets when it is given without one; empty if it needs one.
	BareValue string
	// Values returns the valid values; nil if any value is valid or the model decides.
	Values func() []string
	// codec parses and writes the value. A field without a name is only written.
	codec
	// phrase puts the value into a line about a case; nil writes the value alone. absentText is written if there is
	// no value.
	phrase     func(c *Case, text string) string
	absentText string
}

// codec parses and writes a field's value. The text is empty if the model decides the value.
type codec struct {
	parse func(text string) (func(*Case), error)
	text  func(c *Case) string
}

// Group is the heading under which help lists a field.
type Group string

// The headings, in the order of help.
const (
	GroupWhat   Group = "What is trained"
	GroupWhere  Group = "On what"
	GroupHow    Group = "How"
	GroupOutput Group = "Output"
)

// Change is a valid value of a field, ready to be set in a case.
type Change struct {
	Field *Field
	// Text is the value as the user wrote it.
	Text string
	set  func(*Case)
}

// Parse parses a value of the field. Its error lists the valid values.
func (f *Field) Parse(text string) (Change, error) {
	set, err := f.parse(text)
	return Change{f, text, set}, err
}

// Text returns the text of the field's value in a case, as [Field.Parse] reads it; empty if the model decides it.
func (f *Field) Text(c Case) string { return f.text(&c) }

// TableLabel returns the field's name in tables: its label or its flag.
func (f *Field) TableLabel() string {
	switch {
	case f.Label != "":
		return f.Label
	case f.Name != "":
		return f.Name
	}
	return f.JSON
}

// Help returns the usage text with {values} replaced by the given values, or by the field's own if there are none.
func (f *Field) Help(values []string) string {
	if values == nil && f.Values != nil {
		values = f.Values()
	}
	return strings.ReplaceAll(f.Usage, "{values}", strings.Join(values, ", "))
}

// Patch is a set of new values for a case, by the names of their fields.
type Patch map[string]Change

// Set adds a value. It replaces an earlier value of the same field.
func (p Patch) Set(c Change) { p[c.Field.Name] = c }

// Apply sets the values in a case, in the order of [Fields].
func (p Patch) Apply(c *Case) {
	for i := range fields {
		f := &fields[i]
		if change, given := p[f.Name]; given {
			change.set(c)
		}
	}
}

// FlagArgs returns the command-line arguments that set the field to a value.
func (f *Field) FlagArgs(text string) []string {
	switch {
	case f.SetOnly:
		return []string{"--set", f.Name + "=" + text}
	case f.BareValue != "":
		return []string{"--" + f.Name + "=" + text}
	}
	return []string{"--" + f.Name, text}
}

// FieldNamed returns the field with a name; nil if none has it.
func FieldNamed(name string) *Field {
	for i := range fields {
		f := &fields[i]
		if f.Name == name && name != "" {
			return f
		}
	}
	return nil
}

// checkFields parses and rewrites the value of every field, as if it came from a flag. It returns the first field
// whose value is invalid. Cases from files and from Go programs thus obey the same rules as flags.
func (c *Case) checkFields() (field, reason string) {
	for i := range fields {
		f := &fields[i]
		if f.parse == nil || f.text(c) == "" {
			continue
		}
		change, err := f.Parse(f.text(c))
		if err != nil {
			return f.Name, err.Error()
		}
		usual := *c
		if change.set(&usual); f.text(&usual) != change.Text {
			*c = usual
		}
	}
	return "", ""
}

// valueCodec returns the codec of a value of any type, given functions that parse and write it.
func valueCodec[T any](read func(string) (T, error), at func(*Case) *T, write func(T) string) codec {
	parse := func(text string) (func(*Case), error) {
		value, err := read(text)
		return func(c *Case) { *at(c) = value }, err
	}
	return codec{parse, func(c *Case) string { return write(*at(c)) }}
}

// stringCodec returns the codec of a text that the parser normalizes.
func stringCodec[T ~string](read func(string) (T, error), at func(*Case) *T) codec {
	return valueCodec(read, at, func(value T) string { return string(value) })
}

// textCodec returns the codec of a field that accepts any text.
func textCodec(at func(*Case) *string) codec {
	return stringCodec(func(text string) (string, error) { return text, nil }, at)
}

// keywordCodec returns the codec of a value that must be one of a list; errors call the value what.
func keywordCodec[T ~string](what string, values func() []string, at func(*Case) *T) codec {
	return stringCodec(func(text string) (T, error) {
		value, err := parseKeyword(what, text, values())
		return T(value), err
	}, at)
}

// countCodec returns the codec of a whole number that must pass a check.
func countCodec(check func(int) error, at func(*Case) *int) codec {
	return valueCodec(func(text string) (int, error) {
		n, err := parseCount(text)
		if err == nil {
			err = check(n)
		}
		return n, err
	}, at, options.FormatNumber)
}

// valueAliases maps other names of values to vprof's: load_in_4bit and load_in_8bit of transformers.
var valueAliases = map[string]string{"4bit": "nf4", "8bit": "int8"}

// parseKeyword returns the value that equals the text, ignoring case and hyphens.
func parseKeyword(what, text string, values []string) (string, error) {
	if other := valueAliases[nearest.Normalize(text)]; slices.Contains(values, other) {
		return other, nil
	}
	same := func(v string) bool { return v == text || nearest.Normalize(v) == nearest.Normalize(text) }
	if i := slices.IndexFunc(values, same); i >= 0 && text != "" {
		return values[i], nil
	}
	return "", fmt.Errorf("there is no %s %q; use %s", what, text, strings.Join(values, ", "))
}

func boolCodec(at func(*Case) *bool) codec {
	return valueCodec(options.ParseBool, at, func(on bool) string {
		if on {
			return "true"
		}
		return ""
	})
}

// stringerCodec returns the codec of a value whose type has a String method.
func stringerCodec[T fmt.Stringer](read func(string) (T, error), at func(*Case) *T) codec {
	return valueCodec(read, at, T.String)
}

// optionalCodec returns the codec of an optional value, which is a nil pointer in the case if absent.
func optionalCodec[T any](read func(string) (T, error), at func(*Case) **T, write func(*T) string) codec {
	parse := func(text string) (func(*Case), error) {
		value, err := read(text)
		return func(c *Case) { *at(c) = new(value) }, err
	}
	return codec{parse, func(c *Case) string { return write(*at(c)) }}
}

// unmarshalText parses the text and sets *at, for implementations of [encoding.TextUnmarshaler].
func unmarshalText[T any](at *T, text []byte, parse func(string) (T, error)) (err error) {
	*at, err = parse(string(text))
	return err
}

// settingCodec returns the codec of a model's setting.
func settingCodec(name string) codec {
	parse := func(text string) (func(*Case), error) {
		n, err := options.ParseInteger(text, 1024)
		if err != nil {
			return nil, err
		}
		return func(c *Case) {
			own := Settings{name: n}
			for other, v := range c.Settings {
				if other != name {
					own[other] = v
				}
			}
			c.Settings = own
		}, nil
	}
	return codec{parse, func(c *Case) string {
		if n, given := c.Settings[name]; given {
			return strconv.FormatInt(n, 10)
		}
		return ""
	}}
}

// addPrefix returns a function that writes a value after some words.
func addPrefix(words string) func(*Case, string) string {
	return func(_ *Case, text string) string { return words + text }
}

// fixedText returns a function that writes the same words for any value.
func fixedText(words string) func(*Case, string) string {
	return func(*Case, string) string { return words }
}

// SummaryText returns the field's part of a line that describes a case; empty if the line leaves it out.
func (f *Field) SummaryText(c *Case) string {
	text := f.text(c)
	if f.phrase == nil || text == "" {
		return cmp.Or(text, f.absentText)
	}
	return f.phrase(c, text)
}

// OptionTexts returns the texts of the memory-saving options that are on, as in a line that describes a case.
func (l MemoryOptions) OptionTexts() []string {
	var all []string
	for i := range fields {
		w := fields[i].SummaryText(&Case{MemoryOptions: l})
		if w != "" && w != fields[i].SummaryText(&Case{}) {
			all = append(all, w)
		}
	}
	return all
}
