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
	"github.com/vprof/vprof/internal/options"
)

// LoRA describes adapters of a frozen model: low-rank ones as in peft.LoraConfig, or adapters of another peft method.
type LoRA struct {
	// Method is another peft method than LoRA, and Options are the keys that only its configuration has. Rank, Alpha
	// and Dropout apply to LoRA alone.
	Method  string
	Options map[string]string
	// Rank is r. Alpha is lora_alpha, which does not affect memory.
	Rank, Alpha int64
	// Dropout is the dropout probability of the adapters' inputs.
	Dropout float64
	// Targets are names of layers, or suffixes of their paths (target_modules). Empty means all linear layers except
	// a language model's output layer.
	Targets []string
	// Match is a regular expression that whole paths of layers match, used in place of Targets (target_modules as one
	// string).
	Match string
	// Parameters are names, or suffixes of names, of single parameters that get adapters (target_parameters). If
	// Targets and Match are empty, only these parameters get adapters.
	Parameters []string
	// Ranks holds the ranks of parameters whose rank differs from Rank, by their names (rank_pattern). Its values are
	// not part of the option's text.
	Ranks map[string]int64
	// DoRA selects weight-decomposed adapters, which train the magnitude of each row (use_dora): [PeftDoRA],
	// [TorchtuneDoRA] or empty.
	DoRA string
	// InWeightsType stores adapters in the weights' data type, as torchtune does, and peft with
	// autocast_adapter_dtype=False. Otherwise adapters are in fp32.
	InWeightsType bool
	// NoTowers gives no adapters to image and audio encoders and their projections, which a text-only step does not
	// run.
	NoTowers bool
	// Save are names of modules of which a copy is trained as a whole (modules_to_save).
	Save []string
	// Excluded are names of layers, or suffixes of their paths, that get no adapter (exclude_modules).
	Excluded []string
	// Blocks are the indices of the blocks whose layers get adapters (layers_to_transform); empty means all blocks.
	Blocks []int64
	// Patterns are ranks of layers that differ from Rank (rank_pattern). The first matching pattern applies.
	Patterns []RankPattern
	// Bias names the biases that are trained: [AllBiases], [AdaptedBiases], or empty for none.
	Bias string
	// Biased gives the second matrix of each adapter a bias (lora_bias).
	Biased bool
	// Tokens are rows of the input embedding that are trained as well (trainable_token_indices).
	Tokens []int64
}

// RankPattern is the rank of layers whose path, or a suffix of it after a dot, matches a regular expression.
type RankPattern struct {
	Expression string
	Rank       int64
}

// The values of [LoRA.Bias].
const (
	AllBiases     = "all"
	AdaptedBiases = "lora_only"
)

// The values of [LoRA.DoRA]: DoRA as peft computes it, and as torchtune does.
const (
	PeftDoRA      = "true"
	TorchtuneDoRA = "torchtune"
)

// allLinear is peft's name for all linear layers; in mixtures it includes expert weights held as parameters.
// LinearLayers excludes those weights, as trainers that list the names of linear layers do.
const (
	allLinear    = "all-linear"
	LinearLayers = "linear-layers"
)

// maxRank is the largest accepted rank, beyond the width of any layer.
const maxRank = 1 << 16

// loraNames maps keys of peft's LoraConfig and of trainers to the options of --lora.
var loraNames = map[string]string{
	"rank": "r", "lora_r": "r", "lora_rank": "r", "lora_alpha": "alpha", "lora_dropout": "dropout", "use_dora": "dora",
	"target_modules": "target", "modules_to_save": "save", "target_parameters": "parameters",
}

