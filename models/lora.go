package models

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/lists"
)

// LoRA are low-rank adapters of linear layers of a frozen model, as
// peft.LoraConfig describes them, or what another method of peft puts there.
type LoRA struct {
	// Method is another method than LoRA, and Options are what its configuration says besides
	// what all methods have: the layers, and modules to save. Rank and what follows up to Dropout
	// are of LoRA alone.
	Method  string
	Options map[string]string
	// Rank is r, Alpha lora_alpha, which has no influence on memory.
	Rank, Alpha int64
	// Dropout of what goes into the adapters.
	Dropout float64
	// Targets are names of layers, or ends of their paths; none means all
	// linear layers but the output layer of a language model.
	Targets []string
	// Match is a regular expression instead of names: the layers whose whole paths it
	// matches, as peft takes target_modules that is text.
	Match string
	// Parameters are names of single parameters that get adapters, or ends of
	// their names: target_parameters. Without Targets and Match they are all that is adapted.
	Parameters []string
	// Ranks are those of parameters that have another than Rank, by the parameters' own
	// names: rank_pattern. No text has them.
	Ranks map[string]int64
	// DoRA scales the rows of adapted weights by trained magnitudes: use_dora.
	// [PeftDoRA] or [TorchtuneDoRA]; empty for none.
	DoRA string
	// InWeightsType has adapters in the type of the weights, as torchtune's and those of peft
	// with autocast_adapter_dtype=False; others are in fp32.
	InWeightsType bool
	// NoTowers leaves out layers that a step on text holds and never calls: those of towers
	// that see or hear, and what joins them to the language model.
	NoTowers bool
	// Save are names of modules that are trained as a whole, in a copy: modules_to_save.
	Save []string
	// Excluded are names of layers, or ends of their paths, that get no adapter: exclude_modules.
	Excluded []string
	// Blocks are the numbers of the blocks whose layers get adapters; none for all: layers_to_transform.
	Blocks []int64
	// Patterns are the ranks of layers that have another than Rank: rank_pattern. The first that matches decides.
	Patterns []RankPattern
	// Bias says which biases are trained, too: [AllBiases], those of adapted layers, or none, which is empty.
	Bias string
	// Biased has the second matrix of an adapter have a bias: lora_bias.
	Biased bool
	// Tokens are rows of the input embeddings that are trained beside the adapters: trainable_token_indices.
	Tokens []int64
}

// RankPattern is the rank of layers whose paths, or ends of them from a dot on, are matched by a regular expression.
type RankPattern struct {
	Expression string
	Rank       int64
}

// The values of [LoRA.Bias].
const (
	AllBiases     = "all"
	AdaptedBiases = "lora_only"
)

// The values of [LoRA.DoRA]: as peft and as torchtune compute it.
const (
	PeftDoRA      = "true"
	TorchtuneDoRA = "torchtune"
)

// allLinear is how a command line and peft name all linear layers, and in mixtures what the experts have in
// parameters. LinearLayers are the linear layers alone, as trainers list their names.
const (
	allLinear    = "all-linear"
	LinearLayers = "linear-layers"
)

// maxRank is more than anybody uses: the widest layers have no higher rank.
const maxRank = 1 << 16

