package program

import (
	"fmt"
	"slices"
	"strings"
)

// In files the kinds, classes, works and precisions have their names.

// MarshalText implements [encoding.TextMarshaler].
func (k Kind) MarshalText() ([]byte, error) { return []byte(kindNames[k]), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *Kind) UnmarshalText(text []byte) error { return parse(k, text, kindNames[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *Class) UnmarshalText(text []byte) error { return parse(c, text, classNames[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (w Work) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (w *Work) UnmarshalText(text []byte) error { return parse(w, text, workNames[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (p Precision) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Precision) UnmarshalText(text []byte) error { return parse(p, text, precisionNames[:]) }

// parse sets a constant by its name.
func parse[T ~uint8](to *T, text []byte, names []string) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("there is no %q; it is one of %s", text, strings.Join(names, ", "))
	}
	*to = T(i)
	return nil
}
