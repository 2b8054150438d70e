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

// Field is one field of a [Case]: how people write and read it on command lines, in files of
// fleets and in the configurations of trainers. See [Fields].
type Field struct {
	// Name is the name of the field's flag and of its key in YAML: "train-only". It is empty for a
	// field that is written as a part of another one.
	Name string
	// JSON is its key in files that vprof writes.
	JSON string
	// Label is what tables and comparisons call it; empty for Name.
	Label string
	// Usage is a line of help, with the name of the value between backquotes; "{values}" stands for all Values.
	Usage string
	// Group is what it is about, and Main reports whether it is among the few that help shows first.
	Group  Group
	IsMain bool
	// Key reports whether --set NAME=VALUE sets it, and no flag of its own.
	Key bool
	// BareValue is the value of a flag that stands alone; empty if it needs one.
	BareValue string
	// Values are the words that it may have; nil if it is free, or if they depend on the model.
	Values func() []string
	// form reads and writes its text; it cannot be read if it has no name.
	form
	// say puts the text into a line about a case; nil says it as it is. Absent is said of a case without one.
	say        func(c *Case, text string) string
	absentText string
}

// form describes how a field is parsed and written; the text is empty if the model decides the value.
type form struct {
	parse func(text string) (func(*Case), error)
	text  func(c *Case) string
}

// Group is the topic of a field.
type Group string

// The groups, in the order of help.
const (
	GroupWhat   Group = "What is trained"
	GroupWhere  Group = "On what"
	GroupHow    Group = "How"
	GroupOutput Group = "Output"
)

// Change is a parsed value of a field, which is valid by itself.
type Change struct {
	Field *Field
	// Text is the value as it was written.
	Text string
	set  func(*Case)
}

// Parse reads a value of the field. The error names the valid values.
func (f *Field) Parse(text string) (Change, error) {
	set, err := f.parse(text)
	return Change{f, text, set}, err
}

// Text returns the value of the field in a case, as [Field.Parse] reads it; empty where the model decides.
func (f *Field) Text(c Case) string { return f.text(&c) }

// Phrase returns the field's label in tables.
func (f *Field) Phrase() string {
	switch {
	case f.Label != "":
		return f.Label
	case f.Name != "":
		return f.Name
	}
	return f.JSON
}

// Help returns the field's usage text, with the given values (or the table's) in place of {values}.
func (f *Field) Help(values []string) string {
	if values == nil && f.Values != nil {
		values = f.Values()
	}
	return strings.ReplaceAll(f.Usage, "{values}", strings.Join(values, ", "))
}

// Patch is a set of chosen values of a case: a change for each field, by its name.
type Patch map[string]Change

// Set adds a change. It replaces an earlier change of the same field.
func (p Patch) Set(c Change) { p[c.Field.Name] = c }

// Apply puts the changes into a case, in the order of the table.
func (p Patch) Apply(c *Case) {
	for i := range fields {
		f := &fields[i]
		if change, given := p[f.Name]; given {
			change.set(c)
		}
	}
}

// Argument returns the words of a command line that set the field to a value.
func (f *Field) Argument(text string) []string {
	switch {
	case f.Key:
		return []string{"--set", f.Name + "=" + text}
	case f.BareValue != "":
		return []string{"--" + f.Name + "=" + text}
	}
	return []string{"--" + f.Name, text}
}

// FieldNamed returns the field with a name; nil if there is none.
func FieldNamed(name string) *Field {
	for i := range fields {
		f := &fields[i]
		if f.Name == name && name != "" {
			return f
		}
	}
	return nil
}

// checkFields returns the first field whose value no flag could set, and normalizes the spelling of the others. Cases
// from files and from code thus follow the same rules as cases from flags.
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

// valued returns the form of a value with its functions that parse and write it.
func valued[T any](read func(string) (T, error), at func(*Case) *T, write func(T) string) form {
	parse := func(text string) (func(*Case), error) {
		value, err := read(text)
		return func(c *Case) { *at(c) = value }, err
	}
	return form{parse, func(c *Case) string { return write(*at(c)) }}
}