// ParseLoRA parses options like "r=8,alpha=16,dropout=0.05,target=all-linear". Elements of lists are joined by "+",
// or follow each other: "target=q_proj,v_proj". A number alone is the rank. Keys of peft's LoraConfig work, too. A
// regular expression, "match=REGEX", must be the last option, and another peft method, "method=NAME", the first.
// Omitted options have peft's defaults: rank 8, alpha 8, no dropout, all linear layers.
func ParseLoRA(text string) (LoRA, error) {
	l := LoRA{Rank: 8, Alpha: 8}
	if _, err := strconv.Atoi(text); err == nil {
		text = "r=" + text
	}
	if !strings.HasPrefix(text, "method=") { // another method's configuration has these keys itself
		for name, key := range loraNames {
			text = strings.ReplaceAll(","+text, ","+name+"=", ","+key+"=")[1:]
		}
	}
	text, match, matched := strings.Cut(text, "match=")
	if matched {
		if err := l.Set(options.Pair{Key: "match", Value: match}); err != nil {
			return LoRA{}, err
		}
		if text = strings.TrimSuffix(text, ","); text == "" {
			return l, nil
		}
	}
	if strings.Index(text, "method=") > 0 {
		return LoRA{}, errors.New("method must come first, before its options; write it right after the rank")
	}
	pairs, err := loraOptions.Pairs("", text)
	if err != nil {
		return LoRA{}, err
	}
	all := false
	for _, p := range pairs {
		if err := l.Set(p); err != nil {
			return LoRA{}, err
		}
		if matched && p.Key == "target" {
			return LoRA{}, errors.New("match and target both choose the adapted layers; give only one of them")
		}
		all = all || p == options.Pair{Key: "target", Value: allLinear}
	}
	if all && len(l.Parameters) > 0 {
		l.Targets = []string{allLinear}
	}
	return l, nil
}

// Set sets one option. An option that only another peft method has is stored as a text.
func (l *LoRA) Set(p options.Pair) error {
	if l.Method == "" || loraOptions.Has(l.Method, p.Key) {
		return loraOptions.Set(l, l.Method, p)
	}
	if l.Options == nil {
		l.Options = map[string]string{}
	}
	l.Options[p.Key] = p.Value
	return nil
}

// loraOptions holds the options in the order in which they are written. Options with an empty method apply to LoRA
// alone.
var loraOptions = options.Table[LoRA]{
	{Key: "method", Read: (*LoRA).setMethod, Write: (*LoRA).methodText},
	loraNumber("r", 1, maxRank, func(l *LoRA) *int64 { return &l.Rank }),
	loraNumber("alpha", 0, 1<<30, func(l *LoRA) *int64 { return &l.Alpha }),
	options.New("dropout", parseDropout, func(l *LoRA) *float64 { return &l.Dropout }, dropoutText).For(""),
	options.ChoiceOption("dtype", "fp32", "weights", func(l *LoRA) *bool { return &l.InWeightsType }),
	options.New("dora", parseDoRA, func(l *LoRA) *string { return &l.DoRA }, identity).For(""),
	options.OffOption("towers", func(l *LoRA) *bool { return &l.NoTowers }),
	options.NamesOption("exclude_modules", func(l *LoRA) *[]string { return &l.Excluded }),
	options.New("layers_to_transform", parseNumbers, func(l *LoRA) *[]int64 { return &l.Blocks }, joinPlus),
	options.New("rank_pattern", parsePatterns, func(l *LoRA) *[]RankPattern { return &l.Patterns }, joinPlus).For(""),
	options.New("bias", parseBias, func(l *LoRA) *string { return &l.Bias }, identity),
	options.BoolOption("lora_bias", func(l *LoRA) *bool { return &l.Biased }).For(""),
	options.New("trainable_token_indices", parseNumbers, func(l *LoRA) *[]int64 { return &l.Tokens }, joinPlus).For(""),
	options.NamesOption("save", func(l *LoRA) *[]string { return &l.Save }),
	options.NamesOption("parameters", func(l *LoRA) *[]string { return &l.Parameters }).For(""),
	{Key: "target", IsList: true, Read: (*LoRA).setTarget, Write: (*LoRA).targetText},
	options.New("match", parseExpression, func(l *LoRA) *string { return &l.Match }, identity),
}

