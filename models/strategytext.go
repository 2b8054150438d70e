package models

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/nearest"
)

// strategyKeys are the options of each strategy, in the order in which they are
// written.
var strategyKeys = map[string][]string{
	DDP: {
		"bucket_view", "bucket_cap_mb", "static_graph", "find_unused", "no_sync", "cp", "cp_by", "ep", "ep_by", "rank",
	},
	FSDP2: {
		"reshard", "mp", "reduce", "replicate", "wrap", "init", "offload", "no_sync", "cp", "cp_by", "ep", "ep_by",
		"rank",
	},
	DeviceMap: {"map", "memory", "rank"},
	PP: {
		"pp", "schedule", "micro", "stages", "split", "tp", "sequence", "loss", "reshard", "mp", "reduce", "replicate",
		"wrap", "init", "cp", "cp_by", "ep", "ep_by", "rank",
	},
	TP: {
		"tp", "tp_by", "sequence", "loss", "col", "row", "reshard", "mp", "reduce", "replicate", "wrap", "init",
		"no_sync", "cp", "cp_by", "ep", "ep_by", "rank",
	},
	ZeRO1: {
		"engine", "bucket", "overlap", "offload", "bucket_view", "bucket_cap_mb", "static_graph", "find_unused",
		"no_sync", "cp", "cp_by", "rank",
	},
	ZeRO2: {"bucket", "overlap", "offload", "cp", "cp_by", "rank"},
	ZeRO3: {
		"bucket", "prefetch", "persist", "reuse", "live", "part", "overlap", "contiguous", "linear", "offload", "cp",
		"cp_by", "rank",
	},
}

// together are the strategies that options go with which others lack, as messages say it.
var together = map[string]string{
	"cp": "take it with fsdp2, ddp, tp, pp or zero1 to zero3",
	"ep": "take it with fsdp2, pp, ddp or tp:tp_by=transformers",
	"tp": "take tp:tp=N, which is fully_shard over the groups, or pp:pp=N,tp=M",
	"pp": "take pp:pp=N, which is fully_shard over the GPUs of each stage",
}

// ParseStrategy reads a strategy like "fsdp2:mp=bf16,replicate=2". Patterns of wrap
// are joined by "+".
func ParseStrategy(text string) (Strategy, error) {
	name, options, colon := strings.Cut(text, ":")
	name = strings.ToLower(name)
	hybrid := name == hsdp
	if hybrid {
		name = FSDP2
	}
	keys, ok := strategyKeys[name]
	switch {
	case name == "fsdp":
		return Strategy{}, fmt.Errorf(
			"there is no strategy %q: PyTorch's fully_shard is %s, and %s:replicate=N has N copies of the model; "+
				"FullyShardedDataParallel is a formula of vprof fit, fsdp1", name, FSDP2, hsdp)
	case !ok:
		return Strategy{}, fmt.Errorf("there is no strategy %q%s; all: %s", name, nearest.Hint(name, Strategies(), 2),
			strings.Join(Strategies(), ", "))
	}
	s := Strategy{Name: name}
	switch {
	case hybrid && !strings.Contains(","+options, ",replicate="):
		return Strategy{}, fmt.Errorf("%s shards within groups of GPUs, and each group has a copy of the model; say "+
			"how many copies, like %s:replicate=2", hsdp, hsdp)
	case !colon:
		return s, nil
	}
	seen := map[string]bool{}
	for field := range strings.SplitSeq(options, ",") {
		key, value, given := strings.Cut(strings.TrimSpace(field), "=")
		switch {
		case !given:
			return Strategy{}, fmt.Errorf("%q is not key=value; the keys of %s are %s", field, name,
				strings.Join(keys, ", "))
		case !slices.Contains(keys, key) && together[strings.TrimSuffix(key, "_by")] != "":
			return Strategy{}, fmt.Errorf("vprof does not record %s beside %s; %s", key, name,
				together[strings.TrimSuffix(key, "_by")])
		case !slices.Contains(keys, key):
			return Strategy{}, fmt.Errorf("%s has no key %q%s; its keys are %s", name, key, nearest.Hint(key, keys, 2),
				strings.Join(keys, ", "))
		case seen[key]:
			return Strategy{}, fmt.Errorf("%s: given twice", key)
		}
		seen[key] = true
		option := slices.IndexFunc(strategyOptions, func(o strategyOption) bool { return o.key == key })
		if err := strategyOptions[option].read(&s, value); err != nil {
			return Strategy{}, fmt.Errorf("%s: %w", key, err)
		}
	}
	if s.TPBy == "" && s.Init == InitMeta { // as usual
		s.Init = ""
	}
	return s, nil
}

