// Package systems describes where the projects of listed models keep batch size, micro-batches, precision and
// checkpointing: keys of configuration files, or lines of notebooks.
package systems

import (
	_ "embed" // systems.yaml
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/vprof/vprof/bench/advise/configfile"
	"github.com/vprof/vprof/internal/yamlkeys"
	"github.com/vprof/vprof/models"
)

//go:embed systems.yaml
var data []byte

// Project is a project that trains models, with the places in its files that hold the values vprof recommends.
type Project struct {
	// Models are names of models, or patterns as of [path.Match].
	Models []string `yaml:"models"`
	// Project is the project's usual name.
	Project string `yaml:"project"`
	// Config is the file that has the Keys, relative to the project's root; empty if there is only a Snippet.
	Config string         `yaml:"config"`
	Keys   map[string]Key `yaml:"keys"`
	// Unread are the names of values that the project's users cannot choose.
	Unread []string `yaml:"unread"`
	// Facts are the other keys that affect memory. Harmless maps groups of keys without effect on memory to the reason.
	Facts    []UnplannedKey    `yaml:"facts"`
	Harmless map[string]string `yaml:"harmless"`
	Stages   []Stage           `yaml:"stages"`
	// ReplacedText is the text that Snippet replaces, a text/template over [Values].
	ReplacedText string `yaml:"where"`
	Snippet      string `yaml:"snippet"`
	// Patches is the number of patches of a sample, where a snippet names it.
	Patches int `yaml:"patches"`
}

// Key is the position of a value in a configuration file.
type Key struct {
	Path string `yaml:"path"`
	// Default is the project's value if the key is missing. The key is added only to set another value.
	Default any `yaml:"default"`
	// Values map vprof's values to the file's; empty if they are the same.
	Values map[string]any `yaml:"values"`
}

// Stage is a file of a curriculum, relative to the folder of the configuration.
type Stage struct {
	File string `yaml:"file"`
	// Model is the listed model that the stage trains.
	Model string `yaml:"model"`
	// Set maps keys of the stage's file to values.
	Set map[string]int64 `yaml:"set"`
}

// path returns the path of the stage's file for a configuration at config.
func (s Stage) path(config string) string {
	return filepath.Join(filepath.Dir(config), filepath.FromSlash(s.File))
}

// Values are a recommended case to write into files. Its settings are the ones that the search varied.
type Values struct {
	models.Case
	// Effective is the number of samples of one optimizer step on all GPUs.
	Effective int
}

// Names returns the names of the values that a key can hold, besides settings of a model.
func Names() []string { return []string{"batch", "accumulate", "amp", "checkpointing", "effective"} }

func (v Values) lookup(name string) (any, bool) {
	switch name {
	case "batch":
		return int64(v.Batch), true
	case "accumulate":
		return int64(v.Accumulate), true
	case "effective":
		return int64(v.Effective), true
	case "amp":
		return v.AMP.String(), true
	case "checkpointing":
		return v.Checkpointing, true
	}
	n, ok := v.Settings[name]
	return n, ok
}

// AllProjects returns all known projects. An error is a bug in systems.yaml, which a test finds.
func AllProjects() ([]Project, error) {
	var all []Project
	return all, yamlkeys.Decode("systems.yaml", data, &all)
}

// Lookup returns the project that trains a model.
func Lookup(model string) (Project, bool, error) {
	all, err := AllProjects()
	for _, s := range all {
		for _, pattern := range s.Models {
			if ok, _ := path.Match(pattern, model); ok {
				return s, true, nil
			}
		}
	}
	return Project{}, false, err
}

// Supports reports whether the project lets its users choose the named value.
func (s Project) Supports(name string) bool { return !slices.Contains(s.Unread, name) }

// FileEdits is a file of the project with the edits to make in it.
type FileEdits struct {
	Path  string
	Edits []configfile.Edit
	// Optional reports whether the file may be missing.
	Optional bool
}

// Files returns the edits of the configuration at path config, and of the curriculum's stages in its folder.
func (s Project) Files(config string, v Values) ([]FileEdits, error) {
	f := FileEdits{Path: config}
	for _, name := range Names() {
		key, ok := s.Keys[name]
		if !ok || !s.Supports(name) {
			continue
		}
		e, err := key.edit(name, v)
		if err != nil {
			return nil, err
		}
		f.Edits = append(f.Edits, e)
	}
	files := []FileEdits{f}
	for _, stage := range s.Stages {
		f := FileEdits{Path: stage.path(config), Optional: true}
		for _, key := range []string{"n_positives", "n_negatives"} {
			value := stage.Set[key]
			if searched, ok := v.Settings[strings.ReplaceAll(key, "_", "-")]; ok && stage.Model == v.Model {
				value = searched
			}
			f.Edits = append(f.Edits, configfile.Edit{Path: key, Value: value})
		}
		files = append(files, f)
	}
	return files, nil
}

func (k Key) edit(name string, v Values) (configfile.Edit, error) {
	ours, _ := v.lookup(name)
	e := configfile.Edit{Path: k.Path, Value: ours, Create: k.Default != nil, Default: k.fileValue(k.Default)}
	e.Value = k.fileValue(ours)
	if e.Value == nil {
		return e, fmt.Errorf("systems: the key %s has no value for %s %v", k.Path, name, ours)
	}
	return e, nil
}

// fileValue converts a value of vprof to the file's value; nil if there is none.
func (k Key) fileValue(ours any) any {
	if len(k.Values) > 0 && ours != nil {
		ours = k.Values[fmt.Sprint(ours)]
	}
	if n, ok := ours.(int); ok {
		return int64(n)
	}
	return ours
}

// parsePair reads "name=path.to.key".
func parsePair(pair string) (name, at string, err error) {
	name, at, ok := strings.Cut(pair, "=")
	if !ok || at == "" {
		return "", "", fmt.Errorf("invalid %q: need name=path.to.key", pair)
	}
	return name, at, nil
}

// MappedEdits returns the edits for "name=path" pairs in a file that belongs to no known project. Precision is written
// as true or false if the file has a boolean there.
func MappedEdits(pairs []string, v Values) ([]configfile.Edit, error) {
	var edits []configfile.Edit
	for _, pair := range pairs {
		name, at, err := parsePair(pair)
		if err != nil {
			return nil, err
		}
		if err := configfile.ValidPath(at); err != nil {
			return nil, fmt.Errorf("%s: %w", pair, err)
		}
		value, ok := v.lookup(name)
		if !ok {
			return nil, fmt.Errorf("vprof cannot write %q into a file; use one of %s, or a model setting named by "+
				"--tune", name, strings.Join(Names(), ", "))
		}
		e := configfile.Edit{Path: at, Value: value}
		if name == "amp" {
			e.AcceptedValue = v.AMP != models.NoAutocast
		}
		edits = append(edits, e)
	}
	return edits, nil
}

// Paste returns the project's snippet with the values, for users to paste; empty if the project has none.
func (s Project) Paste(v Values) (string, error) {
	t, err := template.New("snippet").Option("missingkey=error").Parse(s.Snippet)
	if err != nil {
		return "", fmt.Errorf("systems: %w", err)
	}
	var b strings.Builder
	in := struct {
		Values
		AMP     bool
		Patches int
	}{v, v.AMP != models.NoAutocast, s.Patches}
	if err := t.Execute(&b, in); err != nil {
		return "", fmt.Errorf("systems: %w", err)
	}
	return b.String(), nil
}