// loraNumber returns the option of a number that is always written for LoRA and never for other methods.
func loraNumber(key string, least, most int64, at func(*LoRA) *int64) options.Option[LoRA] {
	o := options.NewCount(key, least, most, at).For("")
	o.Write = func(l *LoRA) string {
		if l.Method != "" {
			return ""
		}
		return strconv.FormatInt(*at(l), 10)
	}
	return o
}

func (l *LoRA) setMethod(name string) error {
	if l.Method = name; name == "lora" {
		l.Method = ""
	}
	return nil
}

// methodText returns the method's name followed by its own options.
func (l *LoRA) methodText() string {
	text := l.Method
	for _, key := range slices.Sorted(maps.Keys(l.Options)) {
		text += "," + key + "=" + l.Options[key]
	}
	return text
}

func (l *LoRA) setTarget(text string) (err error) {
	if l.Targets = nil; text != allLinear {
		l.Targets, err = options.ParseNames(text)
	}
	return err
}

func (l *LoRA) targetText() string {
	switch {
	case l.Match != "":
		return ""
	case len(l.Targets) == 0 && len(l.Parameters) == 0:
		return allLinear
	}
	return options.JoinNames(l.Targets)
}

func parseDropout(text string) (float64, error) {
	p, err := strconv.ParseFloat(text, 64)
	if err != nil || !(p >= 0 && p < 1) {
		return 0, fmt.Errorf("invalid dropout %q: need a probability from 0 to below 1", text)
	}
	return p, nil
}

func dropoutText(p float64) string {
	if p == 0 {
		return ""
	}
	return strconv.FormatFloat(p, 'g', -1, 64)
}

func parseDoRA(text string) (string, error) {
	on, err := options.ParseBool(text)
	switch {
	case text == TorchtuneDoRA:
		return text, nil
	case err != nil:
		return "", fmt.Errorf("%w, nor %s", err, TorchtuneDoRA)
	case !on:
		return "", nil
	}
	return PeftDoRA, nil
}

func parseExpression(text string) (string, error) {
	if _, err := regexp.Compile(text); err != nil || text == "" {
		return "", fmt.Errorf("%q is not a regular expression that Go can read (RE2 syntax, without look-ahead)", text)
	}
	return text, nil
}

// parseBias parses which biases are trained. lora_only, boft_only and the like mean the biases of layers with adapters.
func parseBias(text string) (string, error) {
	switch {
	case text == "none":
		return "", nil
	case text == AllBiases:
		return AllBiases, nil
	case strings.HasSuffix(text, "_only"):
		return AdaptedBiases, nil
	}
	return "", fmt.Errorf("there is no bias %q; use none, all or lora_only", text)
}

