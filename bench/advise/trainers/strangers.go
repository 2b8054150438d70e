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
var unplannedFile []byte

// unplannedTrainer is a training program whose files vprof recognizes but cannot plan.
type unplannedTrainer struct {
	// Trainer is the program's name; Recognized is as in [Table].
	Trainer    string     `yaml:"trainer"`
	Recognized [][]string `yaml:"recognized"`
	// Commands are the first words of the program's command lines. Scripts are prefixes of its Python files' names.
	Commands []string `yaml:"commands"`
	Scripts  []string `yaml:"scripts"`
	// Why describes the program's files and the reason why vprof cannot plan them; empty if their keys are unknown.
	Why string `yaml:"why"`
}

var unplannedTrainers = sync.OnceValue(func() (all []unplannedTrainer) {
	if err := yamlkeys.Decode("strangers.yaml", unplannedFile, &all); err != nil {
		panic(err) // a bug in the embedded file, which a test shows
	}
	return all
})

// refuseUnplanned returns an error if a document belongs to a program that vprof recognizes but cannot plan; else nil.
func refuseUnplanned(d *document) error {
	for _, s := range unplannedTrainers() {
		begins := func(name string) bool { return strings.HasPrefix(d.script, name) }
		if slices.ContainsFunc(s.Scripts, begins) || (&Table{Recognized: s.Recognized}).recognizes(d) {
			return s.refuse(d)
		}
	}
	return nil
}

// refuse returns the error about a document of the unplanned program.
func (s unplannedTrainer) refuse(d *document) error {
	return d.fault(0, "", "is of %s, %s", s.Trainer, cmp.Or(s.Why,
		"whose keys vprof does not know; vprof run takes the command that starts it: vprof run -- COMMAND"))
}

// startedTrainer returns an error if a command starts a program that vprof cannot plan; else nil.
func startedTrainer(file string, c []token) error {
	for _, s := range unplannedTrainers() {
		for _, words := range s.Commands {
			if hasWordPrefix(c, strings.Fields(words)) {
				return s.refuse(&document{file: file})
			}
		}
	}
	return nil
}
