package card

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/pattern"
)

// A Command is a training command, and the file and line that document it.
type Command struct {
	Args []string `json:"args"`
	From string   `json:"from,omitempty"`
}

// places are where repositories document their commands, most telling first.
var places = []string{
	"README*", "readme*", "*.md", "docs/*.md", "scripts/*.sh", "scripts/*/*.sh", "*.sh", "examples/*.md",
	".github/workflows/*.y*ml",
}

// mostText limits the files that are read, in bytes.
const mostText = 1 << 20

var (
	starts = pattern.Of(`^(?:[-$>#*` + "`" + `\s]|run:)*((?:[A-Z_]+=\S+\s+)*)((?:uv run |poetry run )?` +
		`(?:python[\d.]*|torchrun|accelerate launch|deepspeed)\s.*)$`)
	trains  = pattern.Of(`(?i)train|tune|sft|dpo|lora|main|run_|fit`)
	scripts = pattern.Of(`\S+\.py\b|-m\s+\S+`)
	others  = pattern.Of(
		`(?i)eval|infer|test|sampl|generat|demo|predict|export|convert|preproc|prepare|download|setup`)
	// evaluates matches an option by which a training script evaluates and does not train.
	evaluates = pattern.Of(`(?i)^--?(only[-_])?(eval|evaluate|test|infer|inference|predict)([-_]only)?$`)
	variable  = pattern.Of(`\$\{?(\w+)(?::-[^}]*)?\}?`)
	assigned  = pattern.Of(`^\s*(?:export\s+)?([A-Za-z_]\w*)=("[^"]*"|'[^']*'|[^\s$;&|]*)\s*$`)
	blank     = pattern.Of(`<[^<>]+>|\[[A-Z][^\[\]]+\]`)
	ranks     = pattern.Of(`(--nproc[-_]per[-_]node[= ])[A-Za-z<$]\S*`) // a number that readers fill in
	words     = pattern.Of(`"([^"]*)"|'([^']*)'|([^\s"']+)`)
)

// Find returns the training commands that a repository documents, first the one that most likely trains; bad input if
// there is none.
func Find(dir string) ([]Command, error) {
	var all []Command
	for _, pattern := range places {
		names, _ := filepath.Glob(filepath.Join(dir, pattern)) // the patterns are fine
		for _, name := range names {
			if info, err := os.Stat(name); err != nil || info.Size() > mostText || info.IsDir() {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			name = strings.TrimPrefix(name, dir+string(filepath.Separator))
			all = append(all, commandsOf(dir, name, string(text))...)
		}
	}
	if len(all) == 0 {
		return nil, input.FileErrorf(dir, "no training command in its README, scripts or workflows; name one after "+
			"--: vprof card -- python train.py")
	}
	return all, nil
}

// commandsOf returns the commands of a text that run a script of a folder.
func commandsOf(dir, name, text string) (all []Command) {
	known := map[string]string{}
	lines := strings.Split(strings.ReplaceAll(text, "\r", ""), "\n")
	for at := 0; at < len(lines); at++ {
		line, number := lines[at], at+1
		for strings.HasSuffix(strings.TrimSpace(line), `\`) && at+1 < len(lines) {
			at++
			line = strings.TrimSuffix(strings.TrimSpace(line), `\`) + " " + strings.TrimSpace(lines[at])
		}
		if m := assigned().FindStringSubmatch(line); m != nil {
			known[m[1]] = strings.Trim(m[2], `"'`)
		}
		m := starts().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		script := scripts().FindString(m[2])
		base := filepath.Base(script)
		if !trains().MatchString(base) || others().MatchString(base) || !there(dir, script) {
			continue
		}
		line = ranks().ReplaceAllString(strings.Trim(m[2], "` "), "${1}1")
		command := variable().ReplaceAllStringFunc(line, func(v string) string {
			if value, ok := known[variable().FindStringSubmatch(v)[1]]; ok {
				return value
			}
			return "absent-" + strings.ToLower(variable().FindStringSubmatch(v)[1])
		})
		command = blank().ReplaceAllStringFunc(command, func(b string) string {
			letters := strings.FieldsFunc(strings.ToLower(b), func(r rune) bool { return !unicode.IsLetter(r) })
			return "absent-" + strings.Join(letters, "-")
		})
		c := Command{From: fmt.Sprintf("%s:%d", name, number)}
		for _, word := range words().FindAllStringSubmatch(command, -1) {
			c.Args = append(c.Args, word[1]+word[2]+word[3])
		}
		ends := func(word string) bool { return strings.ContainsAny(word[:min(len(word), 1)], "#|&;>") }
		if end := slices.IndexFunc(c.Args, ends); end > 0 {
			c.Args = c.Args[:end]
		}
		if slices.ContainsFunc(c.Args, evaluates().MatchString) {
			continue
		}
		all = append(all, c)
	}
	return all
}

// there reports whether a script that a command names is in a folder; a module may be installed.
func there(dir, script string) bool {
	if strings.HasPrefix(script, "-m") {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, script))
	return err == nil
}
