package configfile

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// place is the position of a value in a text.
type place struct {
	from, to int
	kind     kind
}

// spliceTOML sets one value of a TOML document.
func spliceTOML(data []byte, p path, e Edit) ([]byte, error) {
	before := map[string]any{}
	if err := toml.Unmarshal(data, &before); err != nil {
		return nil, tomlError(err)
	}
	at, err := findTOML(data, p, e)
	if err != nil {
		return nil, err
	}
	return spliceAt(data, p, e, at, before, func(data []byte) (any, error) {
		after := map[string]any{}
		err := toml.Unmarshal(data, &after)
		return after, err
	})
}

func tomlError(err error) error {
	if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := bad.Position()
		return fmt.Errorf("line %d, column %d: %w", line, column, err)
	}
	return err
}

// findTOML finds the scalar at the path.
func findTOML(data []byte, p path, e Edit) (place, error) {
	var parser unstable.Parser
	parser.Reset(data)
	var table path
	inArray := false
	for parser.NextExpression() {
		x := parser.Expression()
		switch x.Kind {
		case unstable.Table, unstable.ArrayTable:
			table, inArray = keysOf(x.Key()), x.Kind == unstable.ArrayTable
		case unstable.KeyValue:
			at, found, err := valueTOML(&parser, x, table, p, e)
			if found && inArray {
				return place{}, &KeyError{Path: e.Path, Reason: "is in a list of tables; change it by hand"}
			}
			if found || err != nil {
				return at, err
			}
		}
	}
	if err := parser.Error(); err != nil {
		return place{}, err
	}
	return place{}, &KeyError{Path: e.Path, Reason: "there is no such key", Missing: true}
}

func keysOf(it unstable.Iterator) path {
	var p path
	for it.Next() {
		p = append(p, string(it.Node().Data))
	}
	return p
}

// valueTOML looks for the path in a key and its value, which may be a table in braces.
func valueTOML(parser *unstable.Parser, x *unstable.Node, above, p path, e Edit) (at place, found bool, err error) {
	full := slices.Concat(above, keysOf(x.Key()))
	if len(full) > len(p) || !slices.Equal(full, p[:len(full)]) {
		return place{}, false, nil
	}
	v := x.Value()
	if v.Kind == unstable.InlineTable && len(full) < len(p) {
		for it := v.Children(); it.Next(); {
			if at, found, err = valueTOML(parser, it.Node(), full, p, e); found || err != nil {
				return at, found, err
			}
		}
		return place{}, false, nil
	}
	if len(full) < len(p) {
		return place{}, false, nil
	}
	switch v.Kind {
	case unstable.Bool:
		at.kind = boolean
	case unstable.Integer, unstable.Float:
		at.kind = number
	case unstable.String:
		at.kind = text
	default:
		return place{}, true, &KeyError{
			Path:   e.Path,
			Reason: "is " + strings.ToLower(v.Kind.String()) + ", not a single value",
		}
	}
	r := v.Raw
	if r.Length == 0 {
		r = parser.Range(v.Data)
	}
	at.from, at.to = int(r.Offset), int(r.Offset+r.Length)
	return at, true, nil
}

// spliceAt puts the value of an edit at a place, and makes sure that reading the
// result gives what reading gave before, with the one value changed.
func spliceAt(data []byte, p path, e Edit, at place, before any, read func([]byte) (any, error)) ([]byte, error) {
	value, err := e.choose(at.kind, string(data[at.from:at.to]))
	if err != nil {
		return nil, err
	}
	written, err := literal(value)
	if err != nil {
		return nil, &KeyError{Path: e.Path, Reason: err.Error()}
	}
	if at.kind == text {
		if s, ok := value.(string); ok && data[at.from] == '\'' && !strings.Contains(s, "'") {
			written = "'" + s + "'" // TOML's quotes without escapes
		}
	}
	out := replace(data, at.from, at.to, written)
	after, err := read(out)
	if err == nil {
		if have, ok := lookup(before, p); ok && have == value {
			return data, nil
		}
		if put(before, p, value) && reflect.DeepEqual(before, after) {
			return out, nil
		}
	}
	return nil, &KeyError{Path: e.Path, Reason: "cannot be changed safely in this file; change it by hand"}
}

// lookup finds a value below maps and lists.
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

// put replaces a value below maps.
func put(v any, p path, value any) bool {
	parent, ok := lookup(v, p[:len(p)-1])
	m, isMap := parent.(map[string]any)
	if !ok || !isMap {
		return false
	}
	m[p[len(p)-1]] = value
	return true
}
