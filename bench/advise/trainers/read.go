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
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/nearest"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
)

// Config is a trainer's configuration, converted to settings of vprof.
type Config struct {
	// File is the path of the configuration. Trainer and Version name the table that described its keys.
	File, Trainer, Version string
	// Model is the trained model; its Name is empty if the files name none.
	Model Model
	// Teacher is the teacher model in distillation; its Name is empty without distillation.
	Teacher Model
	// Settings are vprof's flags with their values, in the order of a command line.
	Settings []Setting
	// Notes describe differences between the plan and the trainer's behavior.
	Notes phrase.List
	// Unknown are the keys that the trainer's table lacks.
	Unknown []UnknownKey
	// SeveralGPUs is the default strategy for several GPUs if the files name none; empty for DDP.
	SeveralGPUs string
	// Script is the user's Python file that a command starts. Flags must describe its training, not its arguments.
	Script string
	// Mapped and Harmless count the keys that affect memory and the keys that do not.
	Mapped, Harmless int

	doc   *document
	table *Table
	facts facts
	// unknownCount is the number of GPUs as written, if that is a shell variable or command.
	unknownCount fact
	// total is the batch size of an optimizer step on one GPU, if the file sets it.
	total int
	// groups is the data-parallel size: the number of groups of ranks that train on different samples. It is set only
	// if the file has the global batch.
	groups int64
}

// UnknownKey is a key that a trainer's table lacks, and the most similar known key; empty if none is similar.
type UnknownKey struct {
	Key
	Near, Trainer string
}

// Key identifies where a value is set: a key of a file, with its line.
type Key struct {
	File string
	Line int
	Path string
}

// String returns the file and the key.
func (k Key) String() string {
	return (&input.FormatError{File: k.File, Line: k.Line, Key: k.Path}).Error()
}

// fault returns an error about the key's value, with file and line.
func (k Key) fault(format string, args ...any) error {
	return &input.FormatError{File: k.File, Line: k.Line, Key: k.Path, Reason: fmt.Sprintf(format, args...)}
}

// Setting is a flag of vprof with the value that a file sets.
type Setting struct {
	// Flag is the name of the flag without dashes, Value its value.
	Flag, Value string
	// Change applies the setting to a case. It is zero if no field of a case corresponds to the flag, or if the flag
	// concerns several GPUs, which commands handle.
	Change models.Change
	// From is the key that sets the flag; its Path is empty for the trainer's default.
	From Key
}

// Fault returns an error about the setting, with the file and line of its key.
func (s Setting) Fault(format string, args ...any) error {
	s.From.Path = cmp.Or(s.From.Path, "--"+s.Flag)
	return s.From.fault(format, args...)
}

// Open reads the configuration of one training: the trainer's file, and the files of DeepSpeed and accelerate that are
// used with it. objective is the value of --objective; empty without one. It selects the task if files of several tasks
// have the same keys. The error is a [*input.FormatError].
func Open(paths []string, objective string) (*Config, error) {
	var docs []*document
	for _, p := range paths {
		d, err := openDocument(p)
		if err != nil {
			return nil, err
		}
		d.task = cmp.Or(d.task, objective)
		docs = append(docs, d)
	}
	return combineDocuments(docs)
}

// Command reads the command line that starts a trainer. objective is as in [Open].
func Command(args []string, objective string) (*Config, error) {
	d, err := parseCommand(args)
	if err != nil {
		return nil, err
	}
	d.task = cmp.Or(d.task, objective)
	return combineDocuments([]*document{d})
}

// combineDocuments combines the trainer's document with the documents of DeepSpeed and accelerate.
func combineDocuments(docs []*document) (*Config, error) {
	c := &Config{facts: facts{}}
	for _, d := range docs {
		for _, part := range []*document{d.gpuDocument, d} {
			if part == nil {
				continue
			}
			part, err := part.overridesFile()
			if err != nil {
				return nil, err
			}
			if err := c.readDocument(part); err != nil {
				return nil, err
			}
		}
	}
	if alone := docs[0]; c.table == nil {
		if c.Script != "" {
			if alone = alone.gpuDocument; alone == nil {
				return c, nil
			}
		}
		c.refuseOptions(alone)
	}
	if err := c.readStrategyFile(); err != nil {
		return nil, err
	}
	c.divideBatch()
	if err := c.applyRules(c.table, c.facts); err != nil {
		return nil, err
	}
	if err := c.composeSettings(); err != nil {
		return nil, err
	}
	return c, nil
}