// stringForm returns a text in its usual spelling.
func stringForm[T ~string](read func(string) (T, error), at func(*Case) *T) form {
	return valued(read, at, func(value T) string { return string(value) })
}

// textForm returns a form that accepts any text.
func textForm(at func(*Case) *string) form {
	return stringForm(func(text string) (string, error) { return text, nil }, at)
}

// choiceForm returns one of some keywords; what names the value in errors.
func choiceForm[T ~string](what string, values func() []string, at func(*Case) *T) form {
	return stringForm(func(text string) (T, error) {
		value, err := parseOneOf(what, text, values())
		return T(value), err
	}, at)
}

// countForm returns a whole number that passes a check.
func countForm(check func(int) error, at func(*Case) *int) form {
	return valued(func(text string) (int, error) {
		n, err := parseCount(text)
		if err == nil {
			err = check(n)
		}
		return n, err
	}, at, options.FormatNumber)
}

// alsoCalled are values under other names: load_in_4bit and load_in_8bit of transformers.
var alsoCalled = map[string]string{"4bit": "nf4", "8bit": "int8"}

// parseOneOf finds the word that a text spells, in upper or lower case, with hyphens or without.
func parseOneOf(what, text string, values []string) (string, error) {
	if other := alsoCalled[nearest.Normalize(text)]; slices.Contains(values, other) {
		return other, nil
	}
	same := func(v string) bool { return v == text || nearest.Normalize(v) == nearest.Normalize(text) }
	if i := slices.IndexFunc(values, same); i >= 0 && text != "" {
		return values[i], nil
	}
	return "", fmt.Errorf("there is no %s %q; use %s", what, text, strings.Join(values, ", "))
}

// boolForm returns a form that accepts true and false.
func boolForm(at func(*Case) *bool) form {
	return valued(options.ParseBool, at, func(on bool) string {
		if on {
			return "true"
		}
		return ""
	})
}

// typed returns a type that reads and writes itself.
func typed[T fmt.Stringer](read func(string) (T, error), at func(*Case) *T) form {
	return valued(read, at, T.String)
}

// pointed returns the form of an optional part of a case.
func pointed[T any](read func(string) (T, error), at func(*Case) **T, write func(*T) string) form {
	parse := func(text string) (func(*Case), error) {
		value, err := read(text)
		return func(c *Case) { *at(c) = new(value) }, err
	}
	return form{parse, func(c *Case) string { return write(*at(c)) }}
}

// unmarshal sets a value to what parse reads, for [encoding.TextUnmarshaler].
func unmarshal[T any](at *T, text []byte, parse func(string) (T, error)) (err error) {
	*at, err = parse(string(text))
	return err
}

// setting returns one of the model's settings.
func setting(name string) form {
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
	return form{parse, func(c *Case) string {
		if n, given := c.Settings[name]; given {
			return strconv.FormatInt(n, 10)
		}
		return ""
	}}
}

// prefixed puts some words before a text.
func prefixed(words string) func(*Case, string) string {
	return func(_ *Case, text string) string { return words + text }
}

// fixedText returns some words in place of a text.
func fixedText(words string) func(*Case, string) string {
	return func(*Case, string) string { return words }
}

// Words returns the text for the field in a line that describes a case; empty if it is not shown.
func (f *Field) Words(c *Case) string {
	text := f.text(c)
	if f.say == nil || text == "" {
		return cmp.Or(text, f.absentText)
	}
	return f.say(c, text)
}

// LeverWords returns the words of the memory-saving options in use, as in a line about a case.
func (l Levers) LeverWords() []string {
	var all []string
	for i := range fields {
		w := fields[i].Words(&Case{Levers: l})
		if w != "" && w != fields[i].Words(&Case{}) {
			all = append(all, w)
		}
	}
	return all
}
