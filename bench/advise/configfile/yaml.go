package configfile

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// spliceYAML sets one value of a YAML document.
func spliceYAML(data []byte, p path, e Edit) ([]byte, error) {
	root, err := parseYAML(data)
	if err != nil {
		return nil, err
	}
	s := &yamlSplice{Edit: e, data: data, aliased: aliasTargets(root)}
	if e.Item {
		return s.addItem(root, p)
	}
	parent, node, lacking, err := s.findPath(root, p)
	if err != nil {
		return nil, err
	}
	var out []byte
	var value any
	if node == nil && e.Default != nil && e.Default == e.Value {
		return data, nil
	}
	if node == nil {
		value = e.Value
		out, err = s.insertKeys(parent, lacking)
	} else {
		if value, err = e.chooseValue(yamlKind(node), excerpt(node)); err != nil {
			return nil, err
		}
		if sameYAML(node, value) {
			return data, nil
		}
		out, err = s.replaceNode(node, value)
	}
	if err != nil {
		return nil, err
	}
	return s.verifiedSplice(YAML, data, out, func(before any) bool { return setValue(before, p, value) })
}

// parseYAML returns the root value of the one document in data.
func parseYAML(data []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		return nil, errors.New("the file is empty; write keys and values into it, or name another file")
	case err != nil:
		return nil, err
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has several YAML documents; split it, because it is not clear which one to " +
			"change")
	}
	return doc.Content[0], nil
}

type yamlSplice struct {
	Edit
	data []byte
	// aliased maps each alias node (*name) to the anchored node that it repeats.
	aliased map[*yaml.Node]*yaml.Node
}

// aliasTargets returns the aliases (*name) below a node, each with the anchored node that it repeats.
func aliasTargets(n *yaml.Node) map[*yaml.Node]*yaml.Node {
	found := map[*yaml.Node]*yaml.Node{}
	var walk func(*yaml.Node)
	walk = func(n *yaml.Node) {
		if n.Kind == yaml.AliasNode {
			found[n.Alias] = n
			return
		}
		for _, c := range n.Content {
			walk(c)
		}
	}
	walk(n)
	return found
}

// findPath follows the path. If node is nil, parent lacks the remaining keys of the path, which may be added to it.
func (s *yamlSplice) findPath(n *yaml.Node, p path) (parent, node *yaml.Node, lacking path, err error) {
	for i, key := range p {
		if again, ok := s.aliased[n]; ok {
			return nil, nil, nil,
				s.keyError("is within &%s of line %d, which line %d repeats; changing one would change both", n.Anchor,
					n.Line, again.Line)
		}
		var next *yaml.Node
		switch n.Kind {
		case yaml.MappingNode:
			if next, err = s.entry(n, key); err != nil {
				return nil, nil, nil, err
			}
		case yaml.SequenceNode:
			at, err := strconv.Atoi(key)
			if err != nil || at < 0 || at >= len(n.Content) {
				return nil, nil, nil, s.keyError("line %d has a list of %d items; %q is none of them", n.Line,
					len(n.Content), key)
			}
			next = n.Content[at]
		case yaml.AliasNode:
			return nil, nil, nil, s.keyError("line %d repeats &%s there; change it where it stands", n.Line, n.Value)
		default:
			return nil, nil, nil, s.keyError("%q has no keys: line %d has %s there", strings.Join(p[:i], "."),
				n.Line, excerpt(n))
		}
		if next == nil {
			if s.Create || i == len(p)-1 && hasMergeKey(n, key) {
				return n, nil, p[i:], nil
			}
			return nil, nil, nil, s.missingKeyError()
		}
		parent, n = n, next
	}
	if again, ok := s.aliased[n]; ok {
		return nil, nil, nil, s.keyError("is &%s, which line %d repeats; changing one would change both",
			n.Anchor, again.Line)
	}
	return parent, n, nil, nil
}

// entry returns the value of a mapping's key; nil if the mapping lacks the key.
func (s *yamlSplice) entry(n *yaml.Node, key string) (*yaml.Node, error) {
	var found *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Kind != yaml.ScalarNode || k.Value != key {
			continue
		}
		if found != nil {
			return nil, s.keyError("line %d has the key %q a second time", n.Content[i].Line, key)
		}
		found = n.Content[i+1]
	}
	return found, nil
}

// hasMergeKey reports whether a mapping gets a key by a merge (<<: *base). A key of the mapping's own takes precedence.
func hasMergeKey(n *yaml.Node, key string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].ShortTag() != "!!merge" {
			continue
		}
		bases := []*yaml.Node{n.Content[i+1]}
		if bases[0].Kind == yaml.SequenceNode {
			bases = bases[0].Content
		}
		for _, b := range bases {
			if b.Kind == yaml.AliasNode {
				b = b.Alias
			}
			for j := 0; b.Kind == yaml.MappingNode && j+1 < len(b.Content); j += 2 {
				if b.Content[j].Value == key {
					return true
				}
			}
		}
	}
	return false
}

