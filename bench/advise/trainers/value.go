package trainers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/phrase"
)

// Limits on a file's contents. Trainers' configurations have a few hundred values. Each use of an alias counts anew.
const (
	maxBytes  = 4 << 20
	maxValues = 1 << 13
	maxDepth  = 64
)

// kind is the YAML type of a value.
type kind int

const (
	nullKind kind = iota
	booleanKind
	numberKind
	textKind
	listKind
	groupKind
)

// configValue is a value of a file, with its line.
type configValue struct {
	kind kind
	// text is the scalar as tables write it: true or false for every spelling of a boolean, decimal whole numbers.
	text string
	line int
	// items are the elements of a list. entries are the keys of a group with their values, in the file's order.
	items   []*configValue
	entries []groupEntry
}

// groupEntry is one key of a group with its value. If a key is repeated, its last value counts, as in Python, and twice
// is the line of an earlier one.
type groupEntry struct {
	key   string
	line  int
	twice int
	// argument reports whether the entry is an argument of a command line, which overrides the configuration file.
	argument bool
	value    *configValue
}

// lookup returns the value at a path of keys; nil if there is none.
func (v *configValue) lookup(path string) *configValue {
	key, rest, deeper := strings.Cut(path, ".")
	in := v.get(key)
	if in == nil || !deeper {
		return in
	}
	return in.lookup(rest)
}

// get returns the value of a group's key; nil if the group lacks it.
func (v *configValue) get(key string) *configValue {
	for _, e := range v.entries {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// add adds an entry to a group, or replaces the entry with the same key.
func (v *configValue) add(e groupEntry) {
	for i, old := range v.entries {
		if old.key == e.key {
			e.twice = old.line
			v.entries[i] = e
			return
		}
	}
	v.entries = append(v.entries, e)
}

// setAtPath sets the value of an entry, whose key is a path. For a torchtune component it sets the component's class.
func (v *configValue) setAtPath(e groupEntry) {
	key, rest, deeper := strings.Cut(e.key, ".")
	at := v.get(key)
	switch {
	case deeper && (at == nil || at.kind != groupKind):
		at = &configValue{kind: groupKind, line: e.line}
		v.remove(key)
		v.entries = append(v.entries, groupEntry{key: key, line: e.line, argument: e.argument, value: at})
		fallthrough
	case deeper:
		e.key = rest
		at.setAtPath(e)
		return
	case at != nil && e.value.kind != nullKind && at.get(componentKey) != nil:
		e.key = componentKey
		at.setAtPath(e)
		return
	}
	v.remove(key)
	v.entries = append(v.entries, e)
}

// componentKey is torchtune's key for the class or function that a group configures.
const componentKey = "_component_"

// remove removes a key from a group, if present.
func (v *configValue) remove(key string) {
	v.entries = slices.DeleteFunc(v.entries, func(e groupEntry) bool { return e.key == key })
}

// excerpt formats a value for messages.
func (v *configValue) excerpt() string {
	const most = 40
	switch v.kind {
	case nullKind:
		return "null"
	case listKind:
		return "the list"
	case groupKind:
		return "the group"
	}
	if r := []rune(v.text); len(r) > most {
		return fmt.Sprintf("%q", string(r[:most])+"...")
	}
	if v.kind == textKind {
		return fmt.Sprintf("%q", v.text)
	}
	return v.text
}

// scalars returns the text of a scalar or the texts of a list of scalars. ok is false for null and other values.
func (v *configValue) scalars() (texts []string, ok bool) {
	if v.kind != listKind {
		if v.kind == groupKind || v.kind == nullKind {
			return nil, v.kind == nullKind
		}
		return []string{v.text}, true
	}
	for _, item := range v.items {
		if item.kind == listKind || item.kind == groupKind || item.kind == nullKind {
			return nil, false
		}
		texts = append(texts, item.text)
	}
	return texts, true
}

// document is a file that was read.
type document struct {
	file string
	root *configValue
	// command reports whether the document is a command line.
	command bool
	// facts are implied by the command itself, apart from the trainer's arguments.
	facts facts
	// trainer is the name of the trainer's table, if the command line determines it.
	trainer string
	// script is the Python file that the command line starts, source its path, and starter the program that starts it.
	script, source, starter string
	// task is the kind of training ("dpo") that the command or the user names.
	task string
	// config is the configuration file that the command line names, which its arguments override.
	config string
	// gpuDocument holds the options of accelerate on the command line; nil without accelerate.
	gpuDocument *document
	// notes are notes for the user.
	notes phrase.List
}

// fault returns an error about a place in the document.
func (d *document) fault(line int, key, format string, args ...any) error {
	return &input.FormatError{File: d.file, Line: line, Key: key, Reason: fmt.Sprintf(format, args...)}
}
