package models

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
}

// The values of [LoRA.DoRA]: as peft and as torchtune compute it.
const (
	PeftDoRA      = "true"
	TorchtuneDoRA = "torchtune"
)

// allLinear is how a command line and peft name all linear layers.
const allLinear = "all-linear"

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

const keysOfLoRA = "the keys are method, r, alpha, dropout, dtype, dora, target, towers, parameters, save and match"

// ofAllMethods are the keys that mean the same for each method of peft.
var ofAllMethods = []string{"method", "dtype", "target", "towers", "save", "match"}

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
	case "target":
		l.Targets = nil
		if value == allLinear {
			return nil
		}
		if l.Targets = strings.Split(value, "+"); slices.Contains(l.Targets, "") {
			return fmt.Errorf("%q has an empty name; use %s, or names like q_proj+v_proj", value, allLinear)
		}
	case "parameters":
		if l.Parameters = strings.Split(value, "+"); slices.Contains(l.Parameters, "") {
			return fmt.Errorf("%q has an empty name; use names like experts.gate_up_proj+experts.down_proj", value)
		}
	case "save":
		if l.Save = strings.Split(value, "+"); slices.Contains(l.Save, "") {
			return fmt.Errorf("%q has an empty name; use names like embed_tokens+lm_head", value)
		}
	case "match":
		if _, err = regexp.Compile(value); err != nil || value == "" {
			return fmt.Errorf("%q is no regular expression that vprof reads, which has no look-ahead", value)
		}
		l.Match = value
	default:
		return fmt.Errorf("there is no such key; %s", keysOfLoRA)
	}
	return err
}

func parseWithin(value string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", value, low, high)
	}
	return n, nil
}

// String is what [ParseLoRA] reads; empty for nil.
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
	if len(l.Parameters) > 0 {
		target = strings.TrimSuffix("parameters="+strings.Join(l.Parameters, "+")+","+target, ",")
	}
	if len(l.Save) > 0 {
		target = "save=" + strings.Join(l.Save, "+") + "," + target
	}
	dropout := ""
	if l.Dropout > 0 {
		dropout = fmt.Sprintf("dropout=%g,", l.Dropout)
	}
	if l.InWeightsType {
		dropout += "dtype=weights,"
	}
	if l.DoRA != "" {
		dropout += "dora=" + l.DoRA + ","
	}
	if l.NoTowers {
		dropout += "towers=false,"
	}
	if l.Method != "" {
		options := ""
		for _, key := range slices.Sorted(maps.Keys(l.Options)) {
			options += key + "=" + l.Options[key] + ","
		}
		return fmt.Sprintf("method=%s,%s%s%s", l.Method, options, dropout, target)
	}
	return fmt.Sprintf("r=%d,alpha=%d,%s%s", l.Rank, l.Alpha, dropout, target)
}

// Adapts returns a function that tells by the path of a layer whether it gets an adapter. All
// layers do if neither Targets nor Match nor Parameters is given.
func (l *LoRA) Adapts() func(path string) bool {
	switch {
	case l.Match != "":
		return regexp.MustCompile("^(?:" + l.Match + ")$").MatchString
	case len(l.Targets) > 0:
		return func(path string) bool {
			return slices.ContainsFunc(l.Targets, func(t string) bool {
				return path == t || strings.HasSuffix(path, "."+t) || t == allLinear
			})
		}
	default:
		return func(string) bool { return len(l.Parameters) == 0 }
	}
}

// RankOf is the rank of an adapter of a parameter, by the parameter's own name.
func (l *LoRA) RankOf(own string) int64 {
	if r, ok := l.Ranks[own]; ok {
		return r
	}
	return l.Rank
}

// All tells whether all linear layers get adapters.
func (l *LoRA) All() bool {
	return l.Match == "" && (len(l.Targets) == 0 && len(l.Parameters) == 0 || slices.Contains(l.Targets, allLinear))
}

// Wanted is the beginning of an error where no layer gets an adapter: which layers were
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
