package trainers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/bench/advise/configfile"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
)

// Values are the recommended values to write into a configuration file.
type Values struct {
	// Batch is the batch size of one GPU. Accumulate is the number of micro-batches of an optimizer step.
	Batch, Accumulate int
	Checkpointing     bool
	// Savings maps the flags of memory-saving options (without dashes) to the recommended values. The file may already
	// set some of them.
	Savings map[string]string
	// Given maps other flags that the user gave, for which the trainer has keys, to their values.
	Given map[string]string
}

// CanSet reports whether the trainer has a key for a memory-saving option, given by its flag without dashes.
func (c *Config) CanSet(flag string) bool {
	for lever := range c.table.SavingValues {
		if strings.HasPrefix(lever, flag+"=") {
			return true
		}
	}
	return false
}

// savingEdits returns the edits that set the keys of memory-saving options, in the order of their names. It skips
// options that the configuration sets already.
func (c *Config) savingEdits(levers map[string]string) (edits []configfile.Edit, err error) {
	for _, name := range slices.Sorted(maps.Keys(levers)) {
		if c.facts[name].value == levers[name] {
			continue
		}
		keys, known := c.table.SavingValues[name+"="+levers[name]]
		if !known {
			return nil, input.FileErrorf(c.File, "vprof does not know which keys of %s set --%s %s; set them in the "+
				"file yourself, and run fit on it again", c.Trainer, name, levers[name])
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			item, isItem := strings.CutPrefix(keys[key], "+")
			edits = append(edits, configfile.Edit{Path: key, Value: yamlLiteral(item), Create: true, Item: isItem})
		}
	}
	return edits, nil
}

// yamlLiteral converts a value of a table to a YAML boolean, number or string.
func yamlLiteral(word string) any {
	if on, err := strconv.ParseBool(word); err == nil && len(word) > 1 {
		return on
	}
	if n, err := strconv.ParseInt(strings.TrimSuffix(word, ".0"), 10, 64); err == nil {
		return n
	}
	return word
}

// Effective returns the configured number of samples of an optimizer step on this number of GPUs; 0 if unknown.
func (c *Config) Effective(gpus int) int {
	n := max(1, gpus)
	if c.facts[meshPipeline].value != "" { // whose ranks have one batch together
		return 0
	}
	for _, name := range []string{"batch", "accumulate"} {
		k, err := strconv.Atoi(c.facts[name].value)
		const most = 1 << 30
		if err != nil || k < 1 || k > most/n {
			return 0
		}
		n *= k
	}
	return n
}

// NamesModel reports whether the configuration names a model whose config.json is on this machine.
func (c *Config) NamesModel() bool {
	_, err := c.ModelSpec()
	return err == nil && c.Model.Name != ""
}

// Writable reports whether values can be written into the document; false for a command line, which is printed.
func (c *Config) Writable() bool { return !c.doc.command }

// Edits returns the edits that set the values in the configuration file, by the trainer's table. Keys that already have
// the value stay unchanged.
func (c *Config) Edits(v Values) ([]configfile.Edit, error) { return c.edits(v, false) }

// Paste returns the command-line arguments that set the values, for users to paste.
func (c *Config) Paste(v Values) (string, error) {
	edits, err := c.edits(v, true)
	return strings.Join(lists.Map(edits, func(e configfile.Edit) string {
		return fmt.Sprintf("--%s %v", e.Path, e.Value)
	}), " "), err
}

// edits returns the edits that set the values; all includes batch, accumulation and checkpointing that are set already.
func (c *Config) edits(v Values, all bool) (edits []configfile.Edit, err error) {
	for _, name := range []string{"batch", "accumulate", "checkpointing"} {
		key, value, same, err := c.keyAndValue(name, v)
		if err != nil {
			return nil, err
		}
		if all || !same {
			edits = append(edits, configfile.Edit{Path: key, Value: value, Create: true})
		}
	}
	turned, err := c.savingEdits(v.Savings)
	return slices.Concat(edits, c.pipelineEdits(v), turned, c.givenEdits(v.Given)), err
}

