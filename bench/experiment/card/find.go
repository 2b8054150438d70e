package card

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/pattern"
)

// A Command is a training command, and the file and line that document it.
type Command struct {
	Args []string `json:"args"`
	From string   `json:"from,omitempty"`
	// Dir is the folder of the repository in which the command runs; empty for the repository's root.
	Dir string `json:"dir,omitempty"`
	// missingCount is the number of arguments that name something that only the user has, such as a data set.
	missingCount int
}

// documentNames are the files in which repositories document their commands, most useful first.
var documentNames = []string{
	"README*", "readme*", "*.md", "docs/*.md", "scripts/*.sh", "scripts/*/*.sh", "*.sh", "examples/*.md", "*/README*",
	"*/*/README*", "*/*/*/README*", "*/*.md", "*/*/*.md", "*/*.sh", "*/*/*.sh", "*/*/*/*.sh", "*/*/*/*/*.sh",
	".github/workflows/*.y*ml", "*.py", "*/*.py", "*/*/*.py",
}

// maxTextBytes limits the files that are read, in bytes.
const maxTextBytes = 1 << 20

var (
	// starts matches the start of a command. A prompt may name an environment and a folder. For MPI, which starts one
	// process for each rank, one process is enough.
	starts = pattern.Lazy(`^(?:[-$>#*` + "`" + `\s]|run:|\([\w-]+\)|\[[\w-]+\]\$)*((?:[A-Z_]+=\S+\s+)*)` +
		`(?:mpi(?:exec|run) -np? \S+ |uv run |poetry run )?` +
		`((?:python[\d.]*\s+(?:-|\S+\.py)|(?:torchrun|accelerate launch|deepspeed)\s).*)$`)
	trains = pattern.Lazy(`(?i)train|tune|sft|dpo|lora|main|fit|imitat|learn|_ft\b|\bft_`)
	// steps matches the source code of a training script whose name does not contain train.
	steps   = pattern.Lazy(`\.backward\(|Trainer\(|\.fit\(|\bimport train\b`)
	scripts = pattern.Lazy(`\S+\.py\b`)
	modules = pattern.Lazy(`-m\s+\S+(\s+[a-z]\w*)?`) // with a program's subcommand
	others  = pattern.Lazy(`(?i)eval|infer|test|sampl|generat|demo|predict|export|convert|preproc|prepare|download|` +
		`setup|submit|gradio|merge|fetch|search|cache|\b(serve|chat|deploy)\b`)
	frameworks = pattern.Lazy(`-m (paddle|mindspore)\b`) // other than PyTorch
	// evaluates matches an option with which a training script prints help or evaluates, and does not train.
	evaluates = pattern.Lazy(`(?i)^--?(only[-_])?(h|help|eval|evaluate|test|infer|inference|predict)([-_]only)?$|` +
		`^--(is|do)_train(ing)?[= ](0|false)$|^--?sample[-_]only$|` +
		`^(?:--?)?(mode|phase|stage)[= ](?:ppl_)?(test|eval|infer|sampl|align|predict|generat|demo)\w*$`)
	// entered matches "cd" to a folder of the repository, alone or before a command.
	entered   = pattern.Lazy(`^[-$>#*\s]*cd (?:\./)?(\w[\w/-]*)\s*(?:(?:&&|;)\s*(.*))?$`)
	continued = pattern.Lazy(`\\(\s+#.*)?\s*$`)
	indented  = pattern.Lazy(`^\s+--?\w`) // options below a command, as documents for several shells write them
	// spanned matches a command in backticks within a sentence or a list: "1. Run `python train.py`".
	spanned = pattern.Lazy("`((?:[A-Z_]+=\\S+ +)*(?:python[\\d.]*|torchrun|accelerate launch|deepspeed) [^`]*)`")
	ends    = pattern.Lazy(`^(?:[#|&;>\\]|2>)`) // what follows a command in its line: a remark, a pipe, another command
	// mentioned matches the name of a script within a sentence: run `train.py`.
	mentioned = pattern.Lazy("[`\"]([\\w/]*train\\w*\\.py)[`\"]")
	variable  = pattern.Lazy(`\$\{(\w+)(?::-["']?([^}"']*)["']?)?\}|\$(\w+)`)
	// arrayed matches a shell array of options, and arrays matches its use in a command.
	arrayed  = pattern.Lazy(`(?ms)^\s*([A-Za-z_]\w*)=\(\s*$(.*?)^\s*\)`)
	arrays   = pattern.Lazy(`"?\$\{(\w+)\[[@*]\]\}"?`)
	remark   = pattern.Lazy(`(?m)(^|\s)#.*$`)
	assigned = pattern.Lazy(`(?m)^\s*(?:export\s+)?([A-Za-z_]\w*)=("[^"(\x60]*"|'[^']*'|[^\s;&|(\x60]*)(?:\s+#.*)?\s*$`)
	blank    = pattern.Lazy(`<[^<>]+>|\{[A-Z][A-Z_ ]*\}|\[[A-Z][^\[\]]+\]|\[[a-z][\w-]*( [\w-]+)+\]`)
	// optional matches an option as manuals write it ([--option]), and an option without its value: --node-rank=...
	optional = pattern.Lazy(`\[-[^\[\]]*\]|"?\$[@*]"?|--[\w-]+=\.\.\.(\s|$)`)
	ranks    = pattern.Lazy(`(--nproc[-_]per[-_]node[= ])[A-Za-z<$]\S*`) // a number that readers fill in
	port     = pattern.Lazy(`(port[= ])absent-\S*`)
	words    = pattern.Lazy(`(?:"[^"]*"|'[^']*'|[^\s"'])+`)
	// declared matches a program that pip installs for a module: lerobot-train = "lerobot.scripts.train:main".
	declared = pattern.Lazy(`([\w-]+)['"]?\s*=\s*['"]?([\w.]+):\w+`)
	called   = pattern.Lazy(`^([\s$>]*(?:[A-Z_]+=\S+ +)*)([\w-]+)( .*)`)
	// chosen and configured match options that select the model or the data to train.
	chosen = pattern.Lazy(`(?i)(model|config|cfg|version|arch|polic|task|type|method|module).*` +
		`(absent-|path[/_-]to|your[_-])|^\.\.\.$|://absent-`)
	configured = pattern.Lazy(`[^\s=]+\.(ya?ml|toml|json)$`)
	quotes     = pattern.Lazy(`"([^"]*)"|'([^']*)'`)
	// shouted matches a value in capitals that the reader must fill in: --master_port=PORT, LMDB_PATH.
	shouted = pattern.Lazy(`^(--?[\w-]+=)?((?:[A-Z]+_)*` +
		`(?:PATH|DIR|ROOT|FOLDER|FILE|NAME|SIZE|NUM|ID|PORT|CONFIG|DATASET|DATA|GPUS?))$`)
	unnamed = pattern.Lazy(`absent-[a-z_-]*[a-z]`) // the part of a file's name that the reader fills in
	// wrappedLine matches the documented call of a shell script: bash scripts/train.sh tiny 1.
	wrappedLine = pattern.Lazy("(?:bash |sh |\\./)(\\S+\\.sh)((?: +[^\\s`|&;>#]+)*)")
)

