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
	// Trainer is the trainer's usual name, Version the release whose schema was read.
	Trainer string `yaml:"trainer"`
	Version string `yaml:"version"`
	// Extends names a table whose keys and rules also apply, after this table's own.
	Extends string `yaml:"extends"`
	// Order is the position of the table when a file is compared with all tables: tables with keys of their own come
	// first.
	Order int `yaml:"order"`
	// Recognized are alternatives: a file is the trainer's if it has all keys of
	// one. A key may have a value: "model._component_=torchtune.".
	Recognized [][]string `yaml:"recognized"`
	// Scripts are the names of Python files that belong to the trainer, whatever their arguments are.
	Scripts []string `yaml:"scripts"`
	// Tasks are the kinds of training that a file may describe, the usual one first; empty for a trainer with one.
	Tasks []Task `yaml:"tasks"`
	// Strategy reports whether a file of the table only describes how several GPUs share the work.
	Strategy bool `yaml:"strategy"`
	// Several is the strategy for several GPUs if the file does not describe one; empty for DDP.
	Several string `yaml:"several"`
	// Only maps groups of keys to the condition under which they count: other keys have one of some values.
	Only map[string]map[string]OneOf `yaml:"only"`
	// Keys are the keys that matter, by path.
	Keys map[string]Row `yaml:"keys"`
	// WrittenKeys are the keys to add for batch, accumulate and checkpointing if a file does not set them yet.
	WrittenKeys map[string]string `yaml:"written"`
	// SavingValues are the keys, with values, that set a memory-saving option, by "fact=value"; + adds a value to a
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
	// FactName is the fact that the key sets.
	FactName string `yaml:"is"`
	// TrimPrefix is removed from the beginning of the value: "checkpoints/" of a folder that is named as a repository.
	TrimPrefix string `yaml:"cut"`
	// Words maps values to the facts that they imply; "" is null. A value that is not listed is unknown, unless there
	// is an entry "*". "=" represents the value itself, and a fact that begins with + is added to a list.
	Words map[string]Words `yaml:"words"`
	// File reports whether the value may name a file, whose keys then count as keys of this group.
	File bool `yaml:"file"`
	// Each reports whether the value is a list of words.
	Each bool `yaml:"each"`
	// Unless are the values that change nothing. Any other value is refused with the reason Needs, or needs less memory
	// than planned, as Bound describes.
	Unless []string `yaml:"unless"`
	Needs  string   `yaml:"needs"`
	Bound  string   `yaml:"bound"`
	// Note is for readers of the table.
	Note string `yaml:"note"`
	// SameAs is another key whose Words apply: only the model that they name becomes the row's fact.
	SameAs string `yaml:"like"`
}

// Words are the facts that a value of a key implies: the row's own fact, if only a value is given, or further facts.
type Words struct {
	// Value is the value of the row's own fact.
	Value string
	// Facts are further facts with their values.
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

// Rule sets facts, refuses the configuration, or adds a note if other facts satisfy its condition.
type Rule struct {
	// When maps facts to values that satisfy the condition; "" is a missing fact, "*" any value. Unless lists
	// exceptions.
	When   map[string]OneOf `yaml:"when"`
	Unless map[string]OneOf `yaml:"unless"`
	// Set are facts that get a value if they have none. A value "=name" is the value of another fact, and a value that
	// begins with + is added to a list.
	Set map[string]string `yaml:"set"`
	// Clear are facts that are removed.
	Clear []string `yaml:"clear"`
	// Refuse is the reason why the configuration is impossible or not planned; At is the fact whose key is the cause.
	Refuse string `yaml:"refuse"`
	At     string `yaml:"at"`
	// Note is a note for the user.
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

// resolveSameAs copies to each row the words of the row that its SameAs names.
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