// keyAndValue returns the key that sets a fact, and the trainer's value for vprof's value. same reports whether the
// file already sets that value.
func (c *Config) keyAndValue(name string, v Values) (key string, value any, same bool, err error) {
	ours := map[string]string{
		"batch": strconv.Itoa(v.Batch), "accumulate": strconv.Itoa(v.Accumulate),
		"checkpointing": strconv.FormatBool(v.Checkpointing),
	}[name]
	f, same := c.facts[name], c.facts[name].value == ours
	if f.from.File != "" && f.from.File != c.doc.file && !same {
		return "", nil, false,
			f.fault("decides %s, and vprof writes the trainer's own file only; change it there to %s", name, ours)
	}
	key = cmp.Or(f.from.Path, c.table.WrittenKeys[name])
	total := int64(v.Batch) * int64(v.Accumulate)
	switch c.table.Keys[key].FactName {
	case totalBatch:
		return key, total, total == int64(c.total), nil
	case globalBatch:
		total *= c.groups
		return key, total, c.groups == 0 || strconv.FormatInt(total, 10) == c.facts[globalBatch].value, nil
	}
	if key, value = c.keyFor(name, ours); key == "" && !same {
		err = Key{File: c.File}.fault("%s has no key for --%s %s; set it yourself", c.Trainer, name, ours)
	}
	return key, value, same, err
}

// wordFor returns the key's value that sets a fact to this value and no other fact; of several the last in order, which
// is "true" before "auto". For an empty value it returns "no" or "false" if other words set the fact.
func (r Row) wordFor(fact, value string) (word string, ok bool) {
	sets := false
	for _, word := range slices.Backward(slices.Sorted(maps.Keys(r.Words))) {
		w := r.Words[word]
		alone := len(w.Facts) == 1 && w.Facts[fact] == value
		if value != "" && word != "" && word != "*" && (r.FactName == fact && w.Value == value || alone) {
			return word, true
		}
		sets = sets || w.Facts[fact] != ""
	}
	for _, word := range []string{"no", "false"} {
		if w, off := r.Words[word]; off && value == "" && sets && w.Facts[fact] == "" {
			return word, true
		}
	}
	return "", false
}

// HasKeys reports whether the trainer has keys that set a flag, given without dashes, to the value.
func (c *Config) HasKeys(flag, value string) bool {
	for fact, value := range factsOf(flag, value) {
		if key, _ := c.keyFor(fact, value); key == "" {
			return false
		}
	}
	return true
}

// givenEdits returns the edits that set the user's flags, in the order of their names. If another key of the file gives
// a fact another value (bf16 and fp16), that key is turned off.
func (c *Config) givenEdits(given map[string]string) (edits []configfile.Edit) {
	for _, flag := range slices.Sorted(maps.Keys(given)) {
		wanted := factsOf(flag, given[flag])
		for _, fact := range slices.Sorted(maps.Keys(wanted)) {
			f := c.facts[fact]
			if f.value == wanted[fact] {
				continue
			}
			key, value := c.keyFor(fact, wanted[fact])
			edits = append(edits, configfile.Edit{Path: key, Value: value, Create: true})
			off, ok := c.table.Keys[f.from.Path].wordFor(fact, "")
			if ok && f.from.File == c.doc.file && f.from.Path != key {
				edits = append(edits, configfile.Edit{Path: f.from.Path, Value: yamlLiteral(off)})
			}
		}
	}
	return edits
}

// keyFor returns the key that sets a fact to a value, and what it is set to: the file's own key, else that which the
// table writes, else the first of the table's; empty if there is none.
func (c *Config) keyFor(fact, value string) (key string, written any) {
	keys := append([]string{c.table.WrittenKeys[fact]}, slices.Sorted(maps.Keys(c.table.Keys))...)
	own := c.facts[fact].from
	if own.File == c.doc.file {
		keys = slices.Insert(keys, 0, own.Path)
	}
	for _, key := range keys {
		row := c.table.Keys[key]
		if word, ok := row.wordFor(fact, value); ok {
			return key, yamlLiteral(word)
		}
		if isKey := row.FactName == fact || key == own.Path && key != ""; isKey && len(row.Words) == 0 {
			return key, yamlLiteral(value)
		}
	}
	return "", nil
}
