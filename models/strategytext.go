package models

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/options"
)

// ParseStrategy parses a strategy like "fsdp2:mp=bf16,replicate=2". Patterns of wrap are joined by "+".
func ParseStrategy(text string) (s Strategy, err error) {
	name, list, more := strings.Cut(text, ":")
	switch name = strings.ToLower(name); {
	case slices.Contains([]string{"fsdp", "full_shard", "deepspeed"}, name):
		return s, fmt.Errorf("there is no strategy %q; use %s for PyTorch's fully_shard, %s:replicate=N for N copies "+
			"of the model, %s for FullyShardedDataParallel, or %s to %s for DeepSpeed", name, FSDP2, hsdp, FSDP1,
			ZeRO1, ZeRO3)
	case name == hsdp && !strings.Contains(","+list, ",replicate="):
		return s, fmt.Errorf("%s shards within groups of GPUs, and each group has a copy of the model; add the "+
			"number of copies, like %s:replicate=2", hsdp, hsdp)
	case name == hsdp:
		name = FSDP2
	}
	if more {
		name += ":" + list
	}
	if err = strategyOptions.ReadNamed(&s, &s.Name, "strategy", name, Strategies()); err != nil {
		return Strategy{}, err
	}
	if s.TPPlan == "" && s.Init == InitMeta { // the default
		s.Init = ""
	}
	return s, nil
}

// hsdp is PyTorch's name of [FSDP2] with replicas.
const hsdp = "hsdp"

// The largest accepted values of options.
const (
	maxRanks     = 1 << 20
	maxBucketMiB = 1 << 20
	maxStages    = 1 << 10
)

// The strategies that have the options of DDP, of shards, of gradient synchronization and so on.
var (
	ddpOptionStrategies = []string{DDP, ZeRO1}
	shardStrategies     = []string{FSDP1, FSDP2, TP, PP}
	syncStrategies      = []string{DDP, FSDP1, FSDP2, TP, ZeRO1}
	contextStrategies   = []string{DDP, FSDP2, TP, PP, ZeRO1, ZeRO2, ZeRO3}
	expertStrategies    = []string{DDP, FSDP2, TP, PP}
	tensorStrategies    = []string{TP, PP}
	zeroStrategies      = []string{ZeRO1, ZeRO2, ZeRO3}
)

