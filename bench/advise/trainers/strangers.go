package trainers

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"
	"sync"

	"github.com/vprof/vprof/internal/yamlkeys"
)

//go:embed strangers.yaml
var strangersFile []byte

// stranger is a program whose files are recognized and not planned.
type stranger struct {
	// Trainer is its name, Recognized are as in [Table].
	Trainer    string     `yaml:"trainer"`
	Recognized [][]string `yaml:"recognized"`
	// Commands are the first words of its command lines, and Scripts the beginnings of the names of its Python files.
	Commands []string `yaml:"commands"`
	Scripts  []string `yaml:"scripts"`
	// Why names the kind of its files and the reason why they are not planned; empty if its keys are unknown.
	Why string `yaml:"why"`
}

var strangers = sync.OnceValue(func() (all []stranger) {
	if err := yamlkeys.Decode("strangers.yaml", strangersFile, &all); err != nil {
		panic(err) // a bug in the embedded file, which a test shows
	}
	return all
})

// unplanned returns an error for a program that vprof recognizes and does not plan; nil for others.
func unplanned(d *document) error {
	for _, s := range strangers() {
		begins := func(name string) bool { return strings.HasPrefix(d.script, name) }
		if slices.ContainsFunc(s.Scripts, begins) || (&Table{Recognized: s.Recognized}).recognizes(d) {
			return s.refuse(d)
		}
	}
	return nil
}

// refuse returns the error about a document of the program.
func (s stranger) refuse(d *document) error {
	return d.wrong(0, "", "is of %s, %s", s.Trainer, cmp.Or(s.Why,
		"whose keys vprof does not know; vprof run takes the command that starts it: vprof run -- COMMAND"))
}

// startedBy returns the error for a command of a program that is not planned; nil for others.
func startedBy(file string, c []token) error {
	for _, s := range strangers() {
		for _, words := range s.Commands {
			if starts(c, strings.Fields(words)) {
				return s.refuse(&document{file: file})
			}
		}
	}
	return nil
}