// declaredPrograms returns the programs that a repository's packaging files declare, by name.
func declaredPrograms(dir string) map[string]string {
	programs := map[string]string{}
	for _, name := range []string{"pyproject.toml", "setup.cfg", "setup.py"} {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // few repositories have all of them
		for _, m := range declared().FindAllStringSubmatch(string(text), -1) {
			programs[m[1]] = "python -m " + m[2]
		}
	}
	return programs
}

// isTrainingScript reports whether a Python file is a script that trains a model.
func isTrainingScript(name string, text []byte) bool {
	called := strings.HasPrefix(name, "train") || bytes.Contains(text, []byte("\nif __name__ =="))
	return called && steps().Match(text)
}

// Find returns the training commands that a repository documents, most likely first; bad input if there is none.
func Find(dir string) ([]Command, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, input.FileErrorf(dir, "there is no such folder; name a repository's, or a command after --")
	}
	all, names := []Command{}, []string{}
	seen, programs, calls := map[string]bool{}, declaredPrograms(dir), map[string][]string{}
	for _, pattern := range documentNames {
		found, _ := filepath.Glob(filepath.Join(dir, pattern)) // the patterns are fine
		names = append(names, found...)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Size() > maxTextBytes || info.IsDir() || seen[name] {
			continue
		}
		seen[name] = true
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		name = strings.TrimPrefix(name, dir+string(filepath.Separator))
		if strings.HasSuffix(name, ".py") { // a script that trains, where none is documented
			if len(all) > 0 || !isTrainingScript(name, text) {
				continue
			}
			text = []byte("python " + name)
		}
		for _, m := range wrappedLine().FindAllStringSubmatch(string(text), -1) {
			if to := filepath.Base(m[1]); calls[to] == nil {
				calls[to] = strings.Fields(m[2])
			}
		}
		all = append(all, parseCommands(dir, name, string(text), programs, calls[filepath.Base(name)])...)
	}
	slices.SortStableFunc(all, func(a, b Command) int { return a.missingCount - b.missingCount })
	if len(all) == 0 {
		return nil, input.FileErrorf(dir, "the README, scripts and workflows of this folder have no training "+
			"command; give one after --, like: vprof card -- python train.py")
	}
	return all, nil
}