// strategyOptions holds all options of a strategy, in the order in which they are written.
var strategyOptions = options.Table[Strategy]{
	options.BoolOption("bucket_view", func(s *Strategy) *bool { return &s.BucketView }).For(ddpOptionStrategies...),
	options.NewCount("bucket_cap_mb", 1, maxBucketMiB,
		func(s *Strategy) *int64 { return &s.BucketCap }).For(ddpOptionStrategies...),
	options.BoolOption("static_graph", func(s *Strategy) *bool { return &s.StaticGraph }).For(ddpOptionStrategies...),
	options.BoolOption("find_unused", func(s *Strategy) *bool { return &s.FindUnused }).For(ddpOptionStrategies...),
	{
		Key: "reshard", Names: shardStrategies, Read: (*Strategy).setReshard,
		Write: func(s *Strategy) string { return s.Reshard },
	},
	options.Enum("mp", "", func(s *Strategy) *string { return &s.MP }, "bf16", "fp16").For(shardStrategies...),
	options.Enum("reduce", "", func(s *Strategy) *string { return &s.Reduce }, "fp32", "bf16",
		"fp16").For(shardStrategies...),
	options.New("replicate", parseReplicas, func(s *Strategy) *int64 { return &s.Replicate },
		options.FormatNumber[int64]).For(shardStrategies...),
	options.New("wrap", parseWraps, func(s *Strategy) *[]string { return &s.Wrap },
		options.JoinNames).For(shardStrategies...),
	options.NewCount("pp", 2, maxRanks, func(s *Strategy) *int64 { return &s.PP }).For(PP),
	options.NewCount("tp", 2, maxRanks, func(s *Strategy) *int64 { return &s.TP }).For(tensorStrategies...),
	options.Enum("tp_by", TensorParallelPlans()[0], func(s *Strategy) *string { return &s.TPPlan },
		TensorParallelPlans()...).For(TP),
	options.BoolOption("sequence", func(s *Strategy) *bool { return &s.Sequence }).For(tensorStrategies...),
	options.BoolOption("loss", func(s *Strategy) *bool { return &s.ParallelLoss }).For(tensorStrategies...),
	options.NamesOption("col", func(s *Strategy) *[]string { return &s.ColumnWise }).For(TP),
	options.NamesOption("row", func(s *Strategy) *[]string { return &s.RowWise }).For(TP),
	options.NewCount("cp", 2, maxRanks, func(s *Strategy) *int64 { return &s.CP }).For(contextStrategies...),
	options.Enum("cp_by", Ulysses, func(s *Strategy) *string { return &s.CPStyle },
		Ulysses, Llama3, Ring, TorchRing).For(contextStrategies...),
	options.NewCount("ep", 2, maxRanks, func(s *Strategy) *int64 { return &s.EP }).For(expertStrategies...),
	options.Enum("ep_by", DeepEP, func(s *Strategy) *string { return &s.EPStyle }, DeepEP,
		TorchExperts).For(expertStrategies...),
	options.Enum("schedule", "1f1b", func(s *Strategy) *string { return &s.Schedule }, "1f1b", "gpipe", Interleaved).
		For(PP),
	options.NewCount("micro", 1, maxAccumulated, func(s *Strategy) *int64 { return &s.Micro }).For(PP),
	options.NewCount("stages", 2, maxStages, func(s *Strategy) *int64 { return &s.Stages }).For(PP),
	options.NamesOption("split", func(s *Strategy) *[]string { return &s.Split }).For(PP),
	options.OffOption("no_sync", func(s *Strategy) *bool { return &s.EachSync }).For(syncStrategies...),
	options.Enum("engine", "", func(s *Strategy) *string { return &s.Engine }, "deepspeed").For(ZeRO1),
	options.New("bucket", parseBucket, func(s *Strategy) *int64 { return &s.Bucket }, sizeText).For(zeroStrategies...),
	options.Enum("prefetch", "pre", func(s *Strategy) *string { return &s.BackwardPrefetch }, "pre", "post", "none").
		For(FSDP1),
	options.New("prefetch", parseAutoSize, func(s *Strategy) *int64 { return &s.Prefetch }, sizeText).For(ZeRO3),
	options.New("persist", parseAutoSize, func(s *Strategy) *int64 { return &s.Persist }, sizeText).For(ZeRO3),
	options.New("reuse", parseSize, func(s *Strategy) *int64 { return &s.Reuse }, sizeText).For(ZeRO3),
	options.New("live", parseSize, func(s *Strategy) *int64 { return &s.Live }, sizeText).For(ZeRO3),
	options.New("part", parseSize, func(s *Strategy) *int64 { return &s.SubGroupSize }, sizeText).For(ZeRO3),
	{Key: "overlap", Names: zeroStrategies, Read: (*Strategy).setOverlap, Write: (*Strategy).overlapText},
	options.OffOption("contiguous", func(s *Strategy) *bool { return &s.Scattered }).For(ZeRO3),
	options.ChoiceOption("linear", "deepspeed", "torch", func(s *Strategy) *bool { return &s.TorchLinear }).For(ZeRO3),
	options.Enum("map", DeviceMapPolicies()[0], func(s *Strategy) *string { return &s.Map }, DeviceMapPolicies()...).
		For(DeviceMap),
	options.New("memory", parseMemory, func(s *Strategy) *[]int64 { return &s.Memory }, memoryText).For(DeviceMap),
	options.Enum("init", "", func(s *Strategy) *Init { return &s.Init }, "meta", "host", "device", "rank0").
		For(shardStrategies...),
	{
		Key: "offload", Names: append([]string{FSDP2}, zeroStrategies...),
		Read: (*Strategy).setOffload, Write: func(s *Strategy) string { return s.Offload },
	},
	options.New("rank", parseRank, func(s *Strategy) **int64 { return &s.Rank }, rankText),
}