// hsdp is how PyTorch calls [FSDP2] with several copies of the model.
const hsdp = "hsdp"

// The largest values of options: more than anybody uses.
const (
	mostRanks     = 1 << 20
	mostBucketMiB = 1 << 20
	mostStages    = 1 << 10
)

// strategyOption is an option of strategies: how its value is read into a strategy, and how it is written; empty
// for the value that a strategy has without the option.
type strategyOption struct {
	key   string
	read  func(s *Strategy, value string) error
	write func(s *Strategy) string
}

// strategyOptions are all options, in the order in which they are written. [strategyKeys] says which strategies have
// them.
var strategyOptions = []strategyOption{
	truthOption("bucket_view", func(s *Strategy) *bool { return &s.BucketView }),
	countOption("bucket_cap_mb", 1, mostBucketMiB, func(s *Strategy) *int64 { return &s.BucketCap }),
	truthOption("static_graph", func(s *Strategy) *bool { return &s.StaticGraph }),
	truthOption("find_unused", func(s *Strategy) *bool { return &s.FindUnused }),
	{"reshard", (*Strategy).setReshard, func(s *Strategy) string { return s.Reshard }},
	wordOption("mp", "", func(s *Strategy) *string { return &s.MP }, "bf16", "fp16"),
	wordOption("reduce", "", func(s *Strategy) *string { return &s.Reduce }, "fp32", "bf16", "fp16"),
	option("replicate", parseReplicas, func(s *Strategy) *int64 { return &s.Replicate }, number),
	option("wrap", parseWraps, func(s *Strategy) *[]string { return &s.Wrap }, joinNames),
	countOption("pp", 2, mostRanks, func(s *Strategy) *int64 { return &s.PP }),
	countOption("tp", 2, mostRanks, func(s *Strategy) *int64 { return &s.TP }),
	wordOption("tp_by", TensorWays()[0], func(s *Strategy) *string { return &s.TPBy }, TensorWays()...),
	truthOption("sequence", func(s *Strategy) *bool { return &s.Sequence }),
	truthOption("loss", func(s *Strategy) *bool { return &s.ParallelLoss }),
	option("col", parseNames, func(s *Strategy) *[]string { return &s.Col }, joinNames),
	option("row", parseNames, func(s *Strategy) *[]string { return &s.Row }, joinNames),
	countOption("cp", 2, mostRanks, func(s *Strategy) *int64 { return &s.CP }),
	wordOption("cp_by", Ulysses, func(s *Strategy) *string { return &s.CPBy }, ContextWays()...),
	countOption("ep", 2, mostRanks, func(s *Strategy) *int64 { return &s.EP }),
	wordOption("ep_by", DeepEP, func(s *Strategy) *string { return &s.EPBy }, ExpertWays()...),
	wordOption("schedule", "1f1b", func(s *Strategy) *string { return &s.Schedule }, "1f1b", "gpipe", Interleaved),
	countOption("micro", 1, mostAccumulated, func(s *Strategy) *int64 { return &s.Micro }),
	countOption("stages", 2, mostStages, func(s *Strategy) *int64 { return &s.Stages }),
	option("split", parseNames, func(s *Strategy) *[]string { return &s.Split }, joinNames),
	falseOption("no_sync", func(s *Strategy) *bool { return &s.EachSync }),
	wordOption("engine", "", func(s *Strategy) *string { return &s.Engine }, "deepspeed"),
	option("bucket", parseBucket, func(s *Strategy) *int64 { return &s.Bucket }, sizeText),
	option("prefetch", parseAutoSize, func(s *Strategy) *int64 { return &s.Prefetch }, sizeText),
	option("persist", parseAutoSize, func(s *Strategy) *int64 { return &s.Persist }, sizeText),
	option("reuse", parseSize, func(s *Strategy) *int64 { return &s.Reuse }, sizeText),
	option("live", parseSize, func(s *Strategy) *int64 { return &s.Live }, sizeText),
	option("part", parseSize, func(s *Strategy) *int64 { return &s.Part }, sizeText),
	{"overlap", (*Strategy).setOverlap, (*Strategy).overlapText},
	falseOption("contiguous", func(s *Strategy) *bool { return &s.Scattered }),
	{"linear", (*Strategy).setLinear, func(s *Strategy) string { return wordIf("torch")(s.TorchLinear) }},
	wordOption("map", DeviceMapWords()[0], func(s *Strategy) *string { return &s.Map }, DeviceMapWords()...),
	option("memory", parseMemory, func(s *Strategy) *[]int64 { return &s.Memory }, memoryText),
	wordOption("init", "", func(s *Strategy) *Init { return &s.Init }, "meta", "host", "device", "rank0"),
	{"offload", (*Strategy).setOffload, func(s *Strategy) string { return s.Offload }},
	option("rank", parseRank, func(s *Strategy) **int64 { return &s.Rank }, rankText),
}

