package trainers

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/nearest"
)

// Config is what a trainer's configuration says of the memory of a step.
type Config struct {
	// File is the configuration, Trainer and Version the table that it was read by.
	File, Trainer, Version string
	// Model is what is trained; its Name is empty if the files do not say.
	Model Model
	// Teacher is the model that it learns from; its Name is empty for none.
	Teacher Model
	// Settings are vprof's flags with their values, in the order of a command line.
	Settings []Setting
	// Notes say where what is planned differs from what the trainer does.
	Notes []string
	// Unknown are the keys that the table does not have.
	Unknown []Key
	// Mapped and Harmless are the numbers of keys that matter and that do not.
	Mapped, Harmless int

	doc   *document
	table *Table
	facts facts
	// total is the batch of a whole step, if that is what the file says.
	total int
}

// Key is a key of a file.
type Key struct {
	File string
	Line int
	Path string
}

// String is where the key is, and which.
func (k Key) String() string {
	e := input.FormatError{File: k.File, Line: k.Line, Key: k.Path}
	return e.Error()
}

// Setting is a flag of vprof that a file sets.
type Setting struct {
	// Flag is its name without dashes, Value what it takes.
	Flag, Value string
	// From is the key that says so; its Path is empty for what the trainer does
	// where the file says nothing.
	From Key
}

// Wrong is an error about the setting, at its place in the file.
func (s Setting) Wrong(format string, args ...any) error {
	return &input.FormatError{File: s.From.File, Line: s.From.Line, Key: cmp.Or(s.From.Path, "--"+s.Flag), Reason: fmt.Sprintf(format, args...)}
}

// Open reads the configuration files of one training: that of the trainer, and those
// of DeepSpeed and accelerate beside it. The error is a [*input.FormatError].
func Open(paths []string) (*Config, error) {
	var docs []*document
	for _, p := range paths {
		d, err := open(p)
		if err != nil {
			return nil, err
		}
		docs = append(docs, d)
	}
	return read(docs)
}

// Command reads the command line that starts a trainer.
func Command(args []string) (*Config, error) {
	d, err := parseCommand(args)
	if err != nil {
		return nil, err
	}
	return read([]*document{d})
}

// read makes a configuration of documents, the trainer's and those of strategies.
func read(docs []*document) (*Config, error) {
	c := &Config{facts: facts{}}
	for _, d := range docs {
		if d.config != "" {
			more, err := open(beside(d.file, d.config))
			if err != nil {
				return nil, err
			}
			if len(more.root.entries) > 0 && d.trainer != "" { // arguments stand over the file's
				for _, e := range d.root.entries {
					if _, own := d.trainerKey(e.key); own {
						more.root.add(e)
					}
				}
				more.facts, more.trainer = d.facts, d.trainer
				d = more
			} else if err := c.take(more); err != nil {
				return nil, err
			}
		}
		if err := c.take(d); err != nil {
			return nil, err
		}
	}
	if c.table == nil {
		return nil, docs[0].wrong(0, "", "says how several GPUs share the work and not what is trained; name the trainer's configuration, too")
	}
	if err := c.strategy(); err != nil {
		return nil, err
	}
	c.divide()
	if err := c.rules(c.table, c.facts); err != nil {
		return nil, err
	}
	return c, c.compose()
}

// totalBatch is the fact of a batch that counts the micro-batches of a step.
const totalBatch = "total-batch"

// divide finds the number of micro-batches where the file has the batch of a step.
func (c *Config) divide() {
	f, ok := c.facts[totalBatch]
	if _, given := c.facts["accumulate"]; !ok || given {
		return
	}
	batch, _ := strconv.Atoi(c.facts["batch"].value)
	c.total, _ = strconv.Atoi(f.value)
	c.facts.set("accumulate", strconv.Itoa(max(1, c.total/max(1, batch))), f.from)
}

// trainerKey tells whether a key of a command line is one of the trainer's.
func (d *document) trainerKey(key string) (Row, bool) {
	t := Named(d.trainer)
	if t == nil {
		return Row{}, false
	}
	row, ok := t.Keys[key]
	return row, ok || t.harmless(key)
}

// take reads the keys of one document.
func (c *Config) take(d *document) error {
	t := Named(d.trainer)
	for _, other := range Tables() {
		if t == nil && other.recognizes(d) {
			t = other
		}
	}
	if t == nil {
		return unknownTrainer(d)
	}
	r := reader{doc: d, table: t, config: c, facts: facts{}}
	if d.facts != nil {
		maps.Copy(r.facts, d.facts)
	}
	if err := r.group("", d.root); err != nil {
		return err
	}
	if t.Strategy {
		if err := c.rules(t, r.facts); err != nil {
			return err
		}
	} else {
		if c.table != nil {
			return d.wrong(0, "", "is a configuration of %s, and %s is one of %s; plan one training at a time", t.Trainer, c.File, c.Trainer)
		}
		c.table, c.doc, c.File, c.Trainer, c.Version = t, d, d.file, t.Trainer, t.Version
	}
	for _, name := range slices.Sorted(maps.Keys(r.facts)) {
		f := r.facts[name]
		if old, twice := c.facts[name]; twice && old.value != f.value {
			if old.from.key == "" || f.from.key == "" {
				continue
			}
			return &input.FormatError{File: f.from.file, Line: f.from.line, Key: f.from.key, Reason: fmt.Sprintf(
				"says %s, and %s:%d: %s says %s; make them agree", f.value, old.from.file, old.from.line, old.from.key, old.value)}
		}
		c.facts[name] = f
	}
	return nil
}

// unknownTrainer says what there is in place of a trainer that vprof knows.
func unknownTrainer(d *document) error {
	var names, signs []string
	for _, t := range Tables() {
		names = append(names, t.Trainer)
		for _, r := range t.Recognized {
			signs = append(signs, r...)
		}
	}
	hint := ""
	for _, e := range d.root.entries {
		if near := nearest.Names(e.key, signs, 1); len(near) > 0 && near[0] != e.key {
			hint = fmt.Sprintf(" (line %d: did you mean %s for %s?)", e.line, near[0], e.key)
			break
		}
	}
	return d.wrong(0, "", "has the keys of no trainer that vprof knows: %s%s", strings.Join(names, ", "), hint)
}

// beside finds a file that another names: as it is named, from the folder of that
// file, or from one above it, where a trainer's own examples are started. If there
// is none it is as it is named.
func beside(file, name string) string {
	if _, err := os.Stat(name); err == nil || filepath.IsAbs(name) {
		return name
	}
	dir := filepath.Dir(file)
	for range 8 {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		dir = filepath.Join(dir, "..")
	}
	return name
}

// strategy reads the file of DeepSpeed that a trainer's configuration names.
func (c *Config) strategy() error {
	f, ok := c.facts["deepspeed"]
	if !ok || f.value == "" {
		return nil
	}
	delete(c.facts, "deepspeed")
	switch f.value {
	case "zero2", "zero3": // as ms-swift shortens them
		c.facts.set("strategy", f.value, f.from)
		return nil
	}
	d, err := open(beside(c.File, f.value))
	if err != nil {
		return &input.FormatError{File: f.from.file, Line: f.from.line, Key: f.from.key, Reason: err.Error()}
	}
	d.trainer = "DeepSpeed"
	return c.take(d)
}
