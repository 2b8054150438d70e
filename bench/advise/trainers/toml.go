package trainers

import (
	"errors"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// parseTOML reads a TOML document. An array of tables ([[name]]) becomes a list of groups.
func parseTOML(d *document, data []byte) (*configValue, error) {
	if err := toml.Unmarshal(data, &map[string]any{}); err != nil { // which also finds keys that stand twice
		line := 0
		if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, _ = bad.Position()
		}
		return nil, d.fault(line, "", "is not TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
	}
	t := tomlReader{d: d}
	t.parser.Reset(data)
	root := &configValue{kind: groupKind}
	at := root
	for t.parser.NextExpression() {
		x := t.parser.Expression()
		var err error
		switch x.Kind {
		case unstable.Table, unstable.ArrayTable:
			at, err = t.table(root, x)
		case unstable.KeyValue:
			err = t.pair(at, x, 0)
		}
		if err != nil {
			return nil, err
		}
	}
	return root, t.parser.Error()
}

type tomlReader struct {
	d      *document
	parser unstable.Parser
	count  int
}

func (t *tomlReader) line(n *unstable.Node) int { return t.parser.Shape(n.Raw).Start.Line }

// checkLimits returns an error if the document has too many values or is too deeply nested.
func (t *tomlReader) checkLimits(line, depth int) error {
	if t.count++; t.count > maxValues || depth > maxDepth {
		return t.d.fault(line, "", "nests its values too deep, or has too many")
	}
	return nil
}

// subgroup returns the group with a key, for an array of tables its last one. A missing group is added.
func (t *tomlReader) subgroup(at *configValue, key *unstable.Node) (*configValue, error) {
	name, line := string(key.Data), t.line(key)
	in := at.get(name)
	if in == nil {
		in = &configValue{kind: groupKind, line: line}
		at.add(groupEntry{key: name, line: line, value: in})
	}
	if in.kind == listKind && len(in.items) > 0 {
		in = in.items[len(in.items)-1]
	}
	if in.kind != groupKind {
		return nil, t.d.fault(line, name, "is %s, and keys stand below it", in.excerpt())
	}
	return in, t.checkLimits(line, 0)
}

// table returns the group that a table header ([name]) opens.
func (t *tomlReader) table(root *configValue, x *unstable.Node) (at *configValue, err error) {
	at = root
	for keys := x.Key(); keys.Next(); {
		key := keys.Node()
		if keys.IsLast() && x.Kind == unstable.ArrayTable {
			name, line := string(key.Data), t.line(key)
			all := at.get(name)
			if all == nil {
				all = &configValue{kind: listKind, line: line}
				at.add(groupEntry{key: name, line: line, value: all})
			}
			item := &configValue{kind: groupKind, line: line}
			all.items = append(all.items, item)
			return item, t.checkLimits(line, 0)
		}
		if at, err = t.subgroup(at, key); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// pair adds a value under a key, which may contain dots.
func (t *tomlReader) pair(at *configValue, x *unstable.Node, depth int) (err error) {
	for keys := x.Key(); keys.Next(); {
		key := keys.Node()
		if !keys.IsLast() {
			if at, err = t.subgroup(at, key); err != nil {
				return err
			}
			continue
		}
		v, err := t.value(x.Value(), t.line(key), depth+1)
		if err != nil {
			return err
		}
		at.add(groupEntry{key: string(key.Data), line: v.line, value: v})
	}
	return nil
}

func (t *tomlReader) value(n *unstable.Node, line, depth int) (*configValue, error) {
	v := &configValue{kind: textKind, text: string(n.Data), line: line}
	if err := t.checkLimits(line, depth); err != nil {
		return nil, err
	}
	switch n.Kind {
	case unstable.Array:
		v.kind, v.text = listKind, ""
		for items := n.Children(); items.Next(); {
			item, err := t.value(items.Node(), line, depth+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
	case unstable.InlineTable:
		v.kind, v.text = groupKind, ""
		for pairs := n.Children(); pairs.Next(); {
			if err := t.pair(v, pairs.Node(), depth+1); err != nil {
				return nil, err
			}
		}
	case unstable.Bool:
		v.kind = booleanKind
	case unstable.Float:
		v.kind, v.text = numberKind, strings.ReplaceAll(v.text, "_", "")
	case unstable.Integer:
		v.kind = numberKind
		if whole, err := strconv.ParseInt(v.text, 0, 64); err == nil {
			v.text = strconv.FormatInt(whole, 10)
		}
	}
	return v, nil
}