// add adds a setting. It parses the value if a field of a case corresponds to the flag.
func (c *Config) add(flag, value string, from Key) error {
	s := Setting{Flag: flag, Value: value, From: c.withFile(from)}
	if f := models.FieldNamed(flag); f != nil && flag != "strategy" {
		var err error
		if s.Change, err = f.Parse(value); err != nil {
			return s.Fault("is %s: %v", value, err)
		}
	}
	c.Settings = append(c.Settings, s)
	return nil
}

// totalBatch is the fact of a batch size that includes all micro-batches of an optimizer step.
const totalBatch = "total-batch"

// divideBatch computes the number of micro-batches if the file sets the batch size of an optimizer step.
func (c *Config) divideBatch() {
	f, ok := c.facts[totalBatch]
	if _, given := c.facts["accumulate"]; !ok || given {
		return
	}
	batch, _ := strconv.Atoi(c.facts["batch"].value)
	c.total, _ = strconv.Atoi(f.value)
	c.facts.set("accumulate", strconv.Itoa(max(1, c.total/max(1, batch))), f.from)
}

// overridesFile merges the arguments of a command line into the configuration file that it names.
func (d *document) overridesFile() (*document, error) {
	if d.config == "" {
		return d, nil
	}
	path := resolvePath(d.file, d.config)
	if _, err := os.Stat(path); err != nil && d.trainer == "torchtune" && filepath.Ext(path) == "" {
		return nil, d.fault(0, "--config", "%s is one of torchtune's own files; \"tune cp %s mine.yaml\" copies it, "+
			"then name --config mine.yaml", d.config, d.config)
	}
	file, err := openDocument(path)
	if err != nil {
		return nil, err
	}
	for _, e := range d.root.entries {
		if slices.Contains(starterOptions, e.key) && d.facts != nil {
			d.facts.set("gpus", e.value.text, Key{d.file, e.line, "--" + e.key})
			continue
		}
		e.argument = true
		file.root.setAtPath(e)
	}
	file.facts, file.trainer, file.script, file.notes = d.facts, d.trainer, d.script, d.notes
	file.source, file.task = d.source, d.task
	return file, nil
}

// refuseOptions applies a DeepSpeed or accelerate file that was given without a trainer's file: flags then describe the
// training, and the file also sets the precision.
func (c *Config) refuseOptions(d *document) {
	t := tableOf(d)
	c.table, c.doc, c.File, c.Trainer, c.Version, c.SeveralGPUs = t, d, d.file, t.Trainer, t.Version, t.Several
	for _, precision := range []string{"fp16", "bf16"} {
		key := precision + ".enabled"
		if v := d.root.lookup(key); v != nil && v.text == "true" {
			c.facts.set("amp", precision, Key{d.file, v.line, key})
		}
	}
	if f, ok := c.facts["mixed"]; ok {
		c.facts["amp"] = f
	}
	c.Notes.If(d.root.get("optimizer") != nil,
		"%s: optimizer: is not read; --optimizer names the one that is planned", d.file)
}

// tableOf returns the table of the trainer whose file or command a document is; nil if unknown. A file that the
// Trainer's table recognizes belongs to TRL if its keys, its script or the user name a TRL task.
func tableOf(d *document) *Table {
	t := TableNamed(d.trainer)
	for _, other := range Tables() {
		if d.script != "" && slices.Contains(other.Scripts, d.script) {
			t = other
		}
	}
	for _, other := range Tables() {
		if t == nil && other.recognizes(d) {
			t = other
			for _, above := range Tables() {
				if above.Extends == t.Trainer && above.namesTask(d) {
					t = above
				}
			}
		}
	}
	return t
}

