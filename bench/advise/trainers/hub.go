package trainers

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vprof/vprof/internal/hub"
	"github.com/vprof/vprof/models/hfconfig"
)

// Model identifies the model of a configuration: a folder, or a repository on a model hub.
type Model struct {
	Name, Revision string
	// Folder is the path of the model's files in the configuration; empty if there is none.
	Folder string
	from   Key
}

// configName is the name of the file in which transformers describes a model.
const configName = "config.json"

// Find returns the path of the model's config.json. It searches the folder of the model's name (relative to the working
// directory or the configuration), then the caches of the Hugging Face hub and of ModelScope. A name that
// [hfconfig.OfHub] knows needs no file. Others are fetched by [hub.Default]; the error names the command that fetches.
func (m Model) Find() (path string, err error) {
	for _, dir := range append(m.folders(), m.snapshots()...) {
		path := filepath.Join(dir, configName)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	if _, known := hfconfig.OfHub(m.Name); known && (m.Revision == "" || m.Revision == "main") {
		return m.Name, nil
	}
	reason := ""
	if hub.Default != nil && m.isRepository() && strings.Contains(m.Name, "/") {
		path, err := hub.Default.Fetch(m.Name, m.Revision, configName)
		if err == nil {
			return path, nil
		}
		reason = err.Error() + "; "
	}
	reason += fmt.Sprintf("the model's %s is not in this machine's caches; get it with: hf download %s %s", configName,
		m.Name, configName)
	if m.Revision != "" {
		reason += " --revision " + m.Revision
	}
	if !m.isRepository() {
		reason = fmt.Sprintf("there is no %s in the folder %s; name the model's with --model hf:FOLDER",
			configName, m.Name)
	}
	return "", m.from.fault("%s: %s", m.Name, reason)
}

// isRepository reports whether the name can be a repository's ("owner/name").
func (m Model) isRepository() bool {
	return strings.Count(m.Name, "/") <= 1 && !strings.HasPrefix(m.Name, ".") && !strings.HasPrefix(m.Name, "/") &&
		!strings.Contains(m.Name, "..") && !strings.ContainsAny(m.Name, `\:`)
}

func (m Model) folders() []string {
	var dirs []string
	for _, name := range []string{m.Folder, m.Name} {
		if name == "" {
			continue
		}
		dirs = append(dirs, name)
		if !filepath.IsAbs(name) {
			dirs = append(dirs, filepath.Join(filepath.Dir(m.from.File), name))
		}
	}
	return dirs
}

// snapshots returns the folders of the caches that can hold the repository.
func (m Model) snapshots() []string {
	if !m.isRepository() {
		return nil
	}
	return hub.Snapshots(m.Name, m.Revision)
}

// trustRemote is the key by which trainers allow code from a model's repository (trust_remote_code).
const trustRemote = "trust_remote_code"

// CheckRemoteCode adds a note if the trainer may run code from the model's repository in place of transformers': the
// configuration trusts the repository, and its config.json names classes there.
func (c *Config) CheckRemoteCode(model string) {
	v := c.doc.root.lookup(trustRemote)
	if v == nil {
		return
	}
	if texts, ok := v.scalars(); !ok || len(texts) == 0 || texts[0] != "true" && texts[0] != "True" {
		return
	}
	data, err := readConfig(model)
	if err != nil {
		return
	}
	var config struct {
		AutoMap map[string]json.RawMessage `json:"auto_map"`
	}
	if json.Unmarshal(data, &config) != nil || len(config.AutoMap) == 0 {
		return
	}
	at := Key{c.doc.file, v.line, trustRemote}
	c.Notes.Add("%v: the model's %s names code of its repository (auto_map), which the trainer runs; planned is "+
		"transformers' own class, and the two may differ", at, configName)
}
