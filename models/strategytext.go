package models

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	PP: {
		"pp", "schedule", "micro", "stages", "split", "tp", "sequence", "loss", "reshard", "mp", "reduce", "replicate",
		"wrap", "cp", "cp_by", "ep", "ep_by", "rank",
	},
	TP: {
		"tp", "tp_by", "sequence", "loss", "col", "row", "reshard", "mp", "reduce", "replicate", "wrap", "init",
		"no_sync", "cp", "cp_by", "rank",
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
	"ep": "take it with fsdp2, pp or ddp",
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
		if err := s.set(key, value); err != nil {
			return Strategy{}, fmt.Errorf("%s: %w", key, err)
		}
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

// set sets an option, which is one of the strategy's keys.
func (s *Strategy) set(key, value string) (err error) {
	switch key {
	case "rank":
		var n int64
		n, err = parseWithin(value, 0, mostRanks)
		s.Rank = &n
	case "bucket_cap_mb":
		s.BucketCap, err = parseWithin(value, 1, mostBucketMiB)
	case "replicate":
		if s.Replicate, err = parseWithin(value, 1, mostRanks); s.Replicate == 1 {
			s.Replicate = 0
		}
	case "bucket_view", "static_graph", "find_unused", "sequence", "loss":
		on := map[string]*bool{
			"bucket_view": &s.BucketView, "static_graph": &s.StaticGraph, "find_unused": &s.FindUnused,
			"sequence": &s.Sequence, "loss": &s.ParallelLoss,
		}[key]
		*on, err = parseTruth(value)
	case "no_sync":
		var on bool
		on, err = parseTruth(value)
		s.EachSync = !on
	case "reshard":
		s.Reshard, err = parseReshard(value)
		if s.Reshard == s.defaultReshard() {
			s.Reshard = ""
		}
	case "mp":
		s.MP, err = oneOf(value, "bf16", "fp16")
	case "reduce":
		s.Reduce, err = oneOf(value, "fp32", "bf16", "fp16")
	case "schedule", "micro", "stages", "split":
		return s.setPipeline(key, value)
	case "wrap":
		s.Wrap, err = parseWraps(value)
	case "pp", "tp", "tp_by", "cp", "cp_by", "ep", "ep_by":
		return s.setShared(key, value)
	case "col":
		s.Col, err = parseNames(value)
	case "row":
		s.Row, err = parseNames(value)
	case "engine":
		s.Engine, err = oneOf(value, "deepspeed")
	case "init":
		if value, err = oneOf(value, "meta", string(InitHost), string(InitDevice), string(InitRank0)); value != "meta" {
			s.Init = Init(value)
		}
	case "overlap", "contiguous", "linear":
		return s.setZeRO(key, value)
	case "offload":
		return s.setOffload(value)
	default:
		return s.setSize(key, value)
	}
	return err
}

// setZeRO sets how DeepSpeed reduces gradients and multiplies with gathered weights.
func (s *Strategy) setZeRO(key, value string) (err error) {
	if key == "linear" {
		_, err = oneOf(value, "torch")
		s.TorchLinear = true
		return err
	}
	on, err := parseTruth(value)
	if key == "overlap" {
		s.Overlap, s.Serial = on && s.Name != ZeRO3, !on && s.Name == ZeRO3
	} else {
		s.Scattered = !on
	}
	return err
}

// setPipeline sets how stages are cut and in which order they run.
func (s *Strategy) setPipeline(key, value string) (err error) {
	switch key {
	case "schedule":
		if s.Schedule, err = oneOf(value, "1f1b", "gpipe", Interleaved); s.Schedule == "1f1b" {
			s.Schedule = ""
		}
	case "micro":
		s.Micro, err = parseWithin(value, 1, mostAccumulated)
	case "stages":
		s.Stages, err = parseWithin(value, 2, mostStages)
	case "split":
		s.Split, err = parseNames(value)
	}
	return err
}

// setShared sets how ranks share the model, layers, sequences and experts.
func (s *Strategy) setShared(key, value string) (err error) {
	if n := map[string]*int64{"pp": &s.PP, "tp": &s.TP, "cp": &s.CP, "ep": &s.EP}[key]; n != nil {
		*n, err = parseWithin(value, 2, mostRanks)
		return err
	}
	to, ways := &s.CPBy, ContextWays()
	switch key {
	case "tp_by":
		to, ways = &s.TPBy, TensorWays()
	case "ep_by":
		to, ways = &s.EPBy, ExpertWays()
	}
	if *to, err = oneOf(value, ways...); *to == ways[0] {
		*to = ""
	}
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

// setSize sets a size of ZeRO.
func (s *Strategy) setSize(key, value string) (err error) {
	size := s.sizes()[key]
	if value == "auto" && (key == "bucket" || key == "prefetch" || key == "persist") {
		*size = AutoSize
		return nil
	}
	if *size, err = parseWithin(value, 0, 1<<50); key == "bucket" && *size == 0 && err == nil {
		return fmt.Errorf("%q is not a size; DeepSpeed's buckets have at least one element", value)
	}
	*size = max(1, *size) // none at all is as good as one
	return err
}

// sizes are those of ZeRO by the names of their options.
func (s *Strategy) sizes() map[string]*int64 {
	return map[string]*int64{
		"bucket": &s.Bucket, "prefetch": &s.Prefetch, "persist": &s.Persist, "reuse": &s.Reuse,
		"live": &s.Live, "part": &s.Part,
	}
}

// defaultReshard is the value of reshard that a strategy has unless told: that of its
// records, which is PyTorch's own under tensor parallelism.
func (s *Strategy) defaultReshard() string {
	if s.Name == TP || s.Name == PP {
		return "auto"
	}
	return "true"
}

// Resharding is the value of reshard.
func (s *Strategy) Resharding() string {
	if s.Reshard == "" {
		return s.defaultReshard()
	}
	return s.Reshard
}

// parseNames reads names or patterns joined by "+".
func parseNames(value string) ([]string, error) {
	names := strings.Split(value, "+")
	if slices.Contains(names, "") {
		return nil, fmt.Errorf("%q has an empty pattern", value)
	}
	return names, nil
}

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

// String is what [ParseStrategy] reads; empty for nil. Options that have PyTorch's
// own values are left out.
func (s *Strategy) String() string {
	if s == nil {
		return ""
	}
	var fields []string
	add := func(key, value string, differs bool) {
		if differs {
			fields = append(fields, key+"="+value)
		}
	}
	add("bucket_view", "true", s.BucketView)
	add("bucket_cap_mb", strconv.FormatInt(s.BucketCap, 10), s.BucketCap > 0)
	add("static_graph", "true", s.StaticGraph)
	add("find_unused", "true", s.FindUnused)
	add("reshard", s.Reshard, s.Reshard != "")
	add("mp", s.MP, s.MP != "")
	add("reduce", s.Reduce, s.Reduce != "")
	add("replicate", strconv.FormatInt(s.Replicate, 10), s.Replicate > 1)
	add("wrap", strings.Join(s.Wrap, "+"), len(s.Wrap) > 0)
	add("pp", strconv.FormatInt(s.PP, 10), s.PP > 0)
	add("tp", strconv.FormatInt(s.TP, 10), s.TP > 0)
	add("tp_by", s.TPBy, s.TPBy != "")
	add("sequence", "true", s.Sequence)
	add("loss", "true", s.ParallelLoss)
	add("col", strings.Join(s.Col, "+"), len(s.Col) > 0)
	add("row", strings.Join(s.Row, "+"), len(s.Row) > 0)
	add("cp", strconv.FormatInt(s.CP, 10), s.CP > 0)
	add("cp_by", s.CPBy, s.CPBy != "")
	add("ep", strconv.FormatInt(s.EP, 10), s.EP > 0)
	add("ep_by", s.EPBy, s.EPBy != "")
	add("schedule", s.Schedule, s.Schedule != "")
	add("micro", strconv.FormatInt(s.Micro, 10), s.Micro > 0)
	add("stages", strconv.FormatInt(s.Stages, 10), s.Stages > 0)
	add("split", strings.Join(s.Split, "+"), len(s.Split) > 0)
	add("no_sync", "false", s.EachSync)
	add("engine", s.Engine, s.Engine != "")
	sizes := s.sizes()
	for _, key := range strategyKeys[s.Name] {
		if n := sizes[key]; n != nil && *n != 0 {
			text := strconv.FormatInt(*n, 10)
			if *n == AutoSize {
				text = "auto"
			}
			add(key, text, true)
		}
	}
	add("overlap", strconv.FormatBool(s.Overlap), s.Overlap || s.Serial)
	add("contiguous", "false", s.Scattered)
	add("linear", "torch", s.TorchLinear)
	add("init", string(s.Init), s.Init != "")
	add("offload", s.Offload, s.Offload != "")
	if s.Rank != nil {
		add("rank", strconv.FormatInt(*s.Rank, 10), true)
	}
	if len(fields) == 0 {
		return s.Name
	}
	return s.Name + ":" + strings.Join(fields, ",")
}

// MarshalText implements [encoding.TextMarshaler].
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Strategy) UnmarshalText(text []byte) (err error) {
	*s, err = ParseStrategy(string(text))
	return err
}
