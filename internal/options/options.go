// Package options reads and writes values such as "fsdp2:mp=bf16,replicate=2" by tables of typed keys.
package options

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/nearest"
)

// Option is a key of values of type T.
type Option[T any] struct {
	Key string
	// Names are the names that have the option, such as strategies; nil for all.
	Names []string
	// Read sets the option from its text. Write returns the text, empty for the value that T has without the option.
	Read  func(v *T, text string) error
	Write func(v *T) string
	// IsFlag writes a switch as its key alone. IsList reports that texts without a key that follow are further elements
	// of the option.
	IsFlag, IsList bool
}

// For returns the option restricted to some names (see Names).
func (o Option[T]) For(names ...string) Option[T] {
	o.Names = names
	return o
}

// Table holds all options of a type, in the order of their text.
type Table[T any] []Option[T]

// Pair is a key with its value, as text.
type Pair struct{ Key, Value string }

// Pairs splits a text like "r=8,target=q_proj,v_proj,packed" into options of a name; [Table.Set] judges unknown keys.
func (t Table[T]) Pairs(name, text string) ([]Pair, error) {
	var all []Pair
	for field := range strings.SplitSeq(text, ",") {
		key, value, given := strings.Cut(strings.TrimSpace(field), "=")
		last, known := len(all)-1, t.index(key) >= 0
		switch {
		case given:
		case known && !t.Has(name, key):
			return nil, t.unknown(name, key)
		case known && t.find(name, key).IsFlag:
			value = "true"
		case !known && last >= 0 && t.lists(name, all[last].Key):
			all[last].Value += "+" + key
			continue
		default:
			return nil, fmt.Errorf("%q is not key=value; %s", field, t.keys(name))
		}
		if slices.ContainsFunc(all, func(p Pair) bool { return p.Key == key }) {
			return nil, fmt.Errorf("%s: given twice", key)
		}
		all = append(all, Pair{key, value})
	}
	return all, nil
}

// Read parses the options of a name and sets them in v.
func (t Table[T]) Read(v *T, name, text string) error {
	pairs, err := t.Pairs(name, text)
	for _, p := range pairs {
		if err == nil {
			err = t.Set(v, name, p)
		}
	}
	return err
}

// ReadNamed parses a name, one of names, into at, and the options after a colon into v. what names it in errors.
func (t Table[T]) ReadNamed(v *T, at *string, what, text string, names []string) error {
	name, list, more := strings.Cut(text, ":")
	if !slices.Contains(names, name) {
		return fmt.Errorf("there is no %s %q%s; all: %s", what, name, nearest.Hint(name, names, 2),
			strings.Join(names, ", "))
	}
	if *at = name; !more {
		return nil
	}
	return t.Read(v, name, list)
}

// Set sets one option of a name in v.
func (t Table[T]) Set(v *T, name string, p Pair) error {
	o := t.find(name, p.Key)
	if o == nil {
		return t.unknown(name, p.Key)
	}
	if err := o.Read(v, p.Value); err != nil {
		return fmt.Errorf("%s: %w", p.Key, err)
	}
	return nil
}

// Has reports whether a name has an option.
func (t Table[T]) Has(name, key string) bool { return t.find(name, key) != nil }

// Format formats the options of v that differ from the default, for [Table.Read].
func (t Table[T]) Format(v *T) string {
	var all []string
	for _, o := range t {
		switch text := o.Write(v); {
		case text != "" && o.IsFlag:
			all = append(all, o.Key)
		case text != "":
			all = append(all, o.Key+"="+text)
		}
	}
	return strings.Join(all, ",")
}

// Value formats one option of v; empty for the default. The key must be in the table.
func (t Table[T]) Value(v *T, key string) string { return t[t.index(key)].Write(v) }

// FormatNamed formats a name with the options of v: "fsdp2:mp=bf16", or the name alone.
func (t Table[T]) FormatNamed(name string, v *T) string {
	if text := t.Format(v); text != "" {
		return name + ":" + text
	}
	return name
}

func (o *Option[T]) isFor(name string) bool { return o.Names == nil || slices.Contains(o.Names, name) }

func (t Table[T]) find(name, key string) *Option[T] {
	i := slices.IndexFunc(t, func(o Option[T]) bool { return o.Key == key && o.isFor(name) })
	if i < 0 {
		return nil
	}
	return &t[i]
}

func (t Table[T]) index(key string) int {
	return slices.IndexFunc(t, func(o Option[T]) bool { return o.Key == key })
}

func (t Table[T]) lists(name, key string) bool {
	o := t.find(name, key)
	return o != nil && o.IsList
}

func (t Table[T]) unknown(name, key string) error {
	var names []string
	for _, o := range t {
		if o.Key == key {
			names = append(names, o.Names...)
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("%s has no option %q, only %s; %s", name, key, strings.Join(names, ", "), t.keys(name))
	}
	return fmt.Errorf("there is no option %q%s; %s", key, nearest.Hint(key, t.named(name), 2), t.keys(name))
}

// keys lists the options of a name, for errors.
func (t Table[T]) keys(name string) string {
	all := t.named(name)
	switch {
	case len(all) == 0:
		return name + " takes no options"
	case name == "":
		return "the options are " + strings.Join(all, ", ")
	}
	return "the options of " + name + " are " + strings.Join(all, ", ")
}

func (t Table[T]) named(name string) []string {
	own := slices.DeleteFunc(slices.Clone(t), func(o Option[T]) bool { return !o.isFor(name) })
	return lists.Map(own, func(o Option[T]) string { return o.Key })
}