func option[T any](key string, read func(string) (T, error), at func(*Strategy) *T,
	write func(T) string,
) strategyOption {
	set := func(s *Strategy, value string) (err error) {
		*at(s), err = read(value)
		return err
	}
	return strategyOption{key, set, func(s *Strategy) string { return write(*at(s)) }}
}

// wordIf writes a word for true, and nothing for false.
func wordIf(word string) func(bool) string {
	return func(on bool) string {
		if on {
			return word
		}
		return ""
	}
}

func truthOption(key string, at func(*Strategy) *bool) strategyOption {
	return option(key, parseTruth, at, wordIf("true"))
}

// falseOption returns an option that is on by itself: the field says that it is off.
func falseOption(key string, at func(*Strategy) *bool) strategyOption {
	off := func(value string) (bool, error) {
		on, err := parseTruth(value)
		return !on, err
	}
	return option(key, off, at, wordIf("false"))
}

func countOption(key string, least, most int64, at func(*Strategy) *int64) strategyOption {
	return option(key, func(value string) (int64, error) { return parseWithin(value, least, most) }, at, number)
}

// wordOption returns one of some words; usual is the one that a strategy has without the option, empty for none of
// them.
func wordOption[T ~string](key, usual string, at func(*Strategy) *T, words ...string) strategyOption {
	read := func(value string) (T, error) {
		word, err := oneOf(value, words...)
		if word == usual {
			word = ""
		}
		return T(word), err
	}
	return option(key, read, at, func(word T) string { return string(word) })
}

// parseReplicas reads the number of replicas; one is none besides the model itself.
func parseReplicas(value string) (int64, error) {
	n, err := parseWithin(value, 1, mostRanks)
	if n == 1 {
		n = 0
	}
	return n, err
}

func parseRank(value string) (*int64, error) {
	n, err := parseWithin(value, 0, mostRanks)
	return &n, err
}

func rankText(rank *int64) string {
	if rank == nil {
		return ""
	}
	return strconv.FormatInt(*rank, 10)
}

func (s *Strategy) setReshard(value string) (err error) {
	if s.Reshard, err = parseReshard(value); s.Reshard == s.defaultReshard() {
		s.Reshard = ""
	}
	return err
}

// setOverlap sets overlap_comm, which stage 3 has by itself.
func (s *Strategy) setOverlap(value string) error {
	on, err := parseTruth(value)
	s.Overlap, s.Serial = on && s.Name != ZeRO3, !on && s.Name == ZeRO3
	return err
}

