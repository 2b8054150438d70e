package trainers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/nearest"
	"github.com/vprof/vprof/internal/phrase"
)

// factReader converts the keys of a document to facts.
type factReader struct {
	doc    *document
	table  *Table
	config *Config
	facts  facts
}

// readGroup reads the keys of a group. path is the group's path with a dot at its end; empty for the whole file.
func (r *factReader) readGroup(path string, v *configValue) error {
	for _, e := range v.entries {
		key := path + e.key
		r.config.Notes.If(e.twice > 0, "%s:%d: %s stands in line %d, too; the trainer takes the later one", r.doc.file,
			e.line, key, e.twice)
		if err := r.readKey(key, e); err != nil {
			return err
		}
	}
	return nil
}

func (r *factReader) readKey(key string, e groupEntry) error {
	row, known := r.table.Keys[key]
	switch {
	case !r.isApplicable(key):
		r.config.Harmless++
	case row.File && e.value.kind == textKind:
		return r.readFile(key, e)
	case known && (e.value.kind != groupKind || !r.table.hasGroup(key)):
		r.config.Mapped++
		return r.applyRow(key, row, e)
	case e.value.kind == groupKind && r.table.hasGroup(key):
		return r.readGroup(key+".", e.value)
	case r.table.isHarmless(key):
		r.config.Harmless++
	case e.value.kind == nullKind && r.table.hasGroup(key):
		r.config.Harmless++
	default:
		near := nearest.LikelyTypo(key, r.table.keyNames())
		r.config.Unknown = append(r.config.Unknown, UnknownKey{r.keyOf(e, key), near, r.table.Trainer})
	}
	return nil
}

// isApplicable reports whether a key applies, by the table's conditions ([Table.Only]) on other keys.
func (r *factReader) isApplicable(key string) bool {
	for other, values := range r.table.Only[key] {
		if v := r.doc.root.lookup(other); v != nil && !slices.Contains(values, v.text) {
			return false
		}
	}
	return true
}

// readFile reads the file that a key names. Its keys count as keys of a group with that key's name.
func (r *factReader) readFile(key string, e groupEntry) error {
	d, err := openDocument(resolvePath(r.doc.file, e.value.text))
	if err != nil {
		return r.keyOf(e, key).fault("%v", err)
	}
	below := *r
	below.doc = d
	return below.readGroup(key+".", d.root)
}

// keyOf returns the position of an entry, in the document or on the command line that overrides it.
func (r *factReader) keyOf(e groupEntry, key string) Key {
	if e.argument {
		return Key{commandLineFile, 0, key}
	}
	return Key{r.doc.file, e.line, key}
}

// applyRow adds the facts that the row of a key implies for its value.
func (r *factReader) applyRow(key string, row Row, e groupEntry) error {
	v, err := r.resolveValue(key, e.value, 0)
	if err != nil {
		return err
	}
	from := r.keyOf(e, key)
	wrong := from.fault
	texts, ok := v.scalars()
	switch {
	case len(row.Unless) > 0 || row.Needs != "" || row.Bound != "":
		if v.kind == nullKind || ok && len(texts) == 1 && slices.Contains(row.Unless, texts[0]) ||
			(v.kind == listKind || v.kind == groupKind) && len(v.items)+len(v.entries) == 0 {
			return nil
		}
		if row.Needs != "" {
			return wrong("is %s: %s", v.excerpt(), row.Needs)
		}
		r.config.Notes.Add("%v: %s", from, row.Bound)
		return nil
	case !ok:
		return wrong("is %s, where a value is expected", v.excerpt())
	case len(row.Words) > 0:
		return r.applyWords(row, v, texts, from)
	case v.kind == nullKind:
		return nil
	}
	joined := strings.TrimPrefix(strings.Join(texts, ","), row.TrimPrefix)
	if reason := checkCount(row.FactName, joined); reason != "" {
		return wrong("%s %s", v.excerpt(), reason)
	}
	if row.FactName == loraTarget && len(texts) > 1 && strings.ContainsAny(joined, expression) {
		return wrong("lists regular expressions, which peft takes for names; give one as text, or list names")
	}
	r.facts.set(row.FactName, joined, from)
	return nil
}

// applyWords adds the facts that the row's Words list for the value of a key.
func (r *factReader) applyWords(row Row, v *configValue, texts []string, from Key) error {
	if len(texts) > 1 && !row.Each {
		return from.fault("is %s, where one value is expected", v.excerpt())
	}
	if row.Each && len(texts) == 1 { // as transformers splits "full_shard auto_wrap"
		texts = strings.Fields(texts[0])
	}
	if len(texts) == 0 {
		texts = []string{""}
	}
	for _, t := range texts {
		w, ok := row.lookupWord(t)
		if !ok && t == "" {
			return nil
		}
		if !ok {
			return from.fault("vprof does not know what %q needs; it knows %s", t, knownWords(t, row.Words))
		}
		if reason := checkCount(row.FactName, w.Value); w.Value != "" && reason != "" {
			return from.fault("%s %s", v.excerpt(), reason)
		}
		if err := r.addFacts(row, t, w, from); err != nil {
			return err
		}
	}
	return nil
}

