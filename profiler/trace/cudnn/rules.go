package cudnn

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// ruleText holds the decision rules; command fit writes it.
//
//go:embed rules.txt
var ruleText string

// rules are the parsed decision rules: which engine classes are preferred, and
// how many partial results a splitting engine keeps, by operation and element
// size.
type rules struct {
	engine [3][2]tree
	split  [3][2]tree
}

// preferences is how many engine classes a leaf can name. The first that can
// do the problem, and fits the board's memory, is taken.
const preferences = 4

// tree is a binary decision tree; node 0 is its root.
type tree []node

// node compares a feature with a threshold, or is a leaf (feature < 0).
type node struct {
	feature     int16
	less, other int32
	threshold   float32             // of a leaf of a split tree: the answer
	engines     [preferences]Engine // of a leaf of an engine tree: the same
}

// leaf walks the tree down.
func (t tree) leaf(f *features) *node {
	i := int32(0)
	for t[i].feature >= 0 {
		if f[t[i].feature] < t[i].threshold {
			i = t[i].less
		} else {
			i = t[i].other
		}
	}
	return &t[i]
}

// loadRules parses the embedded rules once.
var loadRules = sync.OnceValue(func() *rules {
	r, err := parseRules(ruleText)
	if err != nil {
		panic("cudnn: embedded rules: " + err.Error())
	}
	return r
})

// parseRules reads rules in the form that command fit writes: a head line
// "engine fprop half" or "split wgrad fp32", then its tree, one node a line in
// preorder: "feature < threshold", or "= answer" with a comment. The answer of
// an engine tree is a list of classes, the preferred one first.
func parseRules(text string) (*rules, error) {
	r := &rules{}
	p := ruleParser{lines: strings.Split(text, "\n")}
	for p.skipBlank(); p.at < len(p.lines); p.skipBlank() {
		words := strings.Fields(p.lines[p.at])
		if len(words) != 3 {
			return nil, fmt.Errorf("line %d: want a head of three words, have %q", p.at+1, p.lines[p.at])
		}
		into, err := r.tree(words[0], words[1], words[2])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", p.at+1, err)
		}
		p.at++
		if _, err := p.node(into, words[0] == "engine"); err != nil {
			return nil, fmt.Errorf("line %d: %w", p.at+1, err)
		}
	}
	for kind := range r.engine {
		for half := range r.engine[kind] {
			if len(r.engine[kind][half]) == 0 || len(r.split[kind][half]) == 0 {
				return nil, fmt.Errorf("no rules for %s %s", kindNames[kind], precisionNames[half])
			}
		}
	}
	return r, nil
}

var (
	kindNames      = [3]string{"fprop", "dgrad", "wgrad"}
	precisionNames = [2]string{"fp32", "half"}
)

func (r *rules) tree(what, kind, precision string) (*tree, error) {
	for i, k := range kindNames {
		for j, pr := range precisionNames {
			if k != kind || pr != precision {
				continue
			}
			switch what {
			case "engine":
				return &r.engine[i][j], nil
			case "split":
				return &r.split[i][j], nil
			}
		}
	}
	return nil, fmt.Errorf("unknown rules %s %s %s", what, kind, precision)
}

type ruleParser struct {
	lines []string
	at    int
}

// skipBlank passes over empty and comment lines.
func (p *ruleParser) skipBlank() {
	for p.at < len(p.lines) {
		line := strings.TrimSpace(p.lines[p.at])
		if line != "" && line[0] != '#' {
			return
		}
		p.at++
	}
}

// node parses one node and what hangs below it, and returns its index.
func (p *ruleParser) node(t *tree, engines bool) (int32, error) {
	p.skipBlank()
	if p.at == len(p.lines) {
		return 0, fmt.Errorf("the tree ends in the middle")
	}
	words := strings.Fields(p.lines[p.at])
	index := int32(len(*t))
	if words[0] == "=" && len(words) >= 2 {
		leaf, err := parseLeaf(words[1:], engines)
		if err != nil {
			return 0, err
		}
		*t = append(*t, leaf)
		p.at++
		return index, nil
	}
	if len(words) < 3 || words[1] != "<" {
		return 0, fmt.Errorf("want \"feature < threshold\", have %q", p.lines[p.at])
	}
	feature, err := featureIndex(words[0])
	if err != nil {
		return 0, err
	}
	threshold, err := strconv.ParseFloat(words[2], 32)
	if err != nil {
		return 0, err
	}
	*t = append(*t, node{feature: feature, threshold: float32(threshold)})
	p.at++
	less, err := p.node(t, engines)
	if err != nil {
		return 0, err
	}
	other, err := p.node(t, engines)
	if err != nil {
		return 0, err
	}
	(*t)[index].less, (*t)[index].other = less, other
	return index, nil
}

// parseLeaf reads an answer: a number, or engine classes up to a comment.
func parseLeaf(words []string, engines bool) (node, error) {
	leaf := node{feature: -1}
	if !engines {
		x, err := strconv.ParseFloat(words[0], 32)
		leaf.threshold = float32(x)
		return leaf, err
	}
	for i, word := range words {
		if word == "#" {
			break
		}
		if i == preferences {
			return leaf, fmt.Errorf("more than %d engines", preferences)
		}
		e, err := engineNamed(word)
		if err != nil {
			return leaf, err
		}
		leaf.engines[i] = e
	}
	return leaf, nil
}

func engineNamed(name string) (Engine, error) {
	for i, n := range engineNames {
		if n == name {
			return Engine(i), nil
		}
	}
	return 0, fmt.Errorf("unknown engine %q", name)
}

func featureIndex(name string) (int16, error) {
	for i, n := range featureNames {
		if n == name {
			return int16(i), nil
		}
	}
	return 0, fmt.Errorf("unknown feature %q", name)
}
