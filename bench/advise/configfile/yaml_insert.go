package configfile

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// insert adds keys, each within the one before it, to a mapping that lacks the
// first: in a block after the last entry, in braces before the first.
func (s *yamlSplice) insert(m *yaml.Node, keys path) ([]byte, error) {
	words := make([]string, len(keys))
	for i, key := range keys {
		var err error
		if words[i], err = yamlText(key, 0); err != nil {
			return nil, s.wrong("%v", err)
		}
	}
	value, err := yamlText(s.edit.Value, 0)
	if err != nil {
		return nil, s.wrong("%v", err)
	}
	if m.Style&yaml.FlowStyle != 0 {
		at, err := s.content(m)
		if err != nil {
			return nil, err
		}
		if s.edit.Item {
			value = "[" + value + "]"
		}
		entry := strings.Join(words, ": {") + ": " + value + strings.Repeat("}", len(words)-1)
		if len(m.Content) > 0 {
			entry += ", "
		}
		return replace(s.data, at+1, at+1, entry), nil
	}
	first, ok := offset(s.data, m.Content[0].Line, m.Content[0].Column)
	start, okLine := offset(s.data, m.Content[0].Line, 1)
	if !ok || !okLine || strings.Trim(string(s.data[start:first]), " ") != "" {
		return nil, s.wrong("cannot be added to line %d; add it by hand", m.Line)
	}
	indent, lineBreak := string(s.data[start:first]), s.lineBreak()
	var lines []string
	for i, word := range words {
		lines = append(lines, indent+strings.Repeat("  ", i)+word+":")
	}
	entry := strings.Join(lines, lineBreak) + " " + value
	if s.edit.Item {
		entry = strings.Join(lines, lineBreak) + lineBreak + indent + strings.Repeat("  ", len(words)) + "- " + value
	}
	return s.addLine(m, entry), nil
}

// addLine adds text as lines of its own after the lines of a node.
func (s *yamlSplice) addLine(n *yaml.Node, text string) []byte {
	at, ok := offset(s.data, lastLine(n)+1, 1)
	if !ok { // the last line of the document has no line break
		return replace(s.data, len(s.data), len(s.data), s.lineBreak()+text)
	}
	return replace(s.data, at, at, text+s.lineBreak())
}

// lineBreak returns "\n" or "\r\n", whichever ends the first line of the document.
func (s *yamlSplice) lineBreak() string {
	if at := bytes.IndexByte(s.data, '\n'); at > 0 && s.data[at-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// lastLine returns the last line on which a scalar below a node begins.
func lastLine(n *yaml.Node) int {
	last := n.Line
	for _, c := range n.Content {
		last = max(last, lastLine(c))
	}
	return last
}

// check parses what was spliced and compares it with what was meant: the old
// document with one value changed, or the lacking keys added at the place where
// the splice put them.
func (s *yamlSplice) check(root *yaml.Node, out []byte, parent, node *yaml.Node, lacking path, value any) error {
	got, err := parseYAML(out)
	if err != nil {
		return s.wrong("cannot be changed safely in this file; change it by hand (the result would not be YAML: %v)",
			err)
	}
	c := comparison{node: node, value: value, budget: maxNodes}
	if node == nil {
		c.parent, c.keys, c.flow = parent, lacking, parent.Style&yaml.FlowStyle != 0
	}
	if !c.equal(root, got) {
		return s.wrong("cannot be changed safely in this file; change it by hand")
	}
	return nil
}

// maxNodes bounds a comparison: aliases of aliases can make a small file huge.
const maxNodes = 1 << 20

// comparison compares documents, except for what an edit means to change.
type comparison struct {
	// node has value in the second document.
	node  *yaml.Node
	value any
	// parent, if not nil, has a further entry there, the first in braces and the
	// last otherwise.
	parent *yaml.Node
	keys   path
	flow   bool

	budget int
}

func (c *comparison) equal(a, b *yaml.Node) bool {
	if c.budget--; c.budget < 0 {
		return false
	}
	if a == c.node {
		return b.Kind == yaml.ScalarNode && sameYAML(b, c.value) && b.Anchor == anchorOf(a)
	}
	if a.Kind != b.Kind || a.Anchor != b.Anchor {
		return false
	}
	switch a.Kind {
	case yaml.AliasNode:
		return a.Value == b.Value && c.equal(a.Alias, b.Alias)
	case yaml.ScalarNode:
		return a.ShortTag() == b.ShortTag() && a.Value == b.Value
	}
	content := b.Content
	if a == c.parent {
		if len(content) < 2 {
			return false
		}
		added := content[len(content)-2:]
		content = content[:len(content)-2]
		if c.flow {
			added, content = b.Content[:2], b.Content[2:]
		}
		if !c.isAdded(added) {
			return false
		}
	}
	if len(a.Content) != len(content) {
		return false
	}
	for i := range content {
		if !c.equal(a.Content[i], content[i]) {
			return false
		}
	}
	return true
}

// isAdded reports whether an entry is the keys, each within the one before it, with
// the value in the last.
func (c *comparison) isAdded(entry []*yaml.Node) bool {
	for i, key := range c.keys {
		if len(entry) != 2 || entry[0].Value != key {
			return false
		}
		if i+1 < len(c.keys) {
			entry = entry[1].Content
		}
	}
	return sameYAML(entry[1], c.value)
}

// anchorOf returns the anchor that a changed node keeps; an alias has none.
func anchorOf(n *yaml.Node) string {
	if n.Kind == yaml.AliasNode {
		return ""
	}
	return n.Anchor
}