// parseReplicas parses the number of replicas; 1 means no replicas besides the model itself.
func parseReplicas(value string) (int64, error) {
	n, err := options.ParseWithin(value, 1, maxRanks)
	if n == 1 {
		n = 0
	}
	return n, err
}

func parseRank(value string) (*int64, error) {
	n, err := options.ParseWithin(value, 0, maxRanks)
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

// setOverlap sets overlap_comm, which stage 3 enables by default.
func (s *Strategy) setOverlap(value string) error {
	on, err := options.ParseBool(value)
	s.Overlap, s.NoOverlap = on && s.Name != ZeRO3, !on && s.Name == ZeRO3
	return err
}

func (s *Strategy) overlapText() string {
	if s.Overlap || s.NoOverlap {
		return strconv.FormatBool(s.Overlap)
	}
	return ""
}

// The values of [Strategy.Offload].
const (
	OffloadOptimizer = "optimizer"
	OffloadParams    = "params"
	OffloadAll       = "all"
)

// setOffload sets which tensors stay in host memory.
func (s *Strategy) setOffload(value string) (err error) {
	if s.Name == FSDP2 {
		s.Offload, err = options.ParseOneOf(value, OffloadAll)
		return err
	}
	s.Offload, err = options.ParseOneOf(value, OffloadOptimizer, OffloadParams, OffloadAll)
	if s.Name != ZeRO3 && err == nil && value != OffloadOptimizer {
		err = fmt.Errorf("only ZeRO-3 keeps weights in host memory; use offload=optimizer, or --strategy zero3")
	}
	return err
}

// parseSize parses a size of ZeRO in elements; zero counts as one.
func parseSize(value string) (int64, error) {
	n, err := options.ParseWithin(value, 0, 1<<50)
	return max(1, n), err
}

func parseAutoSize(value string) (int64, error) {
	if value == autoSize {
		return AutoSize, nil
	}
	return parseSize(value)
}

func parseBucket(value string) (int64, error) {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil && n == 0 {
		return 0, fmt.Errorf("invalid bucket size %q: need at least one element", value)
	}
	return parseAutoSize(value)
}

const autoSize = "auto"

func sizeText(n int64) string {
	if n == AutoSize {
		return autoSize
	}
	return options.FormatNumber(n)
}

// defaultReshard returns the strategy's default of reshard. Under tensor parallelism and in pipelines it is PyTorch's.
func (s *Strategy) defaultReshard() string {
	if s.Name == TP || s.Name == PP {
		return "auto"
	}
	return "true"
}

// Resharding returns the value of reshard, or its default.
func (s *Strategy) Resharding() string { return cmp.Or(s.Reshard, s.defaultReshard()) }

// parseMemory parses the sizes of max_memory, joined by "+", one for each GPU.
func parseMemory(value string) (sizes []int64, err error) {
	for text := range strings.SplitSeq(value, "+") {
		n, err := bytesize.Parse(text)
		if err == nil && n < 1 {
			err = fmt.Errorf("invalid memory %q of a GPU: need a size above 0, like 10GiB", text)
		}
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

func memoryText(sizes []int64) string {
	return options.JoinNames(lists.Map(sizes, options.FormatNumber))
}

// String returns the text that [ParseStrategy] parses; empty for nil. Options with default values are left out.
func (s *Strategy) String() string {
	if s == nil {
		return ""
	}
	return strategyOptions.FormatNamed(s.Name, s)
}

// MarshalText returns the text of String, for [encoding.TextMarshaler].
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the text that MarshalText returns.
func (s *Strategy) UnmarshalText(text []byte) error { return unmarshalText(s, text, ParseStrategy) }
