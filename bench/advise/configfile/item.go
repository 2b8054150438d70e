package configfile

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// addItem adds the edit's value to a list of a YAML document, behind the other items where
// each has a line of its own, before them in brackets. A list that is not there is made.
func (s *yamlSplice) addItem(root *yaml.Node, p path) ([]byte, error) {
	parent, node, lacking, err := s.find(root, p)
	if err != nil {
		return nil, err
	}
	word, err := yamlText(s.Value, 0)
	if err != nil {
		return nil, s.wrong("%v", err)
	}
	byHand := s.wrong("cannot be changed safely in this file; add %s to the list by hand", word)
	var out []byte
	add := func(list []any) []any { return append(list, s.Value) }
	switch {
	case node == nil:
		if out, err = s.insert(parent, lacking); err != nil {
			return nil, err
		}
	case node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null":
		if out, err = s.set(node, items{s.Value}); err != nil {
			return nil, err
		}
	case node.Kind != yaml.SequenceNode:
		return nil, s.wrong("line %d has %s there, not a list", node.Line, excerpt(node))
	case slices.ContainsFunc(node.Content, func(n *yaml.Node) bool {
		return scalar(n).Kind == yaml.ScalarNode && sameYAML(n, s.Value)
	}):
		return s.data, nil
	case node.Style&yaml.FlowStyle != 0:
		at, err := s.content(node)
		if err != nil {
			return nil, err
		}
		if len(node.Content) > 0 {
			word += ", "
		}
		out = replace(s.data, at+1, at+1, word)
		add = func(list []any) []any { return append([]any{s.Value}, list...) }
	default:
		if out = s.behindItems(node, word); out == nil {
			return nil, byHand
		}
	}
	if out, err = s.checked(YAML, s.data, out, func(before any) bool {
		old, _ := lookup(before, p)
		list, _ := old.([]any)
		return put(before, p, add(list))
	}); err != nil {
		return nil, byHand
	}
	return out, nil
}

// behindItems returns the document with a line for an item behind a list in a block, nil if that is no place for one.
func (s *yamlSplice) behindItems(list *yaml.Node, word string) []byte {
	start, ok := offset(s.data, list.Line, 1)
	dash, okDash := offset(s.data, list.Line, list.Column)
	if !ok || !okDash || strings.Trim(string(s.data[start:dash]), " ") != "" ||
		!bytes.HasPrefix(s.data[dash:], []byte("- ")) {
		return nil
	}
	return s.addLine(list, string(s.data[start:dash])+"- "+word)
}
