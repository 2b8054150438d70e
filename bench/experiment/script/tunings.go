package script

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vprof/vprof/internal/rewrite"
)

// A tuningRecord is a line of a file that replaces Inductor's persistent cache. It holds a command's start or its
// autotuning results. In Inductor's cache, a file beside each kernel names its fastest configuration. Another file
// names the matrix products that are faster with padded operands (pad_mm). A later process that compiles the same code
// does not autotune again. In the same way, a command that runs for the first time finds the tunings of earlier
// commands. A command that runs again finds only what it found the first time, and tunes the rest again, so its values
// stay the same.
type tuningRecord struct {
	Command string `json:"command"`
	// Tuned maps names of files in Inductor's cache to their contents, for files with autotuning results.
	Tuned map[string]string `json:"tuned,omitempty"`
}

// maxTuningBytes is the size in bytes at which a file of tunings is deleted: some 20,000 kernels.
const maxTuningBytes = 8 << 20

// tuningFile reports whether a file of Inductor's cache holds autotuning results (of a kernel, or
// codecache.LocalCache).
func tuningFile(name string) bool {
	return (strings.HasSuffix(name, ".best_config") || filepath.Dir(name) == "cache") && filepath.IsLocal(name)
}

// findTuned copies the tunings of earlier commands into the Inductor cache of a run and returns all known files.
// Tunings that cannot be read or stored are skipped: Inductor then tunes again.
func (c *Command) findTuned(r *hookFolder) (known map[string]string) {
	known = map[string]string{}
	if c.Tunings == "" || c.InductorCache != "" {
		return known
	}
	if file, err := os.Stat(c.Tunings); err == nil && file.Size() > maxTuningBytes {
		_ = os.Remove(c.Tunings)
	}
	text, _ := os.ReadFile(c.Tunings)
	this, began := c.commandKey(), false
	for line := range bytes.Lines(text) {
		var t tuningRecord
		if json.Unmarshal(line, &t) != nil {
			continue // a line that another process has not written to its end
		}
		began = began || t.Command == this
		for name, content := range t.Tuned {
			known[name] = content
			if path := r.path(filepath.Join(inductorFolder, name)); !began && tuningFile(name) {
				_ = os.MkdirAll(filepath.Dir(path), 0o700)
				_ = os.WriteFile(path, []byte(content), 0o600)
			}
		}
	}
	if !began {
		c.addTuning(tuningRecord{Command: this})
	}
	return known
}

// keepTuned stores the tunings of a run for commands that run for the first time later.
func (c *Command) keepTuned(r *hookFolder, known map[string]string) {
	if c.Tunings == "" || c.InductorCache != "" {
		return
	}
	t := tuningRecord{Command: c.commandKey(), Tuned: map[string]string{}}
	files := os.DirFS(r.path(inductorFolder))
	_ = fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && tuningFile(name) {
			content, err := fs.ReadFile(files, name)
			// The file about padded products grows with each new command.
			if err == nil && len(content) > len(known[name]) {
				t.Tuned[name] = string(content)
			}
		}
		return nil
	})
	if len(t.Tuned) > 0 {
		c.addTuning(t)
	}
}

// addTuning appends a line in one write, so several processes may append concurrently.
func (c *Command) addTuning(t tuningRecord) {
	line, err := json.Marshal(t)
	if err != nil || os.MkdirAll(filepath.Dir(c.Tunings), 0o700) != nil {
		return
	}
	_ = rewrite.Append(c.Tunings, append(line, '\n'), 0o600)
}

// commandKey returns a key for the command from its arguments and folder. All ranks of a command have the same key.
func (c *Command) commandKey() string {
	folder, _ := os.Getwd()
	sum := sha256.Sum256([]byte(strings.Join(append([]string{folder}, c.Args...), "\x00")))
	return hex.EncodeToString(sum[:8])
}
