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
	// Trainer is the trainer's name, Version the release whose schema the table was made from.
	Trainer string `yaml:"trainer"`
	Version string `yaml:"version"`
	// Extends names another table, whose keys and rules apply after this table's.
	Extends string `yaml:"extends"`
	// Order is the table's position when a file is compared with all tables. Tables with distinctive keys come first.
	Order int `yaml:"order"`
	// Recognized are lists of keys. A file that has all keys of one list belongs to the trainer. A key may require a
	// value: "model._component_=torchtune.".
	Recognized [][]string `yaml:"recognized"`
	// Scripts are the names of Python files that always belong to the trainer.
	Scripts []string `yaml:"scripts"`
	// Tasks are the kinds of training that a file may describe, the default first; empty for a trainer with one kind.
	Tasks []Task `yaml:"tasks"`
	// Strategy reports whether files of the table only describe the strategy for several GPUs (DeepSpeed, accelerate).
	Strategy bool `yaml:"strategy"`
	// Several is the default strategy for several GPUs if the file names none; empty for DDP.
	Several string `yaml:"several"`
	// Only maps groups of keys to the condition under which they apply: the values that other keys must have.
	Only map[string]map[string]OneOf `yaml:"only"`
	// Keys maps the paths of the keys that affect memory to their meaning.
	Keys map[string]Row `yaml:"keys"`
	// WrittenKeys are the keys that are added for batch, accumulate and checkpointing if the file lacks them.
	WrittenKeys map[string]string `yaml:"written"`
	// SavingValues maps "fact=value" of a memory-saving option to the keys and values that turn it on; "+" appends.
	SavingValues map[string]map[string]string `yaml:"turned"`
	// Harmless are known keys, or groups of keys, without effect on memory. "wandb_*" matches keys with that prefix.
	Harmless []string `yaml:"harmless"`
	// Rules are applied in order to the facts of the keys.
	Rules []Rule `yaml:"rules"`
}

// Row is the meaning of one configuration key.
type Row struct {
	// FactName is the fact that the key sets.
	FactName string `yaml:"is"`
	// TrimPrefix is removed from the start of the value, such as "checkpoints/" before the name of a repository.
	TrimPrefix string `yaml:"cut"`
	// Words maps the key's values to the facts that they imply; "" is null, "*" any other value. A value without an
	// entry is unknown. "=" stands for the value itself. A fact that begins with + is appended to a list.
	Words map[string]ImpliedFacts `yaml:"words"`
	// File reports whether the value may name a file, whose keys are then read as keys of this group.
	File bool `yaml:"file"`
	// Each reports whether the value is a list, each item of which has an entry in Words.
	Each bool `yaml:"each"`
	// Unless are the values that do not affect memory. For other values, Needs is the reason for refusing them, or
	// Bound describes why they need less memory than planned.
	Unless []string `yaml:"unless"`
	Needs  string   `yaml:"needs"`
	Bound  string   `yaml:"bound"`
	// Note is for readers of the table; vprof ignores it.
	Note string `yaml:"note"`
	// SameAs is another key whose Words apply. Only the model that they name is used, as this row's fact.
	SameAs string `yaml:"like"`
}

// ImpliedFacts are the facts that one value of a key implies: the row's own fact, further facts, or both.
type ImpliedFacts struct {
	// Value is the value of the row's own fact.
	Value string
	// Facts maps the names of further facts to their values.
	Facts map[string]string
}

// UnmarshalYAML reads a scalar as the row's own fact, and a mapping as further facts.
func (w *ImpliedFacts) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if n.ShortTag() != "!!null" {
			w.Value = n.Value
		}
		return nil
	}
	return n.Decode(&w.Facts)
}

// Rule sets facts, refuses the configuration, or adds a note, if other facts satisfy a condition.
type Rule struct {
	// When maps facts to the values that satisfy the condition; "" is a missing fact, "*" any value. Unless lists
	// exceptions in the same way.
	When   map[string]OneOf `yaml:"when"`
	Unless map[string]OneOf `yaml:"unless"`
	// Set maps facts that have no value to their value. "=name" copies the value of another fact. A value that begins
	// with + is appended to a list.
	Set map[string]string `yaml:"set"`
	// Clear are the facts to remove.
	Clear []string `yaml:"clear"`
	// Refuse is the reason why the configuration is impossible or not planned. The error names the key of the fact At.
	Refuse string `yaml:"refuse"`
	At     string `yaml:"at"`
	// Note is a note that vprof prints.
	Note string `yaml:"note"`
}

// OneOf is a list of values; YAML may give a single value.
type OneOf []string

// UnmarshalYAML decodes a scalar as a list with one value.
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

// resolveSameAs copies the Words of the row that SameAs names into each row.
func (t *Table) resolveSameAs() {
	for key, row := range t.Keys {
		if row.SameAs == "" {
			continue
		}
		row.Words = map[string]ImpliedFacts{}
		for word, w := range t.Keys[row.SameAs].Words {
			if name := w.Facts["model"]; name != "" {
				row.Words[word] = ImpliedFacts{Value: name}
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

// recognizes reports whether a document belongs to the trainer.
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

// isHarmless reports whether a key, or a group that contains it, is listed as not affecting memory.
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

// keyNames returns the paths of the keys in the table, without groups of keys.
func (t *Table) keyNames() []string {
	single := func(h string) bool { return !strings.HasSuffix(h, "*") }
	return append(slices.Sorted(maps.Keys(t.Keys)), lists.Filter(t.Harmless, single)...)
}
