package trainers

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
)

// Task is one kind of training that a trainer offers. TRL has SFT, DPO, GRPO and others, which share most keys.
type Task struct {
	// Name is the task's name in commands and file names ("dpo"). Names are further names in file names.
	Name  string   `yaml:"name"`
	Names []string `yaml:"names"`
	// Facts are the facts that the task implies.
	Facts map[string]string `yaml:"facts"`
	// Keys are keys, or "key=value" pairs, that this task has and another task lacks.
	Keys []string `yaml:"keys"`
	// Class is the name of the task's Python class without "Trainer".
	Class string `yaml:"class"`
	// Refuse is the reason why vprof cannot plan the task; empty if it can.
	Refuse string `yaml:"refuse"`
}

// addTaskFacts adds the facts that the document's task implies.
func (r *factReader) addTaskFacts() error {
	task, from, err := r.config.findTask(r.doc, r.table)
	switch {
	case err != nil || task == nil:
		return err
	case task.Refuse != "":
		return from.fault("is of %s: %s", task.Name, task.Refuse)
	}
	for name, value := range task.Facts {
		r.facts.set(name, value, from)
	}
	return nil
}

// findTask returns the task of a document: the one that the command or the user names, else the only one that has all
// of the document's keys, else the one that the script's imports, the script's name, the file's name or its folder
// name. It returns nil for a trainer with one task, and an error if several tasks are possible.
func (c *Config) findTask(d *document, t *Table) (task *Task, from Key, err error) {
	from = Key{File: d.file}
	if len(t.Tasks) == 0 {
		return nil, from, nil
	}
	if at := slices.IndexFunc(t.Tasks, func(k Task) bool { return k.hasName(d.task) }); d.task != "" {
		if at < 0 { // the flag decides
			return &Task{Facts: map[string]string{"objective": d.task}}, from, nil
		}
		return &t.Tasks[at], from, nil
	}
	left, signs, err := t.tasksByKeys(d)
	if err != nil {
		return nil, from, err
	}
	if len(signs) > 0 {
		from = signs[0]
	}
	if len(left) > 1 {
		if task, what := taskNamed(left, d); task != nil {
			c.Notes.If(task.Name != t.Tasks[0].Name, "%s: is planned as %s, as %s says; --objective names another",
				d.file, task.Name, what)
			return task, from, nil
		}
	}
	if len(left) == 1 || len(signs) == 0 {
		return left[0], from, nil
	}
	names := lists.Map(left, func(k *Task) string { return k.Name })
	return nil, from, from.fault("is a key of %s, and nothing says which of them this is: name it with --objective, "+
		"or by the command that starts it: -- trl NAME --config %s", strings.Join(names, ", "), d.file)
}

// namesTask reports whether a document's keys, its script or the user name a task of the trainer.
func (t *Table) namesTask(d *document) bool {
	if len(t.Tasks) == 0 {
		return false
	}
	left, signs, err := t.tasksByKeys(d)
	if err != nil || len(signs) > 0 || d.task != "" {
		return true
	}
	task, _ := taskNamed(left, &document{file: commandLineFile, script: d.script, source: d.source})
	return task != nil
}

// hasName reports whether a word of a command, or the value of --objective, is a name of the task.
func (k *Task) hasName(word string) bool {
	word, _, _ = strings.Cut(word, ":")
	return word != "" && (k.Name == word || k.Facts["objective"] == word)
}

func (t *Table) tasksByKeys(d *document) (left []*Task, signs []Key, err error) {
	for i := range t.Tasks {
		left = append(left, &t.Tasks[i])
	}
	for _, e := range d.root.entries {
		texts, _ := e.value.scalars()
		has := func(k *Task) bool {
			return slices.ContainsFunc(k.Keys, func(key string) bool {
				key, value, valued := strings.Cut(key, "=")
				return key == e.key && (!valued || slices.Contains(texts, value))
			})
		}
		if !slices.ContainsFunc(t.Tasks, func(k Task) bool { return has(&k) }) {
			continue
		}
		all := lists.Map(left, func(k *Task) string { return k.Name })
		signs = append(signs, Key{d.file, e.line, e.key})
		if left = slices.DeleteFunc(left, func(k *Task) bool { return !has(k) }); len(left) == 0 {
			return nil, nil, d.fault(e.line, e.key, "is no key of %s, which other keys of the file are of; vprof "+
				"plans one training at a time", strings.Join(all, ", "))
		}
	}
	return left, signs, nil
}

// taskNamed returns the task that the document names, and what names it: a trainer class in the script, the script's
// name, the file's name or its folder; nil if none does.
func taskNamed(tasks []*Task, d *document) (task *Task, what string) {
	classes := trainerClasses(d.source)
	imported := lists.Filter(tasks, func(k *Task) bool { return slices.Contains(classes, k.Class) })
	if len(imported) == 1 {
		return imported[0], fmt.Sprintf("%sTrainer in %s", imported[0].Class, d.script)
	}
	file, err := filepath.Abs(d.file)
	if err != nil || d.file == commandLineFile {
		file = ""
	}
	for _, name := range []string{d.script, filepath.Base(file), filepath.Base(filepath.Dir(file))} {
		best := ""
		words := "-" + separators.ReplaceAllString(strings.ToLower(name), "-") + "-"
		for _, k := range tasks {
			for _, n := range append([]string{k.Name}, k.Names...) {
				if len(n) > len(best) && strings.Contains(words, "-"+n+"-") {
					task, best = k, n
				}
			}
		}
		if task != nil {
			return task, fmt.Sprintf("the name %q", name)
		}
	}
	return nil, ""
}

var (
	separators   = regexp.MustCompile(`[^a-z0-9]+`)
	trainerClass = regexp.MustCompile(`\b([A-Z]\w*)Trainer\b`)
)

// trainerClasses returns the names of the trainer classes in a Python file, without "Trainer"; none without a file.
func trainerClasses(script string) (names []string) {
	if script == "" {
		return nil
	}
	text, _ := input.ReadUpTo(script, maxBytes) // which may be gone
	for _, m := range trainerClass.FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	return names
}
