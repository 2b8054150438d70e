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

// A tuning is a line of the file that stands for Inductor's cache on a machine with the GPU: a command that began,
// or what it has tuned.
//
// In that cache a file beside each kernel names which of its configurations was the fastest, another names which
// products of matrices are faster with their operands padded (pad_mm), and a process that compiles the same later on
// tries nothing. So does a command that first runs after the one that has tuned. When a command runs again, it finds
// what it found the first time, and tunes the rest as then: its values stay the same.
type tuning struct {
	Command string `json:"command"`
	// Tuned are the files with what Inductor tuned: names in its cache, and contents.
	Tuned map[string]string `json:"tuned,omitempty"`
}

// mostTunings is the size in bytes beyond which a file of tunings is deleted and begun anew: some 20,000 kernels.
const mostTunings = 8 << 20

// tuningFile reports whether a name in Inductor's cache belongs to a file of tunings: of a kernel, or of the LocalCache
// of codecache.py.
func tuningFile(name string) bool {
	return (strings.HasSuffix(name, ".best_config") || filepath.Dir(name) == "cache") && filepath.IsLocal(name)
}

// findTuned puts what earlier commands have tuned into the cache of a run, and returns all files that are known.
// Tunings that cannot be read or kept are lost: Inductor tunes again then.
func (c *Command) findTuned(r *room) (known map[string]string) {
	known = map[string]string{}
	if c.Tunings == "" || c.InductorCache != "" {
		return known
	}
	if file, err := os.Stat(c.Tunings); err == nil && file.Size() > mostTunings {
		_ = os.Remove(c.Tunings)
	}
	text, _ := os.ReadFile(c.Tunings)
	this, began := c.identity(), false
	for line := range bytes.Lines(text) {
		var t tuning
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
		c.addTuning(tuning{Command: this})
	}
	return known
}

// keepTuned keeps what a run has tuned for commands that run for the first time after this.
func (c *Command) keepTuned(r *room, known map[string]string) {
	if c.Tunings == "" || c.InductorCache != "" {
		return
	}
	t := tuning{Command: c.identity(), Tuned: map[string]string{}}
	files := os.DirFS(r.path(inductorFolder))
	_ = fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && tuningFile(name) {
			content, err := fs.ReadFile(files, name)
			// The file about products grows with each command, but for one that runs again.
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

// addTuning appends a line, at once, so that processes may do so beside each other.
func (c *Command) addTuning(t tuning) {
	line, err := json.Marshal(t)
	if err != nil || os.MkdirAll(filepath.Dir(c.Tunings), 0o700) != nil {
		return
	}
	_ = rewrite.Append(c.Tunings, append(line, '\n'), 0o600)
}

// identity stands for the command in the folder where it is started; ranks of one have the same.
func (c *Command) identity() string {
	folder, _ := os.Getwd()
	sum := sha256.Sum256([]byte(strings.Join(append([]string{folder}, c.Args...), "\x00")))
	return hex.EncodeToString(sum[:8])
}
