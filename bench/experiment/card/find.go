package card

import (
	"cmp"
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
	"README*", "readme*", "*.md", "docs/*.md", "scripts/*.sh", "scripts/*/*.sh", "*.sh", "examples/*.md", "*/README*",
	"*/*/README*", "*/*/*/README*", ".github/workflows/*.y*ml",
}

// mostText limits the files that are read, in bytes.
const mostText = 1 << 20

var (
	// A prompt may name an environment and a folder. MPI starts one process for each rank, of which one is enough.
	starts = pattern.Of(`^(?:[-$>#*` + "`" + `\s]|run:|\([\w-]+\)|\[[\w-]+\]\$)*((?:[A-Z_]+=\S+\s+)*)` +
		`(?:mpi(?:exec|run) -np? \S+ )?((?:uv run |poetry run )?` +
		`(?:python[\d.]*|torchrun|accelerate launch|deepspeed)\s.*)$`)
	trains  = pattern.Of(`(?i)train|tune|sft|dpo|lora|main|run_|fit|imitat|learn`)
	scripts = pattern.Of(`\S+\.py\b`)
	modules = pattern.Of(`-m\s+\S+`)
	others  = pattern.Of(
		`(?i)eval|infer|test|sampl|generat|demo|predict|export|convert|preproc|prepare|download|setup|submit|gradio`)
	// evaluates matches an option by which a training script evaluates or explains itself, and does not train.
	evaluates = pattern.Of(`(?i)^--?(only[-_])?(h|help|eval|evaluate|test|infer|inference|predict)([-_]only)?$`)
	variable  = pattern.Of(`\$\{(\w+)(?::-[^}]*)?\}|\$(\w+)`)
	assigned  = pattern.Of(`(?m)^\s*(?:export\s+)?([A-Za-z_]\w*)=("[^"]*"|'[^']*'|[^\s$;&|]*)\s*$`)
	blank     = pattern.Of(`<[^<>]+>|\[[A-Z][^\[\]]+\]`)
	optional  = pattern.Of(`\[-[^\[\]]*\]`)                             // an option as manuals write it
	ranks     = pattern.Of(`(--nproc[-_]per[-_]node[= ])[A-Za-z<$]\S*`) // a number that readers fill in
	words     = pattern.Of(`(?:"[^"]*"|'[^']*'|[^\s"'])+`)
	// declared matches a program that pip makes of a module: lerobot-train = "lerobot.scripts.train:main".
	declared = pattern.Of(`(?m)^\s*['"]?([\w-]+)['"]?\s*=\s*['"]?([\w.]+):\w+`)
	quotes   = pattern.Of(`"([^"]*)"|'([^']*)'`)
)

// Find returns the training commands that a repository documents, first the one that most likely trains; bad input if
// there is none.
func Find(dir string) ([]Command, error) {
	var all []Command
	seen, programs := map[string]bool{}, map[string]string{}
	for _, name := range []string{"pyproject.toml", "setup.cfg", "setup.py"} {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // few repositories have all of them
		for _, m := range declared().FindAllStringSubmatch(string(text), -1) {
			programs[m[1]] = "python -m " + m[2]
		}
	}
	for _, pattern := range places {
		names, _ := filepath.Glob(filepath.Join(dir, pattern)) // the patterns are fine
		for _, name := range names {
			if info, err := os.Stat(name); err != nil || info.Size() > mostText || info.IsDir() || seen[name] {
				continue
			}
			seen[name] = true
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			name = strings.TrimPrefix(name, dir+string(filepath.Separator))
			all = append(all, commandsOf(dir, name, string(text), programs)...)
		}
	}
	if len(all) == 0 {
		return nil, input.FileErrorf(dir, "no training command in its README, scripts or workflows; name one after "+
			"--: vprof card -- python train.py")
	}
	return all, nil
}

// commandsOf returns the commands of a text that run a script of a folder, or one of its programs.
func commandsOf(dir, name, text string, programs map[string]string) (all []Command) {
	known := map[string]string{} // first what is assigned below the commands
	text = strings.ReplaceAll(text, "\r", "")
	for _, m := range assigned().FindAllStringSubmatch(text, -1) {
		known[m[1]] = cmp.Or(known[m[1]], strings.Trim(m[2], `"'`))
	}
	lines := strings.Split(text, "\n")
	for at := 0; at < len(lines); at++ {
		line, number := lines[at], at+1
		for strings.HasSuffix(strings.TrimSpace(line), `\`) && at+1 < len(lines) {
			at++
			line = strings.TrimSuffix(strings.TrimSpace(line), `\`) + " " + strings.TrimSpace(lines[at])
		}
		if m := assigned().FindStringSubmatch(line); m != nil {
			known[m[1]] = strings.Trim(m[2], `"'`)
		}
		if first, rest, _ := strings.Cut(strings.TrimLeft(line, "$> "), " "); programs[first] != "" {
			line = programs[first] + " " + rest
		}
		m := starts().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		script := cmp.Or(scripts().FindString(m[2]), modules().FindString(m[2]))
		base := filepath.Base(script)
		if !trains().MatchString(base) || others().MatchString(base) || !there(dir, script) {
			continue
		}
		line = ranks().ReplaceAllString(optional().ReplaceAllString(strings.Trim(m[2], "` "), ""), "${1}1")
		command := variable().ReplaceAllStringFunc(line, func(v string) string {
			name := variable().FindStringSubmatch(v)
			if value, ok := known[name[1]+name[2]]; ok {
				return value
			}
			return "absent-" + strings.ToLower(name[1]+name[2])
		})
		command = blank().ReplaceAllStringFunc(command, func(b string) string {
			letters := strings.FieldsFunc(strings.ToLower(b), func(r rune) bool { return !unicode.IsLetter(r) })
			return "absent-" + strings.Join(letters, "-")
		})
		c := Command{From: fmt.Sprintf("%s:%d", name, number)}
		for _, word := range words().FindAllString(command, -1) {
			c.Args = append(c.Args, quotes().ReplaceAllString(word, "$1$2"))
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