func (s *Strategy) overlapText() string {
	if s.Overlap || s.Serial {
		return strconv.FormatBool(s.Overlap)
	}
	return ""
}

func (s *Strategy) setLinear(value string) error {
	_, err := oneOf(value, "torch")
	s.TorchLinear = true
	return err
}

// The values of Offload.
const (
	OffloadOptimizer = "optimizer"
	OffloadParams    = "params"
	OffloadAll       = "all"
)

// setOffload sets what is kept in the host's memory.
func (s *Strategy) setOffload(value string) (err error) {
	if s.Name == FSDP2 {
		s.Offload, err = oneOf(value, OffloadAll)
		return err
	}
	if s.Offload, err = oneOf(value, OffloadOptimizer, OffloadParams, OffloadAll); s.Name != ZeRO3 && err == nil &&
		value != OffloadOptimizer {
		err = fmt.Errorf("only ZeRO-3 keeps weights in the host's memory; here it is optimizer")
	}
	return err
}

// parseSize reads a size of ZeRO, in elements; none at all is as good as one.
func parseSize(value string) (int64, error) {
	n, err := parseWithin(value, 0, 1<<50)
	return max(1, n), err
}

// parseAutoSize is parseSize for sizes that DeepSpeed derives itself where they are "auto".
func parseAutoSize(value string) (int64, error) {
	if value == autoSize {
		return AutoSize, nil
	}
	return parseSize(value)
}

func parseBucket(value string) (int64, error) {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil && n == 0 {
		return 0, fmt.Errorf("%q is not a size; DeepSpeed's buckets have at least one element", value)
	}
	return parseAutoSize(value)
}

const autoSize = "auto"

func sizeText(n int64) string {
	if n == AutoSize {
		return autoSize
	}
	return number(n)
}

// defaultReshard returns the value of reshard that a strategy has unless told: that of its
// records, which is PyTorch's own under tensor parallelism.
func (s *Strategy) defaultReshard() string {
	if s.Name == TP || s.Name == PP {
		return "auto"
	}
	return "true"
}

// Resharding returns the value of reshard.
func (s *Strategy) Resharding() string { return cmp.Or(s.Reshard, s.defaultReshard()) }

// parseMemory reads a size for each GPU, joined by "+".
func parseMemory(value string) (sizes []int64, err error) {
	for text := range strings.SplitSeq(value, "+") {
		n, err := bytesize.Parse(text)
		if err == nil && n < 1 {
			err = fmt.Errorf("%q is no memory of a GPU", text)
		}
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

func memoryText(sizes []int64) string {
	return joinNames(lists.Map(sizes, number))
}

// parseNames reads names or patterns joined by "+".
func parseNames(value string) ([]string, error) {
	names := strings.Split(value, "+")
	if slices.Contains(names, "") {
		return nil, fmt.Errorf("%q has an empty pattern", value)
	}
	return names, nil
}

func joinNames(names []string) string { return strings.Join(names, "+") }

func parseTruth(value string) (bool, error) {
	switch value {
	case "1":
		return true, nil
	case "0":
		return false, nil
	}
	word, err := oneOf(strings.ToLower(value), "true", "false")
	return word == "true", err
}

func oneOf(value string, words ...string) (string, error) {
	if !slices.Contains(words, value) {
		return "", fmt.Errorf("%q is none of %s", value, strings.Join(words, ", "))
	}
	return value, nil
}

// String returns what [ParseStrategy] reads; empty for nil. Options that have PyTorch's
// own values are left out.
func (s *Strategy) String() string {
	if s == nil {
		return ""
	}
	var options []string
	for _, o := range strategyOptions {
		if text := o.write(s); text != "" {
			options = append(options, o.key+"="+text)
		}
	}
	if len(options) == 0 {
		return s.Name
	}
	return s.Name + ":" + strings.Join(options, ",")
}

// MarshalText implements [encoding.TextMarshaler].
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Strategy) UnmarshalText(text []byte) (err error) {
	*s, err = ParseStrategy(string(text))
	return err
}