// ParseLoRA reads options like "r=8,alpha=16,dropout=0.05,target=all-linear".
// Several targets are joined by "+", or follow each other:
// "target=q_proj,v_proj"; so are modules to save, "save=embed_tokens+lm_head". A regular
// expression comes last: "match=REGEX". Parameters of experts, which are in no layer, are
// adapted by "parameters=experts.gate_up_proj+experts.down_proj"; then layers are, too, where
// "target=" or "match=" says so. What is left out is as in peft: rank 8, alpha 8, no
// dropout; all linear layers.
func ParseLoRA(text string) (LoRA, error) {
	l := LoRA{Rank: 8, Alpha: 8}
	seen := map[string]bool{}
	last := ""
	text, match, matched := strings.Cut(text, "match=")
	if matched {
		if err := l.set("match", match); err != nil {
			return LoRA{}, fmt.Errorf("match: %w", err)
		}
		if text = strings.TrimSuffix(text, ","); text == "" {
			return l, nil
		}
	}
	all := false
	if i := strings.Index(text, "method="); i > 0 {
		return LoRA{}, errors.New("method: it comes first, as what follows are its options")
	}
	for field := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(field), "=")
		switch {
		case ok && seen[key]:
			return LoRA{}, fmt.Errorf("%s: given twice", key)
		case !ok && last == "target" && len(l.Targets) > 0:
			key, value = last, strings.Join(l.Targets, "+")+"+"+key
		case !ok && last == "save":
			key, value = last, strings.Join(l.Save, "+")+"+"+key
		case !ok && last == "parameters":
			key, value = last, strings.Join(l.Parameters, "+")+"+"+key
		case !ok:
			return LoRA{}, fmt.Errorf("%q is not key=value; %s", field, keysOfLoRA)
		}
		last, seen[key] = key, true
		if err := l.put(key, value); err != nil {
			return LoRA{}, fmt.Errorf("%s: %w", key, err)
		}
		all = all || key == "target" && value == allLinear
	}
	if all && len(l.Parameters) > 0 {
		l.Targets = []string{allLinear}
	}
	if matched && seen["target"] {
		return LoRA{}, errors.New("match: target is given, too; layers are chosen one way")
	}
	return l, nil
}

const keysOfLoRA = "the keys are method, r, alpha, dropout, dtype, dora, target, towers, parameters, save, match, " +
	"and peft's exclude_modules, layers_to_transform, rank_pattern, bias, lora_bias and trainable_token_indices"

// ofAllMethods are the keys that mean the same for each method of peft.
var ofAllMethods = []string{
	"method", "dtype", "target", "towers", "save", "match", "exclude_modules", "layers_to_transform", "bias",
}

// put sets what a key says, of another method than LoRA among its options.
func (l *LoRA) put(key, value string) error {
	switch {
	case key == "method":
		if l.Method = value; value == "lora" {
			l.Method = ""
		}
		return nil
	case l.Method == "" || slices.Contains(ofAllMethods, key):
		return l.set(key, value)
	}
	if l.Options == nil {
		l.Options = map[string]string{}
	}
	l.Options[key] = value
	return nil
}

func (l *LoRA) set(key, value string) (err error) {
	switch key {
	case "r":
		l.Rank, err = parseWithin(value, 1, maxRank)
	case "alpha":
		l.Alpha, err = parseWithin(value, 0, 1<<30)
	case "dropout":
		l.Dropout, err = strconv.ParseFloat(value, 64)
		if err != nil || !(l.Dropout >= 0 && l.Dropout < 1) {
			return fmt.Errorf("%q is not a probability below 1", value)
		}
	case "dora":
		on, err := strconv.ParseBool(value)
		switch {
		case value == TorchtuneDoRA:
			l.DoRA = value
		case err != nil:
			return fmt.Errorf("%q is neither true nor false, nor torchtune", value)
		case on:
			l.DoRA = PeftDoRA
		}
	case "dtype":
		if value != "weights" && value != "fp32" {
			return fmt.Errorf("%q is neither weights nor fp32", value)
		}
		l.InWeightsType = value == "weights"
	case "towers":
		with, wrong := strconv.ParseBool(value)
		if wrong != nil {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		l.NoTowers = !with
	case "match":
		if _, err = regexp.Compile(value); err != nil || value == "" {
			return fmt.Errorf("%q is no regular expression that vprof reads, which has no look-ahead", value)
		}
		l.Match = value
	default:
		return l.setList(key, value)
	}
	return err
}

// setList sets what a key says that has parts joined by "+", or words.
func (l *LoRA) setList(key, value string) (err error) {
	switch key {
	case "target":
		l.Targets = nil
		if value == allLinear {
			return nil
		}
		l.Targets, err = namesIn(value, allLinear+", or names like q_proj+v_proj")
	case "parameters":
		l.Parameters, err = namesIn(value, "names like experts.gate_up_proj+experts.down_proj")
	case "save":
		l.Save, err = namesIn(value, "names like embed_tokens+lm_head")
	case "exclude_modules":
		l.Excluded, err = namesIn(value, "names like gate_proj+up_proj")
	case "layers_to_transform":
		l.Blocks, err = numbersIn(value)
	case "trainable_token_indices":
		l.Tokens, err = numbersIn(value)
	case "rank_pattern":
		l.Patterns, err = patternsIn(value)
	case "bias":
		return l.setBias(value)
	case "lora_bias":
		if l.Biased, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("%q is neither true nor false", value)
		}
	default:
		return fmt.Errorf("there is no such key; %s", keysOfLoRA)
	}
	return err
}

