package trainers

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/vprof/vprof/internal/input"
)

// A launch is how a program starts a trainer.
type launch struct {
	// words begin the command; "*.py" stands for any Python file, "*" for any word.
	words []string
	// trainer is the table of its arguments.
	trainer string
	// reads says that the first argument is a configuration file.
	reads bool
	// says are the facts that the command itself is.
	says facts
}

// launches are the programs that start trainers by themselves.
var launches = []launch{
	{words: []string{"swift", "sft"}, trainer: "ms-swift", reads: true},
	{words: []string{"swift", "pt"}, trainer: "ms-swift", reads: true},
	{words: []string{"swift", "rlhf"}, trainer: "ms-swift", says: facts{"method": {value: "rlhf"}}},
	{words: []string{"llamafactory-cli", "train"}, trainer: "LLaMA-Factory", reads: true},
	{words: []string{"axolotl", "train"}, trainer: "axolotl", reads: true},
	{words: []string{"trl", "sft"}, trainer: "TRL"},
	{words: []string{"trl", "dpo"}, trainer: "TRL", says: facts{"objective": {value: "dpo"}}},
	{words: []string{"trl", "grpo"}, trainer: "TRL", says: facts{"objective": {value: "grpo"}}},
	{words: []string{"trl", "kto"}, trainer: "TRL", says: facts{"objective": {value: "kto"}}},
	{words: []string{"trl", "reward"}, trainer: "TRL", says: facts{"objective": {value: "reward"}, "task": {value: "classification"}, "num-labels": {value: "1"}}},
}

// starters run a Python program, on one GPU or several. Their own options stand
// before it.
var starters = [][]string{
	{"accelerate", "launch"},
	{"torchrun"},
	{"python", "-m", "torch.distributed.run"},
	{"python", "-m", "torch.distributed.launch"},
	{"deepspeed"},
	{"python"},
	{"python3"},
}

// starterOptions are options of starters that say something about memory, by fact.
var starterOptions = map[string]string{
	"num_processes": "gpus", "nproc_per_node": "gpus", "num_gpus": "gpus", "mixed_precision": "mixed", "config_file": "file",
}

// words are the tokens of one command with their lines.
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
		env, words := assignments(c)
		one := fromWords(file, words)
		if one == nil {
			continue
		}
		if found != nil {
			return nil, d.wrong(c[0].line, "", "starts a second trainer; vprof plans one at a time, so put each into a script of its own")
		}
		for name, v := range vars {
			one.environment(name, v)
		}
		for name, v := range env {
			one.environment(name, v)
		}
		found = one
	}
	if found == nil {
		return nil, d.wrong(0, "", "starts no trainer that vprof knows: swift sft, trl sft, llamafactory-cli train, axolotl train, or a Python program by accelerate launch, torchrun, deepspeed or python")
	}
	return found, nil
}

// parseCommand reads a command line that was given as such.
func parseCommand(args []string) (*document, error) {
	const name = "command line"
	tokens := make([]token, len(args))
	for i, a := range args {
		tokens[i] = token{text: a}
	}
	env, words := assignments(tokens)
	d := fromWords(name, words)
	if d == nil {
		return nil, &input.FormatError{File: name, Reason: "starts no trainer that vprof knows: swift sft, trl sft, llamafactory-cli train, axolotl train, or a Python program by accelerate launch, torchrun, deepspeed or python"}
	}
	for name, v := range env {
		d.environment(name, v)
	}
	return d, nil
}

// environment takes a variable that says something about memory.
func (d *document) environment(name string, v token) {
	fact, ok := map[string]string{"NPROC_PER_NODE": "gpus", "PYTORCH_CUDA_ALLOC_CONF": "alloc-conf", "PYTORCH_ALLOC_CONF": "alloc-conf"}[name]
	if ok && d.facts[fact].value == "" {
		d.facts.set(fact, v.text, origin{d.file, name, v.line})
	}
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// assignments takes the variables off the beginning of a command.
func assignments(c []token) (env map[string]token, rest []token) {
	env = map[string]token{}
	for len(c) > 0 && (variable.MatchString(c[0].text) || c[0].text == "export" || c[0].text == "env") {
		if name, v, ok := strings.Cut(c[0].text, "="); ok {
			env[name] = token{v, c[0].line}
		}
		c = c[1:]
	}
	return env, c
}

// fromWords reads the arguments of a trainer; nil if the command is another.
func fromWords(file string, c []token) *document {
	for _, l := range launches {
		if !starts(c, l.words) {
			continue
		}
		d := &document{file: file, command: true, trainer: l.trainer, facts: facts{}}
		rest := c[len(l.words):]
		if l.reads && len(rest) > 0 && !strings.HasPrefix(rest[0].text, "-") {
			d.config, rest = rest[0].text, rest[1:]
		}
		for name, f := range l.says {
			d.facts.set(name, f.value, origin{file, strings.Join(l.words, " "), c[0].line})
		}
		d.root = arguments(rest)
		return d
	}
	for _, s := range starters {
		if !starts(c, s) {
			continue
		}
		rest := c[len(s):]
		at := 0
		for at < len(rest) && filepath.Ext(rest[at].text) != ".py" {
			at++
		}
		if at == len(rest) {
			return nil
		}
		d := &document{file: file, command: true, root: arguments(rest[at+1:]), facts: facts{}}
		for _, e := range arguments(rest[:at]).entries {
			key := strings.ReplaceAll(e.key, "-", "_")
			if fact, ok := starterOptions[key]; ok {
				d.facts.set(fact, e.value.text, origin{file, "--" + e.key, e.line})
			}
			if key == "config_file" {
				d.config = e.value.text
			}
		}
		return d
	}
	return nil
}

func starts(c []token, words []string) bool {
	if len(c) < len(words) {
		return false
	}
	for i, w := range words {
		text := c[i].text
		if i == 0 {
			text = filepath.Base(text)
		}
		if text != w {
			return false
		}
	}
	return true
}

// arguments are options of a command line as the keys of a group: "--key value",
// "--key=value", "--key" for true, and "key=value" as OmegaConf has it.
func arguments(c []token) *value {
	root := &value{kind: group}
	for i := 0; i < len(c); i++ {
		text, option := strings.CutPrefix(c[i].text, "--")
		key, one, inline := strings.Cut(text, "=")
		if key == "" || (!option && !inline) {
			continue
		}
		v := &value{line: c[i].line}
		if inline {
			v.kind, v.text = word(one)
		} else {
			for i+1 < len(c) && !strings.HasPrefix(c[i+1].text, "--") {
				i++
				item := &value{line: c[i].line}
				item.kind, item.text = word(c[i].text)
				v.items = append(v.items, item)
			}
			switch len(v.items) {
			case 0:
				v.kind, v.text = boolean, "true"
			case 1:
				v = v.items[0]
			default:
				v.kind = list
			}
		}
		if option && strings.Contains(key, "-") {
			key = strings.ReplaceAll(key, "-", "_")
		}
		root.add(entry{key: key, line: c[i].line, value: v})
	}
	return root
}

// word is an argument as trainers read it.
func word(s string) (kind, string) {
	switch strings.ToLower(s) {
	case "true", "yes":
		return boolean, "true"
	case "false", "no":
		return boolean, "false"
	case "none", "null":
		return null, ""
	}
	return text, s
}