// expandVariables replaces the variables in a text by their values; an unknown variable becomes absent-NAME.
func expandVariables(text string, known map[string]string) string {
	return variable().ReplaceAllStringFunc(text, func(v string) string {
		name := variable().FindStringSubmatch(v)
		if value, ok := known[name[1]+name[3]]; ok {
			return value
		}
		return cmp.Or(name[2], "absent-"+strings.ToLower(name[1]+name[3]))
	})
}

// parseCommands returns the commands of a text that run a script of folder dir or one of its programs. arguments are
// the values of $1, $2 and so on if the text is a shell script.
func parseCommands(dir, name, text string, programs map[string]string, arguments []string) (all []Command) {
	known := map[string]string{}
	for i, argument := range arguments {
		known[strconv.Itoa(i+1)] = argument
	}
	text = strings.ReplaceAll(text, "\r", "")
	assign := func(name, v string) {
		v = expandVariables(strings.Trim(v, `"'`), known)
		if !strings.HasPrefix(v, "-") {
			v = strings.ReplaceAll(v, " ", "-") // words of the reader's own, such as "path to the model"
		}
		if !strings.Contains(v, "absent-") {
			known[name] = v
		}
	}
	for _, m := range assigned().FindAllStringSubmatch(text, -1) { // first what is assigned below the commands
		assign(m[1], m[2])
	}
	for _, m := range arrayed().FindAllStringSubmatch(text, -1) {
		known[m[1]] = strings.Join(strings.Fields(remark().ReplaceAllString(m[2], "")), " ")
	}
	lines, folder := strings.Split(text, "\n"), "" // folder is the one that the text has changed to
	for at := 0; at < len(lines); at++ {
		number := at + 1
		var line string
		line, at = joinContinued(lines, at)
		if m := entered().FindStringSubmatch(line); m != nil {
			line, folder = m[2], m[1]
		}
		if m := assigned().FindStringSubmatch(line); m != nil {
			assign(m[1], m[2])
		}
		if m := spanned().FindStringSubmatch(line); m != nil {
			line = m[1]
		}
		mention := mentioned().FindStringSubmatch(line)
		if mention != nil && !starts().MatchString(line) {
			line = "python " + mention[1]
		}
		if m := called().FindStringSubmatch(line); m != nil && programs[m[2]] != "" {
			line = m[1] + programs[m[2]] + m[3]
		}
		if c := parseCommand(dir, filepath.Join(folder, name), line, known); c != nil {
			c.From = fmt.Sprintf("%s:%d", name, number)
			c.missingCount += len(mention)
			all = append(all, *c)
		}
	}
	return all
}

// joinContinued returns the line of a command joined with its continuation lines, and the index of the last one.
func joinContinued(lines []string, at int) (string, int) {
	line := lines[at]
	for continued().MatchString(line) && at+1 < len(lines) {
		if comment := strings.HasPrefix; comment(line, "#") && !comment(lines[at+1], "#") {
			return "", at // a command in place of which the next is given
		}
		at++
		line = continued().ReplaceAllString(line, " ") + strings.TrimSpace(lines[at])
	}
	for starts().MatchString(line) && at+1 < len(lines) && indented().MatchString(lines[at+1]) {
		at++
		line += " " + strings.TrimSpace(strings.TrimRight(lines[at], " \\"))
	}
	return line, at
}