// setBias takes lora_only, boft_only and the like for one.
func (l *LoRA) setBias(value string) error {
	switch {
	case value == "none":
		l.Bias = ""
	case value == AllBiases:
		l.Bias = AllBiases
	case strings.HasSuffix(value, "_only"):
		l.Bias = AdaptedBiases
	default:
		return fmt.Errorf("%q is none of none, all and lora_only", value)
	}
	return nil
}

// namesIn are names joined by "+", none of them empty; usual says what they are.
func namesIn(text, usual string) ([]string, error) {
	names := strings.Split(text, "+")
	if slices.Contains(names, "") {
		return nil, fmt.Errorf("%q has an empty name; use %s", text, usual)
	}
	return names, nil
}

// numbersIn are whole numbers joined by "+".
func numbersIn(text string) (numbers []int64, err error) {
	for part := range strings.SplitSeq(text, "+") {
		n, err := parseWithin(part, 0, 1<<31)
		if err != nil {
			return nil, fmt.Errorf("%w; several are joined by +, as in 3+4", err)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// patternsIn reads ranks like "down_proj:64+k_proj:16".
func patternsIn(text string) (patterns []RankPattern, err error) {
	for part := range strings.SplitSeq(text, "+") {
		i := strings.LastIndexByte(part, ':')
		if i < 1 {
			return nil, fmt.Errorf("%q is not a layer's name and a rank, as in down_proj:64", part)
		}
		rank, err := parseWithin(part[i+1:], 1, maxRank)
		if err != nil {
			return nil, err
		}
		if _, err := regexp.Compile(part[:i]); err != nil {
			return nil, fmt.Errorf("%q is no regular expression that vprof reads, which has no look-ahead", part[:i])
		}
		patterns = append(patterns, RankPattern{part[:i], rank})
	}
	return patterns, nil
}

func parseWithin(value string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", value, low, high)
	}
	return n, nil
}

// String returns what [ParseLoRA] reads; empty for nil.
func (l *LoRA) String() string {
	if l == nil {
		return ""
	}
	target := "target=" + allLinear
	switch {
	case l.Match != "":
		target = "match=" + l.Match
	case len(l.Targets) > 0:
		target = "target=" + strings.Join(l.Targets, "+")
	case len(l.Parameters) > 0:
		target = ""
	}
	var fields []string
	add := func(given bool, field string) {
		if given {
			fields = append(fields, field)
		}
	}
	if l.Method != "" {
		add(true, "method="+l.Method)
		for _, key := range slices.Sorted(maps.Keys(l.Options)) {
			add(true, key+"="+l.Options[key])
		}
	} else {
		add(true, fmt.Sprintf("r=%d,alpha=%d", l.Rank, l.Alpha))
	}
	add(l.Dropout > 0, fmt.Sprintf("dropout=%g", l.Dropout))
	add(l.InWeightsType, "dtype=weights")
	add(l.DoRA != "", "dora="+l.DoRA)
	add(l.NoTowers, "towers=false")
	add(len(l.Excluded) > 0, "exclude_modules="+strings.Join(l.Excluded, "+"))
	add(len(l.Blocks) > 0, "layers_to_transform="+joined(l.Blocks))
	add(len(l.Patterns) > 0, "rank_pattern="+joined(l.Patterns))
	add(l.Bias != "", "bias="+l.Bias)
	add(l.Biased, "lora_bias=true")
	add(len(l.Tokens) > 0, "trainable_token_indices="+joined(l.Tokens))
	add(len(l.Save) > 0, "save="+strings.Join(l.Save, "+"))
	add(len(l.Parameters) > 0, "parameters="+strings.Join(l.Parameters, "+"))
	add(target != "", target)
	return strings.Join(fields, ",")
}

// joined are values with "+" between them.
func joined[T any](values []T) string {
	texts := lists.Map(values, func(v T) string { return fmt.Sprint(v) })
	return strings.Join(texts, "+")
}

// String returns the rank as [ParseLoRA] reads it.
func (p RankPattern) String() string { return fmt.Sprintf("%s:%d", p.Expression, p.Rank) }

// Adapts returns a function that tells by the path of a layer whether it gets an adapter. All
// layers do if neither Targets nor Match nor Parameters is given, but those excluded and those of other blocks.
func (l *LoRA) Adapts() func(path string) bool {
	wanted := l.chooses()
	return func(path string) bool {
		return wanted(path) && !endsIn(path, l.Excluded) && l.inBlocks(path)
	}
}

// chooses returns what Targets and Match say.
func (l *LoRA) chooses() func(path string) bool {
	switch {
	case l.Match != "":
		return regexp.MustCompile("^(?:" + l.Match + ")$").MatchString
	case len(l.Targets) > 0:
		return func(path string) bool { return l.All() || endsIn(path, l.Targets) }
	default:
		return func(string) bool { return len(l.Parameters) == 0 }
	}
}

// Names tells whether a layer is chosen by a name or an expression, and not as one of all linear layers.
func (l *LoRA) Names(path string) bool {
	return (l.Match != "" || len(l.Targets) > 0) && !l.All() && l.Adapts()(path)
}

// endsIn tells whether a path is one of some names, or ends in one from a dot on.
func endsIn(path string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return path == name || strings.HasSuffix(path, "."+name)
	})
}