// scalar returns the anchored node if n is an alias, else n.
func scalar(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func yamlKind(n *yaml.Node) kind {
	n = scalar(n)
	if n.Kind != yaml.ScalarNode {
		return kind("a list or a group of keys")
	}
	switch n.ShortTag() {
	case "!!null":
		return nullKind
	case "!!bool":
		return booleanKind
	case "!!int", "!!float":
		return numberKind
	}
	if n.Style == 0 && yaml11Boolean.MatchString(n.Value) {
		return booleanKind
	}
	return textKind
}

// excerpt returns a node's value as messages show it.
func excerpt(n *yaml.Node) string {
	n = scalar(n)
	switch {
	case n.Kind == yaml.MappingNode:
		return "a group of keys"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!str":
		return strconv.Quote(n.Value)
	}
	return n.Value
}

func sameYAML(n *yaml.Node, value any) bool {
	n = scalar(n)
	switch v := value.(type) {
	case int64:
		var have int64
		return n.ShortTag() == "!!int" && n.Decode(&have) == nil && have == v
	case bool:
		var have bool
		return n.ShortTag() == "!!bool" && n.Decode(&have) == nil && have == v
	}
	return n.ShortTag() == "!!str" && n.Value == value
}

// replaceNode replaces the text of a scalar node by the value.
func (s *yamlSplice) replaceNode(n *yaml.Node, value any) ([]byte, error) {
	from, err := s.contentOffset(n)
	if err != nil {
		return nil, err
	}
	to, err := s.endOffset(n, from)
	if err != nil {
		return nil, err
	}
	written, err := yamlText(value, scalarStyle(n))
	if err != nil {
		return nil, s.keyError("%v", err)
	}
	if from == to && from > 0 && s.data[from-1] != ' ' { // nothing was there, not even a space
		written = " " + written
	}
	return replaceRange(s.data, from, to, written), nil
}

// scalarStyle returns the quoting style of a node. An alias has none.
func scalarStyle(n *yaml.Node) yaml.Style {
	if n.Kind == yaml.AliasNode {
		return 0
	}
	return n.Style &^ yaml.TaggedStyle
}

// plainScalar matches texts that every YAML reader reads as text without quotes.
var plainScalar = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)

func yamlText(value any, style yaml.Style) (string, error) {
	quoted, err := formatLiteral(value)
	v, isText := value.(string)
	switch {
	case err != nil || !isText || style&yaml.DoubleQuotedStyle != 0:
		return quoted, err
	case style&yaml.SingleQuotedStyle != 0:
		return "'" + strings.ReplaceAll(v, "'", "''") + "'", nil
	}
	var n yaml.Node
	if plainScalar.MatchString(v) && yaml.Unmarshal([]byte(v), &n) == nil && n.Content[0].ShortTag() == "!!str" &&
		!yaml11Boolean.MatchString(v) {
		return v, nil
	}
	return quoted, nil
}

// yaml11Boolean matches the words that YAML 1.1 readers such as PyYAML read as booleans.
var yaml11Boolean = regexp.MustCompile(`^(?i:y|n|yes|no|on|off)$`)

// offset returns the byte offset of a line and a column (counted from 1, the column in characters) in the data.
func offset(data []byte, line, column int) (int, bool) {
	at := 0
	for ; line > 1; line-- {
		n := nextLine(data[at:])
		if n < 0 {
			return 0, false
		}
		at += n
	}
	for ; column > 1; column-- {
		_, n := utf8.DecodeRune(data[at:])
		if n == 0 {
			return 0, false
		}
		at += n
	}
	return at, true
}

// nextLine returns the length of the line with its break, as YAML counts breaks; negative if there is none.
func nextLine(data []byte) int {
	for at := 0; at < len(data); {
		r, n := utf8.DecodeRune(data[at:])
		at += n
		switch r {
		case '\r':
			if at < len(data) && data[at] == '\n' {
				at++
			}
			return at
		case '\n', '\u0085', '\u2028', '\u2029':
			return at
		}
	}
	return -1
}

// contentOffset returns the byte offset of a node's text, after its anchor and tag.
func (s *yamlSplice) contentOffset(n *yaml.Node) (int, error) {
	at, ok := offset(s.data, n.Line, n.Column)
	if !ok {
		return 0, s.keyError("cannot be found in the text of line %d", n.Line)
	}
	for at < len(s.data) && (s.data[at] == '&' || s.data[at] == '!') {
		word := bytes.IndexAny(s.data[at:], " \t\r\n,]}")
		if word < 0 {
			return len(s.data), nil
		}
		at += word
		for at < len(s.data) && (s.data[at] == ' ' || s.data[at] == '\t') {
			at++
		}
	}
	return at, nil
}

// endOffset returns the byte offset of the end of a node's text that begins at from.
func (s *yamlSplice) endOffset(n *yaml.Node, from int) (int, error) {
	rest := s.data[from:]
	multi := s.keyError("is a text of several lines in line %d; change it by hand", n.Line)
	switch {
	case n.Kind == yaml.AliasNode:
		return from + len("*") + len(n.Value), nil
	case n.Kind != yaml.ScalarNode:
		return 0, s.keyError("line %d has %s there", n.Line, excerpt(n))
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return 0, multi
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		length := quotedLength(rest)
		if length < 0 || bytes.ContainsAny(rest[:length], "\r\n") {
			return 0, multi
		}
		return from + length, nil
	case !bytes.HasPrefix(rest, []byte(n.Value)):
		return 0, multi
	}
	return from + len(n.Value), nil
}

// quotedLength returns the length of the quoted text at the start of data; negative if there is none.
func quotedLength(data []byte) int {
	if len(data) == 0 || (data[0] != '"' && data[0] != '\'') {
		return -1
	}
	for i := 1; i < len(data); i++ {
		switch {
		case data[i] == '\\' && data[0] == '"':
			i++
		case data[i] == data[0] && data[0] == '\'' && i+1 < len(data) && data[i+1] == '\'':
			i++
		case data[i] == data[0]:
			return i + 1
		}
	}
	return -1
}