func parseNumbers(text string) (numbers []int64, err error) {
	for part := range strings.SplitSeq(text, "+") {
		n, err := options.ParseWithin(part, 0, 1<<31)
		if err != nil {
			return nil, fmt.Errorf("%w; join several by +, like 3+4", err)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// parsePatterns parses ranks like "down_proj:64+k_proj:16".
func parsePatterns(text string) (patterns []RankPattern, err error) {
	for part := range strings.SplitSeq(text, "+") {
		i := strings.LastIndexByte(part, ':')
		if i < 1 {
			return nil, fmt.Errorf("invalid rank %q of a layer: need its name and rank, like down_proj:64", part)
		}
		rank, err := options.ParseWithin(part[i+1:], 1, maxRank)
		if err != nil {
			return nil, err
		}
		if _, err := parseExpression(part[:i]); err != nil {
			return nil, err
		}
		patterns = append(patterns, RankPattern{part[:i], rank})
	}
	return patterns, nil
}

// String returns the text that [ParseLoRA] reads; empty for nil.
func (l *LoRA) String() string {
	if l == nil {
		return ""
	}
	return loraOptions.Format(l)
}

func identity(text string) string { return text }

func joinPlus[T any](values []T) string {
	texts := lists.Map(values, func(v T) string { return fmt.Sprint(v) })
	return strings.Join(texts, "+")
}

func (p RankPattern) String() string { return fmt.Sprintf("%s:%d", p.Expression, p.Rank) }

// AdaptsPath returns a function that reports whether the layer with a path gets an adapter. If Targets, Match and
// Parameters are all empty, every layer gets one, except excluded layers and layers of other blocks.
func (l *LoRA) AdaptsPath() func(path string) bool {
	wanted := l.matcher()
	return func(path string) bool {
		return wanted(path) && !matchesPathSuffix(path, l.Excluded) && l.inBlocks(path)
	}
}

// matcher returns a function that reports whether Targets or Match select the layer with a path.
func (l *LoRA) matcher() func(path string) bool {
	switch {
	case l.Match != "":
		return regexp.MustCompile("^(?:" + l.Match + ")$").MatchString
	case len(l.Targets) > 0:
		return func(path string) bool { return l.TargetsAllLinear() || matchesPathSuffix(path, l.Targets) }
	default:
		return func(string) bool { return len(l.Parameters) == 0 }
	}
}

// IsTarget reports whether a layer is selected by its name or by the expression, and not as one of all linear layers.
func (l *LoRA) IsTarget(path string) bool {
	return (l.Match != "" || len(l.Targets) > 0) && !l.TargetsAllLinear() && l.AdaptsPath()(path)
}

// matchesPathSuffix reports whether a path equals one of the names, or ends in a dot and one of them.
func matchesPathSuffix(path string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return path == name || strings.HasSuffix(path, "."+name)
	})
}

// blockNumber matches the index of a block in a path, like the pattern of peft's check_target_module_exists.
var blockNumber = regexp.MustCompile(`^.*?\.[^.]*\.(\d+)\.`)

// inBlocks reports whether a layer belongs to one of Blocks. With Match, it always does.
func (l *LoRA) inBlocks(path string) bool {
	if len(l.Blocks) == 0 || l.Match != "" {
		return true
	}
	found := blockNumber.FindStringSubmatch(path)
	if found == nil {
		return false
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	return err == nil && slices.Contains(l.Blocks, n)
}

// RankOfLayer returns the rank of the adapter of the layer with a path.
func (l *LoRA) RankOfLayer(path string) int64 {
	for _, p := range l.Patterns {
		if regexp.MustCompile(`^(.*\.)?(` + p.Expression + ")$").MatchString(path) {
			return p.Rank
		}
	}
	return l.Rank
}

// RankOfParameter returns the rank of a parameter's adapter, by the parameter's name.
func (l *LoRA) RankOfParameter(own string) int64 {
	if r, ok := l.Ranks[own]; ok {
		return r
	}
	return l.Rank
}

// TargetsAllLinear reports whether all linear layers get adapters.
func (l *LoRA) TargetsAllLinear() bool {
	return l.Match == "" && (len(l.Targets) == 0 && len(l.Parameters) == 0 || slices.Contains(l.Targets, allLinear) ||
		l.ListsTargets())
}

// ListsTargets reports whether exactly all linear layers get adapters, see [LinearLayers].
func (l *LoRA) ListsTargets() bool { return slices.Contains(l.Targets, LinearLayers) }

// NoTargetError returns the beginning of an error for adapters that match no layer.
func (l *LoRA) NoTargetError() string {
	if l.Match != "" {
		return "no linear layer's path is matched by " + l.Match
	}
	if l.TargetsAllLinear() {
		return "no linear layer takes adapters, which all-linear puts beside all but the output layer"
	}
	return "no linear layer is called " + strings.Join(l.Targets, " or ")
}

// MarshalText returns the text of String, for [encoding.TextMarshaler].
func (l LoRA) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText parses the text that MarshalText returns.
func (l *LoRA) UnmarshalText(text []byte) error { return unmarshalText(l, text, ParseLoRA) }
