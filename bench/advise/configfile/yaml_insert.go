package configfile

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// insertKeys adds the missing keys of a path to a mapping that lacks the first of them: after the last entry of a block
// mapping, or before the first entry of a flow mapping ({...}).
func (s *yamlSplice) insertKeys(m *yaml.Node, keys path) ([]byte, error) {
	words := make([]string, len(keys))
	for i, key := range keys {
		var err error
		if words[i], err = yamlText(key, 0); err != nil {
			return nil, s.keyError("%v", err)
		}
	}
	value, err := yamlText(s.Value, 0)
	if err != nil {
		return nil, s.keyError("%v", err)
	}
	if m.Style&yaml.FlowStyle != 0 {
		at, err := s.contentOffset(m)
		if err != nil {
			return nil, err
		}
		if s.Item {
			value = "[" + value + "]"
		}
		entry := strings.Join(words, ": {") + ": " + value + strings.Repeat("}", len(words)-1)
		if len(m.Content) > 0 {
			entry += ", "
		}
		return replaceRange(s.data, at+1, at+1, entry), nil
	}
	first, ok := offset(s.data, m.Content[0].Line, m.Content[0].Column)
	start, okLine := offset(s.data, m.Content[0].Line, 1)
	if !ok || !okLine || strings.Trim(string(s.data[start:first]), " ") != "" {
		return nil, s.keyError("cannot be added to line %d; add it by hand", m.Line)
	}
	indent, lineBreak := string(s.data[start:first]), s.lineBreak()
	var lines []string
	for i, word := range words {
		lines = append(lines, indent+strings.Repeat("  ", i)+word+":")
	}
	entry := strings.Join(lines, lineBreak) + " " + value
	if s.Item {
		entry = strings.Join(lines, lineBreak) + lineBreak + indent + strings.Repeat("  ", len(words)) + "- " + value
	}
	return s.addLine(m, entry), nil
}

func (s *yamlSplice) addLine(n *yaml.Node, text string) []byte {
	at, ok := offset(s.data, lastLine(n)+1, 1)
	if !ok { // the last line of the document has no line break
		return replaceRange(s.data, len(s.data), len(s.data), s.lineBreak()+text)
	}
	return replaceRange(s.data, at, at, text+s.lineBreak())
}

// lineBreak returns "\n" or "\r\n", whichever ends the first line of the document.
func (s *yamlSplice) lineBreak() string {
	if at := bytes.IndexByte(s.data, '\n'); at > 0 && s.data[at-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// lastLine returns the last line on which a scalar of a node or of its descendants begins.
func lastLine(n *yaml.Node) int {
	last := n.Line
	for _, c := range n.Content {
		last = max(last, lastLine(c))
	}
	return last
}

// addItem adds the edit's value to a YAML list: at the end of a block list, or at the start of a flow list ([...]). A
// missing list is created.
func (s *yamlSplice) addItem(root *yaml.Node, p path) ([]byte, error) {
	parent, node, lacking, err := s.findPath(root, p)
	if err != nil {
		return nil, err
	}
	word, err := yamlText(s.Value, 0)
	if err != nil {
		return nil, s.keyError("%v", err)
	}
	byHand := s.keyError("cannot be changed safely in this file; add %s to the list by hand", word)
	var out []byte
	add := func(list []any) []any { return append(list, s.Value) }
	switch {
	case node == nil:
		if out, err = s.insertKeys(parent, lacking); err != nil {
			return nil, err
		}
	case node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null":
		if out, err = s.replaceNode(node, pathItems{s.Value}); err != nil {
			return nil, err
		}
	case node.Kind != yaml.SequenceNode:
		return nil, s.keyError("line %d has %s there, not a list", node.Line, excerpt(node))
	case slices.ContainsFunc(node.Content, func(n *yaml.Node) bool {
		return scalar(n).Kind == yaml.ScalarNode && sameYAML(n, s.Value)
	}):
		return s.data, nil
	case node.Style&yaml.FlowStyle != 0:
		at, err := s.contentOffset(node)
		if err != nil {
			return nil, err
		}
		if len(node.Content) > 0 {
			word += ", "
		}
		out = replaceRange(s.data, at+1, at+1, word)
		add = func(list []any) []any { return append([]any{s.Value}, list...) }
	default:
		if out = s.appendInline(node, word); out == nil {
			return nil, byHand
		}
	}
	if out, err = s.verifiedSplice(YAML, s.data, out, func(before any) bool {
		old, _ := lookup(before, p)
		list, _ := old.([]any)
		return setValue(before, p, add(list))
	}); err != nil {
		return nil, byHand
	}
	return out, nil
}

// appendInline returns the document with a new item on its own line after a block list; nil if impossible.
func (s *yamlSplice) appendInline(list *yaml.Node, word string) []byte {
	start, ok := offset(s.data, list.Line, 1)
	dash, okDash := offset(s.data, list.Line, list.Column)
	if !ok || !okDash || strings.Trim(string(s.data[start:dash]), " ") != "" ||
		!bytes.HasPrefix(s.data[dash:], []byte("- ")) {
		return nil
	}
	return s.addLine(list, string(s.data[start:dash])+"- "+word)
}