// lookupWord returns the facts that a value implies. If the row expects a number, a number is its own fact.
func (row Row) lookupWord(text string) (w ImpliedFacts, ok bool) {
	for _, t := range []string{text, strings.ToLower(text)} {
		if w, ok = row.Words[t]; ok {
			return w, true
		}
	}
	if text == "" {
		return w, false
	}
	if slices.Contains(integerFacts, row.FactName) {
		return ImpliedFacts{Value: text}, true
	}
	if w, ok = row.Words["*"]; w.Value == "=" {
		w.Value = text
	}
	return w, ok
}

func (r *factReader) addFacts(row Row, word string, w ImpliedFacts, from Key) error {
	if w.Value != "" {
		r.facts.set(row.FactName, w.Value, from)
	}
	for name, value := range w.Facts {
		switch name {
		case "refuse":
			return from.fault("is %s: %s", word, value)
		case "note":
			r.config.Notes.Add("%v: %s", from, value)
			continue
		}
		if more, adds := strings.CutPrefix(value, "+"); adds {
			if value = more; r.facts[name].value != "" {
				value = r.facts[name].value + "," + more
			}
		}
		r.facts.set(name, value, from)
	}
	return nil
}

// knownWords returns the accepted words of a key. If there are many, it returns the words nearest to the given one and
// the number of the others.
func knownWords(given string, words map[string]ImpliedFacts) string {
	const most = 8
	var names []string
	for name, w := range words {
		if _, refused := w.Facts["refuse"]; !refused && name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > most {
		near := nearest.Names(given, names, 3)
		if len(near) == 0 {
			near = names[:3]
		}
		return strings.Join(near, ", ") + fmt.Sprintf(" and %d more", len(names)-len(near))
	}
	return strings.Join(names, ", ")
}

// resolveValue returns a value without references to other keys, as OmegaConf writes them: "${batch_size}".
func (r *factReader) resolveValue(key string, v *configValue, depth int) (*configValue, error) {
	if v.kind != textKind || !strings.Contains(v.text, "$") || r.table.Keys[key].FactName == "gpus" {
		return v, nil
	}
	name, whole := strings.CutPrefix(v.text, "${")
	name, ended := strings.CutSuffix(name, "}")
	if whole && ended && !r.doc.command && depth < maxDepth {
		if other := r.doc.root.lookup(name); other != nil {
			return r.resolveValue(key, other, depth+1)
		}
	}
	const wrong = "%s is a variable, whose value stands in no file; write the value"
	return nil, r.doc.fault(v.line, key, wrong, v.excerpt())
}

// unknownHint names the keys that the table lacks. One of them may be a misspelled key that a refusal asks for.
func (c *Config) unknownHint() string {
	keys := lists.Map(c.Unknown, func(k UnknownKey) string { return fmt.Sprintf("%s (line %d)", k.Path, k.Line) })
	return phrase.If(len(keys) > 0, "; not keys of %s: %s", c.table.Trainer, strings.Join(keys, ", "))
}

// applyRules applies a table's rules to facts.
func (c *Config) applyRules(t *Table, f facts) error {
	for _, rule := range t.Rules {
		if !f.satisfy(rule.When) || len(rule.Unless) > 0 && f.satisfy(rule.Unless) {
			continue
		}
		at := f[rule.At].from
		if rule.Refuse != "" {
			return c.withFile(at).fault("%s%s", rule.Refuse, c.unknownHint())
		}
		c.Notes.If(rule.Note != "", "%v: %s", c.withFile(at), rule.Note)
		for name, v := range rule.Set {
			f.addReferenced(name, v, at)
		}
		for _, name := range rule.Clear {
			delete(f, name)
		}
	}
	return nil
}

// addReferenced sets a fact to v if it has no value. v is a value, another fact's name ("=name"), or an item to append
// to a list ("+item").
func (f facts) addReferenced(name, v string, at Key) {
	from := at
	if more, adds := strings.CutPrefix(v, "+"); adds {
		if v = more; f[name].value != "" {
			v = f[name].value + "," + more
		}
	} else if _, has := f[name]; has {
		return
	}
	if other, reference := strings.CutPrefix(v, "="); reference {
		v, from = f[other].value, f[other].from
	}
	if v != "" {
		f.set(name, v, from)
	}
}
