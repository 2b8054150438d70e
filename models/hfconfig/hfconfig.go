// Package hfconfig makes models of the config.json files of Hugging Face
// transformers. Keys, defaults and rules follow transformers 5.23.
package hfconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/vprof/vprof/internal/hub"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/train"
)

// Scheme is what the names of these models begin with.
const Scheme = "hf"

// What a configuration may ask for at the most. No model that was trained comes
// near these; they keep a recording small and its sums within 63 bits.
const (
	mostBytes        = 16 << 20
	mostLayers       = 512
	mostWidth        = 1 << 16
	mostInner        = 1 << 20
	mostVocab        = 1 << 24
	mostPositions    = 1 << 24
	mostClasses      = 1 << 20
	mostImage        = 1 << 13
	mostChannels     = 1 << 10
	mostConvolutions = 64
	mostKernel       = 1 << 12
	mostMerged       = 1 << 6
	mostParameters   = 1 << 40
)

// The tasks.
const (
	causalLM       = "causal-lm"
	maskedLM       = "masked-lm"
	classification = "classification"
	tokens         = "token-classification"
	transcription  = "transcription"
	ctc            = "ctc"
)

// Tasks returns the names of what models are trained for.
func Tasks() []string {
	return []string{causalLM, maskedLM, classification, tokens, transcription, ctc}
}

// Source opens configurations for a registry.
func Source() models.Source {
	return models.Source{
		Scheme: Scheme, Open: Open,
		Restore: func(name, config string) (models.Model, error) { return parse(name, name, []byte(config)) },
	}
}

// Open makes the model of a config.json, or of the one in a folder, also of a model
// name of the hub: by the hub's caches, by [OfHub], or as [hub.Online] fetches it. The error is a [*input.FormatError].
func Open(path string) (models.Model, error) {
	if path == "" {
		return models.Model{}, input.FileErrorf(Scheme+":", "names no file; use %s:path/to/config.json", Scheme)
	}
	path, teacher, taught := strings.Cut(path, TeacherMark)
	path = located(path)
	data, named, err := readModel(path)
	if err == nil && taught {
		data, err = withTeacher(path, data, teacher)
	}
	if err != nil {
		return models.Model{}, err
	}
	name := ""
	if named { // which has no suffix to cut off
		name = Scheme + ":" + filepath.Base(path)
	}
	return parse(path, name, data)
}

// located returns where the config.json is that a path or a name of the hub stands for. No shell
// sees the home directory behind "hf:".
func located(path string) string {
	if rest, ok := strings.CutPrefix(filepath.ToSlash(path), "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			path = filepath.Join(home, rest)
		}
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return filepath.Join(path, usualName)
	case err != nil && hubName.MatchString(path):
		return cmp.Or(hub.File(path, "", usualName), path)
	}
	return path
}

