package trainers

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
)

// A launcher recognizes a command line that starts a trainer.
type launcher struct {
	// words are the first words of the command. "*.py" matches any Python file, "*" any word.
	words []string
	// trainer is the name of the table that describes the command's arguments.
	trainer string
	// readsConfig reports whether the first argument is a configuration file.
	readsConfig bool
	// takesFolder reports whether the first argument is the model's folder.
	takesFolder bool
	// implied holds the facts that the command itself implies.
	implied facts
	// task is the kind of training that the command names ("dpo").
	task string
}

// litgptFacts returns the fact of what a litgpt command trains: all weights, or adapters.
func litgptFacts(name string) facts { return facts{"tuner": {value: name}} }

// trainerLaunchers are the programs that start training without torchrun or accelerate.
var trainerLaunchers = []launcher{
	{words: []string{"swift", "sft"}, trainer: "ms-swift", readsConfig: true},
	{words: []string{"swift", "pt"}, trainer: "ms-swift", readsConfig: true},
	{words: []string{"swift", "rlhf"}, trainer: "ms-swift", implied: facts{"method": {value: "rlhf"}}},
	{words: []string{"llamafactory-cli", "train"}, trainer: "LLaMA-Factory", readsConfig: true},
	{words: []string{"axolotl", "train"}, trainer: "axolotl", readsConfig: true},
	{words: []string{"torchtitan", "train"}, trainer: "torchtitan"},
	{words: []string{"litgpt", "finetune_full"}, trainer: "litgpt", takesFolder: true, implied: litgptFacts("full")},
	{words: []string{"litgpt", "finetune_lora"}, trainer: "litgpt", takesFolder: true, implied: litgptFacts("lora")},
	{words: []string{"litgpt", "finetune"}, trainer: "litgpt", takesFolder: true, implied: litgptFacts("lora")},
	{words: []string{"litgpt", "pretrain"}, trainer: "litgpt", implied: litgptFacts("pretrain")},
}

// processLaunchers are commands that start a Python program on one or several GPUs. Their options precede its name.
var processLaunchers = [][]string{
	{"accelerate", "launch"},
	{"torchrun"},
	{"python", "-m", "torch.distributed.run"},
	{"python", "-m", "torch.distributed.launch"},
	{"deepspeed"},
	{"python"},
	{"python3"},
}

// moduleCommands maps each module that python -m and the starters run to the equivalent command.
var moduleCommands = map[string][]string{
	"axolotl.cli.train": {"axolotl", "train"},
	"llamafactory.cli":  {"llamafactory-cli"},
	"torchtitan.train":  {"torchtitan", "train"},
	"swift.cli.sft":     {"swift", "sft"},
	"swift.cli.pt":      {"swift", "pt"},
	"swift.cli.rlhf":    {"swift", "rlhf"},
}

// moduleCommand returns the command that a Python module runs, such as TRL's trl.scripts.TASK; nil for others.
func moduleCommand(module string) []string {
	if task, ok := strings.CutPrefix(module, "trl.scripts."); ok {
		return []string{"trl", task}
	}
	return moduleCommands[module]
}

// wrapperCommands are commands that run the command after their own options, such as nohup.
var wrapperCommands = []string{
	"srun", "nohup", "time", "exec", "nice", "uv", "poetry", "conda", "singularity", "apptainer",
	"numactl", "stdbuf", "timeout", "sudo",
}

// NoTraining ends the error about a command that starts no trainer. It lists the known trainers.
const NoTraining = "starts no trainer that vprof knows: swift sft, trl sft, llamafactory-cli train, axolotl " +
	"train, tune run, litgpt finetune, or a Python program by accelerate launch, torchrun, deepspeed or python"

// A token is one word of a command, with its line in the script.
type token struct {
	text string
	line int
}

// parseScript reads the one command of a shell script that starts a trainer.
func parseScript(file, script string) (*document, error) {
	d := &document{file: file}
	commands, vars, err := splitScript(d, script)
	if err != nil {
		return nil, err
	}
	var found *document
	for _, c := range commands {
		env, words := splitAssignments(c)
		one := commandDocument(file, words)
		if one == nil {
			continue
		}
		if found != nil {
			return nil, d.fault(c[0].line, "",
				"starts a second trainer; vprof plans one at a time, so put each into a script of its own")
		}
		for name, v := range vars {
			if _, own := env[name]; !own {
				env[name] = v
			}
		}
		one.readEnvironment(env)
		found = one
	}
	for _, c := range commands {
		_, words := splitAssignments(c)
		if err := startedTrainer(file, words); found == nil && err != nil {
			return nil, err
		}
	}
	if found == nil {
		return nil, d.fault(0, "", NoTraining)
	}
	return found, nil
}

// commandLineFile takes the place of a file name in messages about a command line.
const commandLineFile = "command line"

