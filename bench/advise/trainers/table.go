package trainers

import (
	"embed"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/yamlkeys"
)

//go:embed tables/*.yaml
var files embed.FS

// Table describes the keys of one trainer.
type Table struct {
	// Trainer is how people call it, Version the one whose schema was read.
	Trainer string `yaml:"trainer"`
	Version string `yaml:"version"`
	// Extends names a table whose keys and rules are this one's, too, after its own.
	Extends string `yaml:"extends"`
	// Order is the place among the tables that a file is held against: the ones with keys of their own first.
	Order int `yaml:"order"`
	// Recognized are alternatives: a file is the trainer's if it has all keys of
	// one. A key may have a value: "model._component_=torchtune.".
	Recognized [][]string `yaml:"recognized"`
	// Scripts are Python files that are the trainer's, whatever their arguments are.
	Scripts []string `yaml:"scripts"`
	// Tasks are the trainings that one file may be of, the usual one first; empty for a trainer with one.
	Tasks []Task `yaml:"tasks"`
	// Strategy reports whether such a file only tells how several GPUs share the work of a trainer or of flags.
	Strategy bool `yaml:"strategy"`
	// Several is the strategy by which several GPUs share the work where the file does not describe how; empty for DDP.
	Several string `yaml:"several"`
	// Only are groups of keys that count where other keys have one of some values, and nowhere else.
	Only map[string]map[string]OneOf `yaml:"only"`
	// Keys are the keys that matter, by path.
	Keys map[string]Row `yaml:"keys"`
	// WrittenKeys are the keys that say batch, accumulate and checkpointing in a file that does not say them yet.
	WrittenKeys map[string]string `yaml:"written"`
	// SavingValues are the keys that turn a memory-saving option, with values, by "fact=value"; + adds a value to a
	// list.
	SavingValues map[string]map[string]string `yaml:"turned"`
	// Harmless are the known keys that do not change what a step needs, or groups of
	// them; "wandb_*" stands for all that begin so.
	Harmless []string `yaml:"harmless"`
	// Rules follow in order from the facts that the keys gave.
	Rules []Rule `yaml:"rules"`
}

// Row is the meaning of a key.
type Row struct {
	// FactName is the fact that the value is.
	FactName string `yaml:"is"`
	// TrimPrefix is a beginning that the value loses: "checkpoints/" of a folder that is named as a repository.
	TrimPrefix string `yaml:"cut"`
	// Words are the facts that a value stands for, by value; "" stands for null.
	// A value that is no word is not described, unless there is a word "*"; "=" stands
	// for the value itself, and a fact that begins with + is added to a list.
	Words map[string]Words `yaml:"words"`
	// File reports whether the value may name a file, whose keys stand below this one.
	File bool `yaml:"file"`
	// Each reports whether the value is a list of words.
	Each bool `yaml:"each"`
	// Unless are the values that change nothing; any other needs what Needs says and
	// is refused, or makes less than is planned, as Bound says.
	Unless []string `yaml:"unless"`
	Needs  string   `yaml:"needs"`
	Bound  string   `yaml:"bound"`
	// Note is for readers of the table.
	Note string `yaml:"note"`
	// SameAs is another key whose words these are: the model that they name is the row's own
	// fact, and nothing else is said.
	SameAs string `yaml:"like"`
}

// Words are values that a row of the table sets: of its own fact, where only a value is given, or of further facts.
type Words struct {
	// Value is the value of the row's own fact.
	Value string
	// Facts are further facts.
	Facts map[string]string
}

// UnmarshalYAML reads a scalar as the row's own fact, a group as facts.
func (w *Words) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if n.ShortTag() != "!!null" {
			w.Value = n.Value
		}
		return nil
	}
	return n.Decode(&w.Facts)
}

// Rule sets facts, refuses, or adds a note if other facts satisfy its condition.
type Rule struct {
	// When are facts and the values that they may have; "" stands for a fact that nothing gave, "*" for one that
	// something gave. Unless excepts such facts.
	When   map[string]OneOf `yaml:"when"`
	Unless map[string]OneOf `yaml:"unless"`
	// Set are facts that get their value if they have none; a value "=name" is that
	// of another fact, and one that begins with + is added to a list.
	Set map[string]string `yaml:"set"`
	// Clear are facts that are forgotten.
	Clear []string `yaml:"clear"`
	// Refuse reports why the configuration cannot be, or cannot be planned; At is the fact whose key is to blame.
	Refuse string `yaml:"refuse"`
	At     string `yaml:"at"`
	// Note is said to the user.
	Note string `yaml:"note"`
}