// parseCommand returns the training command in a line; nil if the line has none.
func parseCommand(dir, name, line string, known map[string]string) *Command {
	m := starts().FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	script := cmp.Or(scripts().FindString(m[2]), modules().FindString(m[2]))
	base, in := filepath.Base(script), folderOf(dir, name, script)
	source, _ := os.ReadFile(filepath.Join(dir, in, script)) // a module may be installed and have no file here
	trainer := trains().MatchString(base) || steps().Match(source)
	if !trainer || others().MatchString(base) || in == "" || frameworks().MatchString(line) {
		return nil
	}
	line = arrays().ReplaceAllString(m[2], "$${$1}")
	line = ranks().ReplaceAllString(optional().ReplaceAllString(strings.Trim(line, "` "), ""), "${1}1")
	command := blank().ReplaceAllStringFunc(expandVariables(line, known), func(b string) string {
		letters := strings.FieldsFunc(strings.ToLower(b), func(r rune) bool { return !unicode.IsLetter(r) })
		return "absent-" + strings.Join(letters, "-")
	})
	command = port().ReplaceAllString(command, "${1}29511")
	c := &Command{Dir: strings.TrimPrefix(in, ".")}
	for _, word := range words().FindAllString(command, -1) {
		c.Args = append(c.Args, quotes().ReplaceAllString(word, "$1$2"))
	}
	if end := slices.IndexFunc(c.Args, ends().MatchString); end > 0 {
		c.Args = c.Args[:end]
	}
	if slices.Contains(c.Args, "--do_eval") && !strings.Contains(line, "--do_train") {
		return nil
	}
	if len(c.Args) < 3 && !strings.HasPrefix(filepath.Base(name), "README") {
		c.missingCount = 1 // a mention of the script
	}
	for i, word := range c.Args {
		option := i > 0 && strings.HasPrefix(c.Args[i-1], "-")
		if m := shouted().FindStringSubmatch(word); m != nil && (m[1] != "" || option || i == len(c.Args)-1) {
			word = port().ReplaceAllString(m[1]+"absent-"+strings.ToLower(m[2]), "${1}29511")
		}
		c.Args[i] = firstExistingFile(filepath.Join(dir, in), word)
		if option && !strings.Contains(word, "=") {
			word = c.Args[i-1] + " " + word
		}
		if evaluates().MatchString(word) {
			return nil
		}
		if isMissingFile(filepath.Join(dir, in), word) {
			c.missingCount++
		}
	}
	return c
}

// firstExistingFile returns a setting with the name of the first matching file of the repository, if the reader must
// fill in a part of the name. The script may add the folder of configurations itself.
func firstExistingFile(dir, setting string) string {
	file := configured().FindString(setting)
	for _, folder := range []string{"", "conf*", "cfg*"} {
		// The pattern has no brackets, so it is valid.
		found, _ := filepath.Glob(filepath.Join(dir, folder, unnamed().ReplaceAllString(file, "*")))
		if unnamed().MatchString(file) && len(found) > 0 {
			return strings.TrimSuffix(setting, file) + filepath.Join(filepath.Dir(file), filepath.Base(found[0]))
		}
	}
	return setting
}

// isMissingFile reports whether a setting names a model, or a file that exists neither in folder dir nor up to two
// levels below it.
func isMissingFile(dir, setting string) bool {
	file := configured().FindString(setting)
	if file == "" || !chosen().MatchString(setting+"absent-") {
		return chosen().MatchString(setting)
	}
	return !slices.ContainsFunc([]string{"", "*", "*/*"}, func(depth string) bool {
		found, _ := filepath.Glob(filepath.Join(dir, depth, file))
		return found != nil
	})
}

// folderOf returns the folder of a repository from which the script in a documented command runs: the root, the
// document's folder, the only folder with that script, or one above; empty if there is none, or for a module.
func folderOf(dir, name, script string) string {
	for in := filepath.Dir(name); ; in = filepath.Dir(in) {
		for _, at := range []string{".", in, in + "/*"} {
			found, _ := filepath.Glob(filepath.Join(dir, at, script)) // no pattern but ours
			if at == in+"/*" && len(found) == 1 {
				at, _ = filepath.Rel(dir, strings.TrimSuffix(found[0], filepath.Clean(script)))
			}
			if len(found) == 1 || strings.HasPrefix(script, "-m") {
				return at
			}
		}
		if in == "." {
			return ""
		}
	}
}