// parseCommand reads a command line that the user gave as arguments.
func parseCommand(args []string) (*document, error) {
	tokens := lists.Map(args, func(a string) token { return token{text: a} })
	env, words := splitAssignments(tokens)
	d := commandDocument(commandLineFile, words)
	if d == nil {
		return nil, cmp.Or(startedTrainer(commandLineFile, words),
			error(&input.FormatError{File: commandLineFile, Reason: NoTraining}))
	}
	d.readEnvironment(env)
	return d, nil
}

// readEnvironment reads the command's environment variables that affect memory. The GPUs may also be set in vprof's own
// shell, which would start the command.
func (d *document) readEnvironment(vars map[string]token) {
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		fact, ok := map[string]string{
			"NPROC_PER_NODE":          "gpus",
			"PYTORCH_CUDA_ALLOC_CONF": "alloc-conf", "PYTORCH_ALLOC_CONF": "alloc-conf",
			"CUBLAS_WORKSPACE_CONFIG": cublasWorkspace, "MAX_PIXELS": imagePixels,
		}[name]
		if v := vars[name]; ok && d.facts[fact].value == "" {
			d.facts.set(fact, v.text, Key{d.file, v.line, name})
		}
	}
	if v, said := vars[visibleGPUs]; said {
		d.setVisibleGPUs(v, d.file)
	} else if d.gpuDocument == nil || d.gpuDocument.config == "" { // which gives the number of processes
		d.setVisibleGPUs(token{text: os.Getenv(visibleGPUs)}, "environment")
	}
}

// cublasWorkspace is the vprof flag for CUBLAS_WORKSPACE_CONFIG.
const cublasWorkspace = "cublas-workspace"

// visibleGPUs is the environment variable that selects the GPUs visible to CUDA.
const visibleGPUs = "CUDA_VISIBLE_DEVICES"

// setVisibleGPUs reads the number of visible GPUs, unless the command sets the number of processes. Most launchers and
// trainers start one process for each GPU.
func (d *document) setVisibleGPUs(v token, where string) {
	n := len(strings.Split(strings.Trim(v.text, ", "), ","))
	if n == 1 || d.facts["gpus"].value != "" || d.gpuDocument != nil && d.gpuDocument.root.get("num_processes") != nil {
		return
	}
	switch d.starter {
	case "python", "python3":
		d.notes.Add("%s: python starts one process, which shares each batch out among the %d GPUs (DataParallel); "+
			"planned is one GPU, so start it with torchrun or accelerate launch", d.file, n)
	case "torchrun":
		d.notes.Add("%s: torchrun starts one process; planned is one GPU, so say --nproc_per_node %d to train on all "+
			"that "+visibleGPUs+" has", d.file, n)
	default:
		d.facts.set("gpus", strconv.Itoa(n), Key{where, v.line, visibleGPUs})
	}
}

var assignmentPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// splitAssignments splits a command into its leading variable assignments and the rest.
func splitAssignments(c []token) (env map[string]token, rest []token) {
	env = map[string]token{}
	for len(c) > 0 && (assignmentPattern.MatchString(c[0].text) || c[0].text == "export" || c[0].text == "env") {
		if name, v, ok := strings.Cut(c[0].text, "="); ok {
			env[name] = token{v, c[0].line}
		}
		c = c[1:]
	}
	return env, c
}

// commandDocument reads the arguments of the trainer that a command starts; nil if it starts another program.
func commandDocument(file string, c []token) *document {
	if len(c) > 0 && slices.Contains(wrapperCommands, programName(c[0].text)) {
		for i := range c[1:] {
			if d := commandDocument(file, c[1+i:]); d != nil {
				return d
			}
		}
		return nil
	}
	if hasWordPrefix(c, []string{"tune", "run"}) {
		return tuneRunDocument(file, c[2:])
	}
	for _, l := range trainerLaunchers {
		if hasWordPrefix(c, l.words) {
			return l.document(file, c)
		}
	}
	if trl := TableNamed("TRL"); hasWordPrefix(c, []string{"trl"}) && len(c) > 1 {
		if slices.ContainsFunc(trl.Tasks, func(k Task) bool { return k.Name == c[1].text }) {
			return launcher{words: []string{"trl", c[1].text}, trainer: "TRL", task: c[1].text}.document(file, c)
		}
	}
	for _, s := range processLaunchers {
		if hasWordPrefix(c, s) {
			return startedDocument(file, s, c[len(s):])
		}
	}
	return nil
}

// document returns the keys and values of the trainer's command line c.
func (l launcher) document(file string, c []token) *document {
	d := &document{file: file, command: true, trainer: l.trainer, task: l.task, facts: facts{}}
	rest := c[len(l.words):]
	if l.readsConfig && len(rest) > 0 && !strings.HasPrefix(rest[0].text, "-") {
		d.config, rest = rest[0].text, rest[1:]
	}
	for name, f := range l.implied {
		d.facts.set(name, f.value, Key{file, c[0].line, strings.Join(l.words, " ")})
	}
	d.root = parseArguments(rest)
	if l.takesFolder && len(rest) > 0 && !strings.HasPrefix(rest[0].text, "-") {
		d.root.setAtPath(groupEntry{key: "checkpoint_dir", line: rest[0].line, value: &configValue{
			kind: textKind, text: rest[0].text, line: rest[0].line,
		}})
	}
	d.useConfig()
	return d
}