// hubName is what a model is called on the Hugging Face hub.
var hubName = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$`)

// howToGet says where the configuration of a model comes from, also of the hub. It is empty for what is only a file.
func howToGet(path string) string {
	switch {
	case strings.HasSuffix(path, ".json"):
		return ""
	case !hubName.MatchString(path):
		return fmt.Sprintf("; name a %s, a folder that has one, or a model of the hub with its organization, like "+
			"%s:Qwen/Qwen3-8B, whose %[1]s is in the hub's cache", usualName, Scheme)
	}
	folder := filepath.Base(path)
	return fmt.Sprintf(", nor in the caches of the hub; with a network, \"hf download %s config.json "+
		"--local-dir %s\" gets the configuration of a model on the Hugging Face hub, then use %s:%s/%s", path, folder,
		Scheme, folder, usualName)
}

// read reads a file of bounded size.
func read(path string) ([]byte, error) {
	f, err := input.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err == nil && len(data) > mostBytes {
		err = input.FileErrorf(path, "has more than %d MiB; a config.json has not", mostBytes>>20)
	}
	return data, err
}

// Parse makes the model of a configuration. The file is not opened: its path
// gives the model its name. The error is a [*input.FormatError].
func Parse(file string, data []byte) (models.Model, error) { return parse(file, "", data) }

func parse(file, name string, data []byte) (models.Model, error) {
	r, err := newReader(file, data)
	if err != nil {
		return models.Model{}, err
	}
	kind, f, err := r.family()
	if err != nil {
		return models.Model{}, err
	}
	r.aliases = f.aliases
	r.common()
	a := f.read(r)
	if a.teacher, err = r.teacher(); err != nil {
		return models.Model{}, err
	}
	weights := models.WeightType(r.weights())
	if !f.half {
		weights = ""
	}
	trained, instead := r.trained(f)
	if r.err != nil {
		return models.Model{}, r.err
	}
	if name == "" {
		name = Scheme + ":" + r.name()
	}
	config, err := r.given()
	if err != nil {
		return models.Model{}, fmt.Errorf("%s: %w", file, err)
	}
	packed, tasks := r.stored(), slices.Sorted(maps.Values(f.heads))
	a.rule(packed.check)
	a.refuse("task", fmt.Sprintf("the configuration's architectures say %s, which vprof does not know how to train; "+
		"choose with --task: %s", strings.Join(instead, ", "), strings.Join(tasks, ", ")),
		func(c models.Case) bool { return c.Task == "" })
	a.caveats = slices.Insert(a.caveats, 0, packed.caveat)
	m := train.Model(models.Model{
		Name: name, Summary: a.summary, Source: "transformers 5.23, model_type " + kind,
		Tasks: tasks, Default: models.Case{Task: trained, Weights: weights},
		Description: models.Describe(string(config)),
		Batches:     a.batches, BatchUnit: a.unit, Settings: a.settings, Adapts: true, Towers: a.towers,
		Transformers: true,
		HalfWeights:  f.half, Levers: a.leverSet(), Notes: a.notes,
		Caveat: a.caveatsOf, Check: a.check,
	}, a.batch, a.tasks)
	if build := m.Build; a.adapters != nil {
		m.Build = func(c models.Case) (models.Trainer, error) {
			if c.LoRA != nil {
				c.LoRA = new(a.adapters(*c.LoRA))
			}
			return build(c)
		}
	}
	return m, r.affordable(m)
}

// affordable finds models so large that sizes of their steps would mean nothing.
func (r *reader) affordable(m models.Model) error {
	c := m.Default
	c.Task = m.Tasks[0]
	c, err := m.Complete(c)
	if err != nil {
		return nil //nolint:nilerr // it is about the settings of a case, which a user may choose
	}
	trainer, err := m.Build(c)
	if err != nil {
		return err
	}
	if n := trainer.Counts().Total; n > mostParameters {
		return input.FileErrorf(r.file, "describes a model of %d parameters; vprof takes %d at the most", n,
			int64(mostParameters))
	}
	return nil
}

// check finds what does not go together in a case.
func (a *architecture) check(c models.Case) error {
	for _, refused := range a.rules {
		if field, reason := refused(c); reason != "" {
			return c.Wrong(field, "%s", reason)
		}
	}
	for _, s := range a.settings {
		if tasks, some := a.only[s.Name]; some && !slices.Contains(tasks, c.Task) && c.Settings[s.Name] != s.Default {
			return c.Wrong(s.Name, "has no influence on task %s", c.Task)
		}
	}
	if c.Objective.Distills() && (a.teacher == nil || !a.teacher.levers.Objective) {
		return c.Wrong("objective",
			"a model learns from the scores of another language model; name its configuration, too: --model "+
				"hf:student.json"+TeacherMark+"teacher.json")
	}
	return nil
}

// A rule names a setting or flag of a case that vprof cannot plan, and the reason; both are empty for other cases.
type rule func(models.Case) (field, reason string)

// rule adds a rule, which is checked before the existing ones.
func (a *architecture) rule(r rule) { a.rules = append([]rule{r}, a.rules...) }

// refuse adds the rule that some cases cannot be planned, for a reason that is the same for all.
func (a *architecture) refuse(field, reason string, is func(models.Case) bool) {
	a.rule(refusing(field, reason, is))
}

func refusing(field, reason string, is func(models.Case) bool) rule {
	return func(c models.Case) (string, string) {
		if is(c) {
			return field, reason
		}
		return "", ""
	}
}

// caveat adds notes that some cases have besides their results.
func (a *architecture) caveat(notes func(models.Case) []string) { a.caveats = append(a.caveats, notes) }

// An architecture is what a configuration describes.
type architecture struct {
	summary string
	// unit is what a batch counts, batch the usual size and batches the sizes of a sweep.
	unit     string
	batch    int
	batches  []int
	settings []models.Setting
	// only are settings that matter to some tasks alone.
	only  map[string][]string
	notes []string
	// caveats are notes on a case that stand with its results.
	caveats []func(models.Case) []string
	// levers are the options that cases may set.
	levers models.LeverSet
	// rules refuse cases, see [architecture.rule].
	rules []rule
	task  func(models.Case) train.Task
	// towers says that there are layers that a step on text does not call.
	towers bool
	// adapters maps the adapters that a case names to the ones that peft makes; nil changes none.
	adapters func(models.LoRA) models.LoRA
	// teacher is the model that it may learn from; nil for none.
	teacher *architecture
}

// tasks makes the task of a case, with the frozen model that it is compared with.
func (a *architecture) tasks(c models.Case) train.Task {
	t := a.task(c)
	text, ok := t.(*hf.TextTask)
	switch {
	case ok && c.Objective.Distills() && a.teacher != nil:
		if teacher, ok := a.teacher.task(c).(*hf.TextTask); ok {
			text.Reference = teacher
		}
	case ok && c.ReferenceModel():
		text.Reference = a.task(c).(*hf.TextTask)
	}
	return t
}

func (a *architecture) caveatsOf(c models.Case) (notes []string) {
	for _, of := range a.caveats {
		notes = append(notes, of(c)...)
	}
	return notes
}

// leverSet returns the levers of an architecture: all have the options of the training loop.
func (a *architecture) leverSet() models.LeverSet {
	l := a.levers
	l.Loop, l.Quantize, l.QAT = models.LoopTrainer, true, true
	return l
}

// Types returns the model types that vprof describes, sorted.
func Types() []string { return slices.Sorted(maps.Keys(families())) }

func (r *reader) family() (kind string, f family, err error) {
	supported := func() string { return "vprof describes " + strings.Join(Types(), ", ") }
	value, _, ok := r.get("model_type")
	if !ok {
		return "", f, input.KeyErrorf(r.file, "model_type", "absent: it says what the model is; %s", supported())
	}
	if json.Unmarshal(value, &kind) != nil {
		return "", f, input.KeyErrorf(r.file, "model_type", "%s is not a name; %s", excerpt(value), supported())
	}
	if f, ok = families()[kind]; !ok {
		return "", f, input.KeyErrorf(r.file, "model_type",
			"vprof does not describe %s. \"vprof run -- python train.py\" runs your training script on the simulated "+
				"GPU "+
				"and reports exactly what it needs; \"vprof capture %s:%s -o model.pt2\" makes a file for the other "+
				"commands. Types that it describes: %s",
			excerpt(value), Scheme, r.file, strings.Join(Types(), ", "))
	}
	return kind, f, nil
}

// common reads what all configurations have in common, none of which vprof describes unless it is as usual.
func (r *reader) common() {
	if !r.dequantized() && r.stored() == "" {
		r.refuseStored()
	}
	r.refuse("attn_implementation", `"sdpa"`)
	r.refuse("_attn_implementation", `"sdpa"`)
	r.refuse("output_hidden_states", "false")
	r.refuse("output_attentions", "false")
	r.refuse("chunk_size_feed_forward", "0")
	r.refuse("per_layer_config")
}

// rowLength returns the setting of the tokens of a row, which a key of the configuration bounds.
func rowLength(usual, most int64, key string) models.Setting {
	s := hf.LengthSetting(usual, most)
	s.Usage += " (" + key + " of the configuration)"
	return s
}

// weights reads the type of the weights, in which transformers 5 loads and makes a model (dtype "auto").
func (r *reader) weights() string {
	for _, key := range []string{"dtype", "torch_dtype"} {
		if value, _, ok := r.get(key); ok && !null(value) {
			return map[string]string{
				"bfloat16": "bf16",
				"float16":  "fp16",
			}[r.word(key, "float32", []string{"float32", "bfloat16", "float16"})]
		}
	}
	if r.dequantized() {
		return "bf16"
	}
	return ""
}

// dequantized says that the file's weights are in MXFP4, which transformers loads as bf16 wherever they are trained.
func (r *reader) dequantized() bool {
	var q struct {
		Method string `json:"quant_method"`
	}
	value, _, ok := r.get("quantization_config")
	return ok && json.Unmarshal(value, &q) == nil && q.Method == "mxfp4"
}

// trained returns the task that the architectures of the file name. If they name
// none that vprof knows, it is "", and instead has them.
func (r *reader) trained(f family) (task string, instead []string) {
	given := r.words("architectures")
	for _, a := range given {
		if task, ok := f.heads[a]; ok {
			return task, nil
		}
	}
	if len(given) == 0 {
		return f.usual, nil
	}
	return "", given
}

// usualName is how configurations are called.
const usualName = "config.json"

// name returns what the user would call the model: by the file, or by the folder if the file is called as all are. A
// snapshot in the cache of the hub stands in a folder whose name contains the name of its repository.
func (r *reader) name() string {
	path, err := filepath.Abs(r.file)
	if err != nil {
		path = r.file
	}
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	if base == usualName {
		name = filepath.Base(dir)
		if up := filepath.Dir(dir); filepath.Base(up) == "snapshots" {
			if _, repository, ok := strings.Cut(filepath.Base(filepath.Dir(up)), "models--"); ok {
				name = repository[strings.LastIndex(repository, "--")+1:]
				name = strings.TrimPrefix(name, "-")
			}
		}
	}
	if name = plain(name); name != "" {
		return name
	}
	var from string
	if json.Unmarshal(r.raw["_name_or_path"], &from) == nil {
		name = plain(from[strings.LastIndex(from, "/")+1:])
	}
	return cmp.Or(name, "model")
}

// plain keeps what can stand in a name, and not too much of it.
func plain(name string) string {
	const most = 64
	name = strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("._+-", c) {
			return c
		}
		return -1
	}, name)
	if runes := []rune(name); len(runes) > most {
		name = string(runes[:most])
	}
	return strings.Trim(name, ".")
}
