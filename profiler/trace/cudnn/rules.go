package cudnn

import (
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ruleFiles are the decision rules of each architecture; command fit writes them.
//
//go:embed rules
var ruleFiles embed.FS

// generations are the architectures there are rules for: those of the recorded
// boards.
var generations = [...]int{75, 80, 86, 89, 90, 120}

// rules are the decision rules of one architecture, by operation and element
// size.
type rules struct {
	forests [3][2]forest
}

// forest is a few decision trees that vote.
type forest struct {
	trees   []tree
	choices []Choice
}

// tree is a binary decision tree; node 0 is its root.
type tree []node

// node compares a feature with a threshold, or is a leaf (feature < 0) that
// names a choice. The answer "less" is the next node.
type node struct {
	threshold float32
	feature   int16
	choice    uint16
	other     int32
}

// leaf walks the tree down and returns the index of its choice.
func (t tree) leaf(f *features) uint16 {
	i := int32(0)
	for {
		n := &t[i]
		switch {
		case n.feature < 0:
			return n.choice
		case f[n.feature] < n.threshold:
			i++
		default:
			i = n.other
		}
	}
}

// mostTrees is the most trees of a forest.
const mostTrees = 9

// vote returns what most trees choose, of equals what the earliest tree does.
// Trees after a majority are not asked.
func (o *forest) vote(f *features) Choice {
	var choices [mostTrees]uint16
	var votes [mostTrees]int
	best := 0
	for i, t := range o.trees {
		choices[i] = t.leaf(f)
		at := 0
		for choices[at] != choices[i] {
			at++
		}
		if votes[at]++; votes[at] > votes[best] || votes[at] == votes[best] && at < best {
			best = at
		}
		if 2*votes[best] > len(o.trees) {
			break
		}
	}
	return o.choices[choices[best]]
}

// embedded parses the rules of each architecture on first use.
var embedded = func() map[int]func() *rules {
	m := map[int]func() *rules{}
	for _, g := range generations {
		m[g] = sync.OnceValue(func() *rules {
			r, err := readRules(ruleFiles, fmt.Sprintf("rules/sm%d.gz", g))
			if err != nil {
				panic("cudnn: embedded rules: " + err.Error())
			}
			return r
		})
	}
	return m
}()

// rulesOf returns the rules of an architecture.
func rulesOf(generation int) *rules { return embedded[generation]() }

// readRules reads a compressed file of rules.
func readRules(files fs.FS, name string) (*rules, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r, err := parseRules(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// parseRules reads rules in the form that command fit writes: for each operation
// and precision a head line such as "fprop half" and its trees, one node a line
// in preorder: "feature < threshold", or "= choice".
func parseRules(text string) (*rules, error) {
	r := &rules{}
	p := ruleParser{lines: strings.Split(text, "\n"), features: map[string]int16{}}
	for i, name := range featureNames {
		p.features[name] = int16(i)
	}
	for p.skipBlank(); p.at < len(p.lines); p.skipBlank() {
		words := p.words()
		if len(words) != 2 {
			return nil, fmt.Errorf("line %d: want a head of two words, have %q", p.at+1, p.lines[p.at])
		}
		into, err := r.forest(words[0], words[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", p.at+1, err)
		}
		p.at++
		if err := p.forest(into); err != nil {
			return nil, fmt.Errorf("line %d: %w", p.at+1, err)
		}
	}
	for kind := range r.forests {
		for half := range r.forests[kind] {
			if len(r.forests[kind][half].trees) == 0 {
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

func (r *rules) forest(kind, precision string) (*forest, error) {
	i, j := slices.Index(kindNames[:], kind), slices.Index(precisionNames[:], precision)
	if i < 0 || j < 0 {
		return nil, fmt.Errorf("unknown rules %s %s", kind, precision)
	}
	if len(r.forests[i][j].trees) > 0 {
		return nil, fmt.Errorf("rules for %s %s twice", kind, precision)
	}
	return &r.forests[i][j], nil
}

type ruleParser struct {
	lines []string
	at    int
	// split are the words of a line; each line takes the place of the one before.
	split    []string
	features map[string]int16
	// choices are the choices of the current forest.
	choices map[string]uint16
}

// words are those of the current line, until the next call.
func (p *ruleParser) words() []string {
	p.split = slices.AppendSeq(p.split[:0], strings.FieldsSeq(p.lines[p.at]))
	return p.split
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

// forest parses the trees up to the next head line.
func (p *ruleParser) forest(o *forest) error {
	p.choices = map[string]uint16{}
	for {
		p.skipBlank()
		if p.at == len(p.lines) || p.head() {
			break
		}
		if len(o.trees) == mostTrees {
			return fmt.Errorf("more than %d trees", mostTrees)
		}
		var t tree
		if err := p.node(&t, o); err != nil {
			return err
		}
		o.trees = append(o.trees, t)
	}
	if len(o.trees) == 0 {
		return fmt.Errorf("no tree")
	}
	return nil
}

// head says whether the current line starts another forest.
func (p *ruleParser) head() bool {
	words := p.words()
	return slices.Contains(kindNames[:], words[0])
}

// node parses one node and what hangs below it.
func (p *ruleParser) node(t *tree, o *forest) error {
	p.skipBlank()
	if p.at == len(p.lines) {
		return fmt.Errorf("the tree ends in the middle")
	}
	words := p.words()
	if words[0] == "=" && len(words) == 2 {
		choice, err := p.choice(o, words[1])
		if err != nil {
			return err
		}
		*t = append(*t, node{feature: -1, choice: choice})
		p.at++
		return nil
	}
	if len(words) != 3 || words[1] != "<" {
		return fmt.Errorf("want \"feature < threshold\", have %q", p.lines[p.at])
	}
	feature, ok := p.features[words[0]]
	if !ok {
		return fmt.Errorf("unknown feature %q", words[0])
	}
	threshold, err := strconv.ParseFloat(words[2], 32)
	if err != nil {
		return err
	}
	index := len(*t)
	*t = append(*t, node{feature: feature, threshold: float32(threshold)})
	p.at++
	if err := p.node(t, o); err != nil {
		return err
	}
	(*t)[index].other = int32(len(*t))
	return p.node(t, o)
}

// choice returns the index of a choice in o, which gets it if it is new.
func (p *ruleParser) choice(o *forest, text string) (uint16, error) {
	if i, ok := p.choices[text]; ok {
		return i, nil
	}
	c, err := parseChoice(text)
	if err != nil {
		return 0, err
	}
	i := uint16(len(o.choices))
	o.choices = append(o.choices, c)
	p.choices[text] = i
	return i, nil
}

func engineNamed(name string) (Engine, error) {
	i := slices.Index(engineNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("unknown engine %q", name)
	}
	return Engine(i), nil
}
