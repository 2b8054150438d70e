package trainers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/bench/advise/configfile"
	"github.com/vprof/vprof/internal/input"
)

// Values are the recommended values to write into a configuration file.
type Values struct {
	// Batch is the batch size of one GPU. Accumulate is the number of micro-batches of an optimizer step.
	Batch, Accumulate int
	Checkpointing     bool
	// Savings maps the flags of memory-saving options (without dashes) to the recommended values. The file may already
	// set some of them.
	Savings map[string]string
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
	if n, err := strconv.ParseInt(word, 10, 64); err == nil {
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
func (c *Config) Edits(v Values) ([]configfile.Edit, error) {
	var edits []configfile.Edit
	for _, name := range []string{"batch", "accumulate", "checkpointing"} {
		key, value, same, err := c.keyAndValue(name, v)
		if err != nil {
			return nil, err
		}
		if !same {
			edits = append(edits, configfile.Edit{Path: key, Value: value, Create: true})
		}
	}
	turned, err := c.savingEdits(v.Savings)
	return slices.Concat(edits, c.pipelineEdits(v), turned), err
}

// DecidedBy returns the key that sets a fact, or a setting given by its flag: the key in the file, or the key to add;
// empty if the trainer's table has none.
func (c *Config) DecidedBy(flag string) string {
	if flag == "" {
		return ""
	}
	for _, s := range c.Settings {
		if s.Flag == flag && s.From.Path != "" {
			return s.From.Path
		}
	}
	if key := c.table.WrittenKeys[flag]; key != "" {
		return key
	}
	for lever, keys := range c.table.SavingValues {
		if strings.HasPrefix(lever, flag+"=") {
			return strings.Join(slices.Sorted(maps.Keys(keys)), ", ")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.table.Keys)) {
		if c.table.Keys[key].FactName == flag {
			return key
		}
		for _, w := range c.table.Keys[key].Words {
			if w.Facts[flag] != "" {
				return key
			}
		}
	}
	return ""
}

// Paste returns the command-line arguments that set the values, for users to paste.
func (c *Config) Paste(v Values) (string, error) {
	var words []string
	for _, name := range []string{"batch", "accumulate", "checkpointing"} {
		key, value, _, err := c.keyAndValue(name, v)
		if err != nil {
			return "", err
		}
		words = append(words, fmt.Sprintf("--%s %v", key, value))
	}
	turned, err := c.savingEdits(v.Savings)
	for _, e := range slices.Concat(c.pipelineEdits(v), turned) {
		words = append(words, fmt.Sprintf("--%s %v", e.Path, e.Value))
	}
	return strings.Join(words, " "), err
}

// keyAndValue returns the key that sets a fact, and the trainer's value for vprof's value. same reports whether the
// file already sets that value.
func (c *Config) keyAndValue(name string, v Values) (key string, value any, same bool, err error) {
	ours := map[string]string{
		"batch": strconv.Itoa(v.Batch), "accumulate": strconv.Itoa(v.Accumulate),
		"checkpointing": strconv.FormatBool(v.Checkpointing),
	}[name]
	f := c.facts[name]
	key = c.table.WrittenKeys[name]
	if own := f.from; own.File == c.doc.file && own.Path != "" {
		key = own.Path
	}
	row := c.table.Keys[key]
	switch {
	case f.value == ours:
		same = true
	case f.from.File != "" && f.from.File != c.doc.file:
		return "", nil, false,
			f.fault("decides %s, and vprof writes the trainer's own file only; change it there to %s", name, ours)
	}
	if key == "" && !same {
		return "", nil, false, Key{File: c.File}.fault("%s has no key for --%s %s; set it yourself", c.Trainer, name,
			ours)
	}
	if row.FactName == totalBatch {
		total := int64(v.Batch) * int64(v.Accumulate)
		return key, total, total == int64(c.total), nil
	}
	if row.FactName == globalBatch {
		total := int64(v.Batch) * int64(v.Accumulate) * c.groups
		return key, total, c.groups == 0 || strconv.FormatInt(total, 10) == c.facts[globalBatch].value, nil
	}
	if len(row.Words) == 0 {
		n, err := strconv.ParseInt(ours, 10, 64)
		return key, n, same, err
	}
	for word, w := range row.Words {
		if alone := len(w.Facts) == 1 && w.Facts[name] == ours; w.Value != ours && !alone {
			continue
		}
		if on, err := strconv.ParseBool(word); err == nil {
			return key, on, same, nil
		}
		return key, word, same, nil
	}
	n, err := strconv.ParseInt(ours, 10, 64)
	return key, n, same, err
}