func (c *Config) readDocument(d *document) error {
	if err := refuseUnplanned(d); err != nil && d.trainer == "" {
		return err
	}
	t := tableOf(d)
	if t == nil && d.script != "" && d.file == commandLineFile {
		c.Script = d.script
		return nil
	}
	if t == nil {
		return unknownTrainer(d)
	}
	c.Notes = append(c.Notes, d.notes...)
	r := factReader{doc: d, table: t, config: c, facts: facts{}}
	if d.facts != nil {
		maps.Copy(r.facts, d.facts)
	}
	if err := r.addTaskFacts(); err != nil {
		return err
	}
	if err := r.readGroup("", d.root); err != nil {
		return err
	}
	if t.Strategy {
		if err := c.applyRules(t, r.facts); err != nil {
			return err
		}
	} else {
		if c.table != nil {
			return d.fault(0, "", "is a configuration of %s, and %s is one of %s; plan one training at a time",
				t.Trainer, c.File, c.Trainer)
		}
		c.table, c.doc, c.File, c.Trainer, c.Version, c.SeveralGPUs = t, d, d.file, t.Trainer, t.Version, t.Several
	}
	for _, name := range slices.Sorted(maps.Keys(r.facts)) {
		f := r.facts[name]
		if old, twice := c.facts[name]; twice && old.value != f.value {
			switch {
			case old.from.Path == "" || f.from.Path == "" || name == "mixed" && t.Strategy:
				continue
			case name == "mixed": // the Trainer's bf16 and fp16 win over what accelerate launch says
				c.facts[name] = f
				continue
			}
			return f.from.fault("says %s, and %s:%d: %s says %s; make them agree", f.value, old.from.File,
				old.from.Line, old.from.Path, old.value)
		}
		c.facts[name] = f
	}
	return nil
}

// unknownTrainer returns the error for a file of no known trainer. It names the trainer with the most matching keys and
// its missing keys; without such a trainer, it names all trainers.
func unknownTrainer(d *document) error {
	var names []string
	var like *Table
	most := 2 // keys that two trainers share say nothing
	for _, t := range Tables() {
		names = append(names, t.Trainer)
		has := 0
		for _, e := range d.root.entries {
			if _, ok := t.Keys[e.key]; ok || t.hasGroup(e.key) || t.isHarmless(e.key) {
				has++
			}
		}
		if has > most {
			like, most = t, has
		}
	}
	if like == nil {
		return d.fault(0, "", "has the keys of no trainer that vprof knows: %s%s; vprof fit --model MODEL --apply "+
			"--map batch=KEY writes a file of your own, too", strings.Join(names, ", "), misspelledHint(d, Tables()))
	}
	ways := lists.Map(like.Recognized, func(keys []string) string { return strings.Join(keys, " and ") })
	return d.fault(0, "", "has keys of %s, but none of what tells its configurations: %s%s", like.Trainer,
		strings.Join(ways, "; "), misspelledHint(d, []*Table{like}))
}

// misspelledHint returns a hint with the most similar key among the keys that identify trainers.
func misspelledHint(d *document, tables []*Table) string {
	var signs []string
	known := func(key string) bool { return false }
	for _, t := range tables {
		for _, r := range t.Recognized {
			signs = append(signs, r...)
		}
		if len(tables) == 1 {
			known = func(key string) bool { _, ok := t.Keys[key]; return ok || t.isHarmless(key) }
		}
	}
	for _, e := range d.root.entries {
		if near := nearest.LikelyTypo(e.key, signs); near != "" && !known(e.key) {
			return fmt.Sprintf(" (line %d: did you mean %s for %s?)", e.line, near, e.key)
		}
	}
	if v := d.root.get("schema"); v != nil && strings.HasPrefix(v.text, "vprof.") {
		return fmt.Sprintf("; it is a result of vprof (%s), which vprof report or diagnose reads", v.text)
	}
	if d.root.get("architectures") != nil || d.root.get("model_type") != nil {
		return fmt.Sprintf("; it is a model's configuration: --model hf:%s", d.file)
	}
	return ""
}

// resolvePath returns the path of a file that another file names. It tries the working directory, that file's folder,
// and the folders above it, where trainers' examples are started. If none has the file, it returns the name.
func resolvePath(file, name string) string {
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

// readStrategyFile reads the DeepSpeed file that a trainer's configuration names.
func (c *Config) readStrategyFile() error {
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
	d, err := openDocument(resolvePath(c.File, f.value))
	if err != nil {
		return f.from.fault("%v", err)
	}
	d.trainer = "DeepSpeed"
	return c.readDocument(d)
}
