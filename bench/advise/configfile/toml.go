package configfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// valueSpan is the position of a value in a document.
type valueSpan struct {
	from, to int
	kind     kind
}

// spliceTOML sets one value of a TOML document.
func spliceTOML(data []byte, p path, e Edit) ([]byte, error) {
	if _, err := decode(TOML, data); err != nil {
		return nil, err
	}
	at, err := findTOML(data, p, e)
	if err != nil {
		return nil, err
	}
	return spliceAt(TOML, data, p, e, at)
}

func tomlError(err error) error {
	if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := bad.Position()
		return fmt.Errorf("line %d, column %d: %w", line, column, err)
	}
	return err
}

func findTOML(data []byte, p path, e Edit) (valueSpan, error) {
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
				return valueSpan{}, e.keyError("is in a list of tables; change it by hand")
			}
			if found || err != nil {
				return at, err
			}
		}
	}
	if err := parser.Error(); err != nil {
		return valueSpan{}, err
	}
	return valueSpan{}, e.missingKeyError()
}

func keysOf(it unstable.Iterator) path {
	var p path
	for it.Next() {
		p = append(p, string(it.Node().Data))
	}
	return p
}

// valueTOML looks for the path p in a key and its value, which may be an inline table.
func valueTOML(parser *unstable.Parser, x *unstable.Node, above, p path, e Edit) (at valueSpan, found bool, err error) {
	full := slices.Concat(above, keysOf(x.Key()))
	if len(full) > len(p) || !slices.Equal(full, p[:len(full)]) {
		return valueSpan{}, false, nil
	}
	v := x.Value()
	if v.Kind == unstable.InlineTable && len(full) < len(p) {
		for it := v.Children(); it.Next(); {
			if at, found, err = valueTOML(parser, it.Node(), full, p, e); found || err != nil {
				return at, found, err
			}
		}
		return valueSpan{}, false, nil
	}
	if len(full) < len(p) {
		return valueSpan{}, false, nil
	}
	switch v.Kind {
	case unstable.Bool:
		at.kind = booleanKind
	case unstable.Integer, unstable.Float:
		at.kind = numberKind
	case unstable.String:
		at.kind = textKind
	default:
		return valueSpan{}, true, e.keyError("is %s, not a single value", strings.ToLower(v.Kind.String()))
	}
	r := v.Raw
	if r.Length == 0 {
		r = parser.Range(v.Data)
	}
	at.from, at.to = int(r.Offset), int(r.Offset+r.Length)
	return at, true, nil
}

// spliceAt returns the document with the edit's value at the given position.
func spliceAt(f Format, data []byte, p path, e Edit, at valueSpan) ([]byte, error) {
	value, err := e.chooseValue(at.kind, string(data[at.from:at.to]))
	if err != nil {
		return nil, err
	}
	written, err := formatLiteral(value)
	if err != nil {
		return nil, e.keyError("%v", err)
	}
	if at.kind == textKind {
		if s, ok := value.(string); ok && data[at.from] == '\'' && !strings.Contains(s, "'") {
			written = "'" + s + "'" // TOML's quotes without escapes
		}
	}
	same := false
	out, err := e.verifiedSplice(f, data, replaceRange(data, at.from, at.to, written), func(before any) bool {
		have, ok := lookup(before, p)
		same = ok && have == value
		return setValue(before, p, value)
	})
	if same {
		return data, nil
	}
	return out, err
}