// block is where a path has the number of its block, as check_target_module_exists looks for it.
var block = regexp.MustCompile(`^.*?\.[^.]*\.(\d+)\.`)

// inBlocks tells whether a layer is in one of the blocks, of which a regular expression says nothing more.
func (l *LoRA) inBlocks(path string) bool {
	if len(l.Blocks) == 0 || l.Match != "" {
		return true
	}
	found := block.FindStringSubmatch(path)
	if found == nil {
		return false
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	return err == nil && slices.Contains(l.Blocks, n)
}

// RankAt returns the rank of the adapter of a layer.
func (l *LoRA) RankAt(path string) int64 {
	for _, p := range l.Patterns {
		if regexp.MustCompile(`^(.*\.)?(` + p.Expression + ")$").MatchString(path) {
			return p.Rank
		}
	}
	return l.Rank
}

// RankOf returns the rank of an adapter of a parameter, by the parameter's own name.
func (l *LoRA) RankOf(own string) int64 {
	if r, ok := l.Ranks[own]; ok {
		return r
	}
	return l.Rank
}

// All tells whether all linear layers get adapters.
func (l *LoRA) All() bool {
	return l.Match == "" && (len(l.Targets) == 0 && len(l.Parameters) == 0 || slices.Contains(l.Targets, allLinear) ||
		l.Listed())
}

// Listed tells whether all linear layers get adapters, and no other parameter, see [LinearLayers].
func (l *LoRA) Listed() bool { return slices.Contains(l.Targets, LinearLayers) }

// Wanted returns the beginning of an error where no layer gets an adapter: which layers were
// wanted.
func (l *LoRA) Wanted() string {
	if l.Match != "" {
		return "no linear layer's path is matched by " + l.Match
	}
	if l.All() {
		return "no linear layer takes adapters, which all-linear puts beside all but the output layer"
	}
	return "no linear layer is called " + strings.Join(l.Targets, " or ")
}

// MarshalText implements [encoding.TextMarshaler].
func (l LoRA) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *LoRA) UnmarshalText(text []byte) (err error) {
	*l, err = ParseLoRA(string(text))
	return err
}