// startedDocument returns the keys and values of the arguments of the Python file or module (-m) that a launcher
// starts; nil if the command names neither.
func startedDocument(file string, starter []string, c []token) *document {
	for at, t := range c {
		var d *document
		switch {
		case (t.text == "-m" || t.text == "--module") && at+1 < len(c) && moduleCommand(c[at+1].text) != nil:
			words := lists.Map(moduleCommand(c[at+1].text), func(w string) token { return token{w, t.line} })
			if d = commandDocument(file, append(words, c[at+2:]...)); d == nil {
				return nil
			}
		case filepath.Ext(t.text) == ".py":
			d = &document{file: file, command: true, facts: facts{}, script: programName(t.text), source: t.text}
			rest := c[at+1:]
			if len(rest) > 0 && isConfigFile(rest[0].text) { // as HfArgumentParser takes it
				d.config, rest = rest[0].text, rest[1:]
			}
			d.root = parseArguments(rest)
			d.useConfig()
		default:
			continue
		}
		d.starter = starter[0]
		if len(starter) == 3 { // python -m torch.distributed.run
			d.starter = "torchrun"
		}
		d.readLauncherOptions(starter, parseArguments(c[:at]))
		return d
	}
	return nil
}

func isConfigFile(name string) bool {
	return !strings.HasPrefix(name, "-") &&
		slices.Contains([]string{".yaml", ".yml", ".json", ".toml"}, strings.ToLower(filepath.Ext(name)))
}

// useConfig reads the configuration file that the argument --config names. The other arguments override it, as in TRL,
// torchtune and torchtitan.
func (d *document) useConfig() {
	for _, key := range []string{"config", "job.config_file"} {
		if v := d.root.get(key); d.config == "" && v != nil && isConfigFile(v.text) {
			d.config = v.text
			d.root.remove(key)
		}
	}
}

// tuneRunDocument returns the keys and values of torchtune's command "tune run [options of torchrun] RECIPE --config
// FILE [key=value ...]"; nil if c is another command.
func tuneRunDocument(file string, c []token) *document {
	at := slices.IndexFunc(c, func(t token) bool {
		return t.text == "--config" || strings.HasPrefix(t.text, "--config=")
	})
	if at < 1 {
		return nil
	}
	d := &document{file: file, command: true, trainer: "torchtune", facts: facts{}}
	rest := c[at+1:]
	if _, name, inline := strings.Cut(c[at].text, "="); inline {
		d.config = name
	} else if len(rest) > 0 {
		d.config, rest = rest[0].text, rest[1:]
	}
	d.root = parseArguments(rest)
	for _, t := range rest {
		if key, removed := strings.CutPrefix(t.text, "~"); removed {
			d.root.add(groupEntry{key: key, line: t.line, value: &configValue{line: t.line}})
		}
	}
	d.starter = "torchrun"
	d.readLauncherOptions([]string{d.starter}, parseArguments(c[:at-1]))
	return d
}

// programName returns the file name of a program without folder and ".exe", for paths of Linux and Windows.
func programName(path string) string {
	return strings.TrimSuffix(path[strings.LastIndexAny(path, `/\`)+1:], ".exe")
}

func hasWordPrefix(c []token, words []string) bool {
	if len(c) < len(words) {
		return false
	}
	for i, w := range words {
		text := c[i].text
		if i == 0 {
			text = programName(text)
		}
		if text != w {
			return false
		}
	}
	return true
}

// parseArguments returns the options of a command line as keys of a group. It accepts "--key value", "--key=value",
// "--key" for true, and OmegaConf's "key=value".
func parseArguments(c []token) *configValue {
	root := &configValue{kind: groupKind}
	for i := 0; i < len(c); i++ {
		text, option := strings.CutPrefix(c[i].text, "--")
		key, one, inline := strings.Cut(text, "=")
		if key == "" || (!option && !inline) {
			continue
		}
		v := &configValue{line: c[i].line}
		if inline {
			v.kind, v.text = parseWord(one)
		} else {
			for i+1 < len(c) && !strings.HasPrefix(c[i+1].text, "--") {
				i++
				item := &configValue{line: c[i].line}
				item.kind, item.text = parseWord(c[i].text)
				v.items = append(v.items, item)
			}
			switch len(v.items) {
			case 0:
				v.kind, v.text = booleanKind, "true"
			case 1:
				v = v.items[0]
			default:
				v.kind = listKind
			}
		}
		if option && strings.Contains(key, "-") {
			key = strings.ReplaceAll(key, "-", "_")
		}
		root.add(groupEntry{key: key, line: c[i].line, value: v})
	}
	return root
}

// parseWord returns the type and the text of an argument, converted as trainers do.
func parseWord(s string) (kind, string) {
	switch strings.ToLower(s) {
	case "true", "yes":
		return booleanKind, "true"
	case "false", "no":
		return booleanKind, "false"
	case "none", "null":
		return nullKind, ""
	}
	return textKind, s
}
