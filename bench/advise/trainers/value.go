package trainers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/phrase"
)

// The largest contents of a file. Configurations of trainers have a few hundred values; each use of an alias counts its
// values again.
const (
	maxBytes  = 4 << 20
	maxValues = 1 << 13
	maxDepth  = 64
)

// kind is the type of a value.
type kind int

const (
	nullKind kind = iota
	booleanKind
	numberKind
	textKind
	listKind
	groupKind
)

// value is a value of a file, with its line.
type value struct {
	kind kind
	// text is a scalar as in tables: true and false for all spellings of a boolean, whole numbers in decimal.
	text string
	line int
	// items are the elements of a list, entries the keys of a group with their values, in the file's order.
	items   []*value
	entries []entry
}

// entry is a key of a group with its value. A repeated key has its last value, as in Python; twice is then the line of
// an earlier one.
type entry struct {
	key   string
	line  int
	twice int
	// argument reports whether the entry is an argument of a command line, which overrides the file's.
	argument bool
	value    *value
}

// lookup finds the value under a path of keys between dots; nil if there is none.
func (v *value) lookup(path string) *value {
	key, rest, deeper := strings.Cut(path, ".")
	in := v.own(key)
	if in == nil || !deeper {
		return in
	}
	return in.lookup(rest)
}

// own returns the value of a key; nil if there is none.
func (v *value) own(key string) *value {
	for _, e := range v.entries {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// add adds an entry, or replaces the entry with the same key.
func (v *value) add(e entry) {
	for i, old := range v.entries {
		if old.key == e.key {
			e.twice = old.line
			v.entries[i] = e
			return
		}
	}
	v.entries = append(v.entries, e)
}

// put sets the entry at its key, a path with dots. A word for a component of torchtune names the component.
func (v *value) put(e entry) {
	key, rest, deeper := strings.Cut(e.key, ".")
	at := v.own(key)
	switch {
	case deeper && (at == nil || at.kind != groupKind):
		at = &value{kind: groupKind, line: e.line}
		v.remove(key)
		v.entries = append(v.entries, entry{key: key, line: e.line, argument: e.argument, value: at})
		fallthrough
	case deeper:
		e.key = rest
		at.put(e)
		return
	case at != nil && e.value.kind != nullKind && at.own(componentKey) != nil:
		e.key = componentKey
		at.put(e)
		return
	}
	v.remove(key)
	v.entries = append(v.entries, e)
}

// componentKey is torchtune's key with the class or function that a group configures.
const componentKey = "_component_"

// remove takes a key away, if it is there.
func (v *value) remove(key string) {
	v.entries = slices.DeleteFunc(v.entries, func(e entry) bool { return e.key == key })
}

// excerpt returns a value in a message.
func (v *value) excerpt() string {
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

// scalars returns the texts of a scalar that is not null, or of a list of them; ok is false for other values.
func (v *value) scalars() (texts []string, ok bool) {
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
	root *value
	// command reports whether the values are arguments of a command line.
	command bool
	// facts are implied by the command line, besides the trainer's own arguments.
	facts facts
	// trainer is the name of the table, if the command line determines it.
	trainer string
	// script is the name of the Python file that the command line starts, source its path, starter the program before
	// it.
	script, source, starter string
	// task is the word for the kind of training ("dpo"), if the command or the user names it.
	task string
	// config is the configuration file that the command line names, which its arguments override.
	config string
	// gpuDocument is accelerate's configuration for a command line; nil if there is none.
	gpuDocument *document
	// notes are notes for the user.
	notes phrase.List
}

// fault returns an error about a place in the document.
func (d *document) fault(line int, key, format string, args ...any) error {
	return &input.FormatError{File: d.file, Line: line, Key: key, Reason: fmt.Sprintf(format, args...)}
}