// OneOf is one value or several.
type OneOf []string

// UnmarshalYAML reads a scalar as a list of one.
func (a *OneOf) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*a = OneOf{n.Value}
		if n.ShortTag() == "!!null" {
			*a = OneOf{""}
		}
		return nil
	}
	for _, item := range n.Content {
		v := item.Value
		if item.ShortTag() == "!!null" {
			v = ""
		}
		*a = append(*a, v)
	}
	return nil
}

// Tables returns the tables of all trainers, in the order in which a file is compared with them.
func Tables() []*Table {
	all, err := tables()
	if err != nil {
		panic(err) // a bug in an embedded table, which a test shows
	}
	return all
}

var tables = sync.OnceValues(func() ([]*Table, error) {
	names, err := files.ReadDir("tables")
	if err != nil {
		return nil, err
	}
	byName := map[string]*Table{}
	var all []*Table
	for _, n := range names {
		data, err := files.ReadFile(path.Join("tables", n.Name()))
		if err != nil {
			return nil, err
		}
		t := &Table{}
		if err := yamlkeys.Decode(n.Name(), data, t); err != nil {
			return nil, err
		}
		t.resolveSameAs()
		byName[t.Trainer] = t
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *Table) int { return a.Order - b.Order })
	done := map[string]bool{}
	var extend func(t *Table)
	extend = func(t *Table) {
		if t.Extends == "" || done[t.Trainer] {
			return
		}
		done[t.Trainer] = true
		base := byName[t.Extends]
		extend(base)
		keys := maps.Clone(base.Keys)
		maps.Copy(keys, t.Keys)
		t.Keys = keys
		if t.WrittenKeys == nil {
			t.WrittenKeys = base.WrittenKeys
		}
		if t.SavingValues == nil {
			t.SavingValues = base.SavingValues
		}
		t.Harmless = append(slices.Clone(t.Harmless), base.Harmless...)
		t.Rules = append(slices.Clone(t.Rules), base.Rules...)
	}
	for _, t := range all {
		extend(t)
	}
	return all, nil
})

// resolveSameAs copies to each row the words of the row that its Like names.
func (t *Table) resolveSameAs() {
	for key, row := range t.Keys {
		if row.SameAs == "" {
			continue
		}
		row.Words = map[string]Words{}
		for word, w := range t.Keys[row.SameAs].Words {
			if name := w.Facts["model"]; name != "" {
				row.Words[word] = Words{Value: name}
			}
		}
		t.Keys[key] = row
	}
}

// TableNamed returns the table of a trainer; nil if there is none.
func TableNamed(trainer string) *Table {
	t, _ := lists.First(Tables(), func(t *Table) bool { return t.Trainer == trainer })
	return t
}

// recognizes reports whether a document is the trainer's.
func (t *Table) recognizes(d *document) bool {
	return slices.ContainsFunc(t.Recognized, func(keys []string) bool {
		for _, k := range keys {
			key, begins, valued := strings.Cut(k, "=")
			v := d.root.lookup(key)
			if v == nil || valued && !strings.HasPrefix(v.text, begins) {
				return false
			}
		}
		return true
	})
}

// isHarmless reports whether a key, or a group that it is in, has no effect on memory.
func (t *Table) isHarmless(key string) bool {
	return slices.ContainsFunc(t.Harmless, func(h string) bool {
		if begins, ok := strings.CutSuffix(h, "*"); ok {
			return strings.HasPrefix(key, begins)
		}
		return key == h
	})
}

// hasGroup reports whether some key of the table is inside the group.
func (t *Table) hasGroup(group string) bool {
	for key := range t.Keys {
		if strings.HasPrefix(key, group+".") {
			return true
		}
	}
	return slices.ContainsFunc(t.Harmless, func(h string) bool { return strings.HasPrefix(h, group+".") })
}

// names returns the keys of the table, without groups of them.
func (t *Table) names() []string {
	single := func(h string) bool { return !strings.HasSuffix(h, "*") }
	return append(slices.Sorted(maps.Keys(t.Keys)), lists.Filter(t.Harmless, single)...)
}
