package models

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// strategies draws strategies with any choice of options that they have.
func strategies() *rapid.Generator[Strategy] {
	return rapid.Custom(func(t *rapid.T) Strategy {
		s := Strategy{Name: rapid.SampledFrom(Strategies()).Draw(t, "name"), EachSync: rapid.Bool().Draw(t, "each")}
		if rapid.Bool().Draw(t, "ranked") {
			rank := rapid.Int64Range(0, 63).Draw(t, "rank")
			s.Rank = &rank
		}
		if s.Name == DeviceMap {
			s.EachSync, s.Map = false, rapid.SampledFrom([]string{"", "sequential"}).Draw(t, "map")
			s.Memory = rapid.SampledFrom([][]int64{nil, {1 << 30, 7}}).Draw(t, "memory")
			return s
		}
		if s.Name == PP {
			s.EachSync, s.Micro = false, rapid.Int64Range(0, 100).Draw(t, "micro")
			s.Schedule = rapid.SampledFrom([]string{"", "gpipe", Interleaved}).Draw(t, "schedule")
			s.Stages = rapid.SampledFrom([]int64{0, 3}).Draw(t, "stages")
			return s
		}
		if s.Name == ZeRO2 || s.Name == ZeRO3 {
			s.EachSync, s.Bucket = false, rapid.SampledFrom([]int64{0, AutoSize, 200_000_000}).Draw(t, "bucket")
			s.Offload = rapid.SampledFrom([]string{"", OffloadOptimizer}).Draw(t, "offload")
			if s.Name == ZeRO2 {
				s.Overlap = rapid.Bool().Draw(t, "overlap")
				return s
			}
			s.Prefetch, s.Persist = rapid.SampledFrom([]int64{0, AutoSize, 7}).Draw(t, "prefetch"),
				rapid.SampledFrom([]int64{0, AutoSize, 8}).Draw(t, "persist")
			s.NoOverlap, s.Scattered = rapid.Bool().Draw(t, "serial"), rapid.Bool().Draw(t, "scattered")
			s.Reuse, s.Live, s.SubGroupSize = rapid.Int64Range(0, 9).Draw(t, "reuse"), rapid.Int64Range(0, 9).Draw(t,
				"live"),
				rapid.Int64Range(0, 9).Draw(t, "part")
			return s
		}
		if s.Name != FSDP1 && s.Name != FSDP2 && s.Name != TP {
			s.BucketCap = rapid.Int64Range(0, 100).Draw(t, "cap")
			s.BucketView, s.StaticGraph, s.FindUnused = rapid.Bool().Draw(t, "view"), rapid.Bool().Draw(t, "static"),
				rapid.Bool().Draw(t, "unused")
			return s
		}
		others := map[string][]string{
			FSDP1: {"", "false"}, FSDP2: {"", "false", "auto", "4"},
			TP: {"", "false", "true"},
		}
		s.Reshard = rapid.SampledFrom(others[s.Name]).Draw(t, "reshard")
		s.MP = rapid.SampledFrom([]string{"", "bf16", "fp16"}).Draw(t, "mp")
		s.Reduce = rapid.SampledFrom([]string{"", "fp32", "bf16"}).Draw(t, "reduce")
		if s.Name == FSDP1 {
			s.BackwardPrefetch = rapid.SampledFrom([]string{"", "post", "none"}).Draw(t, "when")
			return s
		}
		if s.Name == TP {
			s.TP, s.Replicate = rapid.Int64Range(2, 8).Draw(t, "tp"),
				rapid.SampledFrom([]int64{0, 2, 4}).Draw(t, "replicate")
			s.Sequence, s.ParallelLoss = rapid.Bool().Draw(t, "sequence"), rapid.Bool().Draw(t, "loss")
			s.ColumnWise = rapid.SampledFrom([][]string{nil, {"query"}, {"query", "output.dense"}}).Draw(t, "col")
		} else {
			s.EP, s.Replicate = rapid.SampledFrom([]int64{0, 4}).Draw(t, "ep"),
				rapid.SampledFrom([]int64{0, 2, 4}).Draw(t, "replicate")
			s.Init, s.Offload = rapid.SampledFrom([]Init{"", InitDevice, InitHost, InitRank0}).Draw(t, "init"),
				rapid.SampledFrom([]string{"", OffloadAll}).Draw(t, "offload")
		}
		if s.CP = rapid.SampledFrom([]int64{0, 2, 8}).Draw(t, "cp"); s.CP > 0 {
			s.CPStyle = rapid.SampledFrom([]string{"", Llama3, Ring}).Draw(t, "by")
		}
		s.Wrap = rapid.SampledFrom([][]string{nil, {"h.*"}, {"h.*/2", "wte"}, {"ln_f:wte/kept"}, {WrapEnds}}).Draw(t,
			"wrap")
		return s
	})
}

func TestStrategiesAreReadAsPyTorchNamesTheirOptions(t *testing.T) {
	five := int64(5)
	for text, want := range map[string]Strategy{
		"ddp":                                     {Name: DDP},
		"ddp:bucket_view=True,bucket_cap_mb=100":  {Name: DDP, BucketView: true, BucketCap: 100},
		"zero1:static_graph=true,rank=5":          {Name: ZeRO1, StaticGraph: true, Rank: &five},
		"fsdp2:reshard=false,mp=bf16,reduce=fp32": {Name: FSDP2, Reshard: "false", MP: "bf16", Reduce: "fp32"},
		"fsdp2:replicate=2,wrap=h.*+wte,no_sync=false": {
			Name: FSDP2, Replicate: 2, Wrap: []string{"h.*", "wte"},
			EachSync: true,
		},
		"fsdp2:reshard=true,replicate=1,no_sync=true": {Name: FSDP2},
		"tp:tp=2,reshard=auto,col=query+key,row=dense": {
			Name: TP, TP: 2, ColumnWise: []string{"query", "key"},
			RowWise: []string{"dense"},
		},
		"fsdp2:reshard=02,wrap=h.*/2+norm:head": {
			Name: FSDP2, Reshard: "2",
			Wrap: []string{"h.*/2", "norm:head"},
		},
		"zero3:persist=0,overlap=true,contiguous=true": {Name: ZeRO3, Persist: 1},
		"zero3:overlap=false,contiguous=false":         {Name: ZeRO3, NoOverlap: true, Scattered: true},
		"zero3:linear=torch":                           {Name: ZeRO3, TorchLinear: true},
		"tp:tp=4,reshard=true":                         {Name: TP, TP: 4, Reshard: "true"},
		"tp:tp=2,replicate=2,init=meta":                {Name: TP, TP: 2, Replicate: 2},
		"fsdp2:init=rank0,wrap=norm:head/kept": {
			Name: FSDP2, Init: InitRank0,
			Wrap: []string{"norm:head/kept"},
		},
		"fsdp2:init=host":                                 {Name: FSDP2, Init: InitHost},
		"tp:tp=2,tp_by=transformers":                      {Name: TP, TP: 2, TPPlan: "transformers"},
		"tp:tp=4,tp_by=torch":                             {Name: TP, TP: 4},
		"tp:tp=2,init=device":                             {Name: TP, TP: 2, Init: InitDevice},
		"ddp:find_unused=true,bucket_view=false,rank=005": {Name: DDP, FindUnused: true, Rank: &five},
	} {
		got, err := ParseStrategy(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestStrategyErrorsNameTheKey(t *testing.T) {
	for text, want := range map[string]string{
		"":                          `there is no strategy ""`,
		"fsdp":                      `there is no strategy "fsdp"; use fsdp2 for PyTorch's fully_shard, hsdp:replicate=N for N copies of the model, fsdp1 for FullyShardedDataParallel, or zero1 to zero3 for DeepSpeed`,
		"device-map:map=even":       `map: "even" is none of auto, balanced`,
		"device-map:memory=1GiB+x":  `"x"`,
		"ddp:":                      `"" is not key=value; the options of ddp are bucket_view`,
		"ddp:mp=bf16":               `ddp has no option "mp", only fsdp1, fsdp2, tp, pp`,
		"zero1:ep_by=torch":         `zero1 has no option "ep_by", only ddp, fsdp2, tp, pp`,
		"fsdp2:mp":                  `"mp" is not key=value`,
		"fsdp2:mp=fp8":              `mp: "fp8" is none of bf16, fp16`,
		"fsdp2:mp=bf16,mp=bf16":     "mp: given twice",
		"fsdp2:replicate=0":         `replicate: "0" is not a whole number`,
		"fsdp2:reshard=maybe":       `reshard: "maybe" is none of true, false, auto`,
		"fsdp2:reshard=0":           "reshard: 0 ranks: need 1",
		"fsdp2:wrap=h.*+":           "has an empty name",
		"fsdp2:wrap=norm::head":     "has an empty pattern",
		"fsdp2:wrap=h.*/0":          `wrap: h.*/0: after the slash, write the number of modules to wrap together: "0" is not a whole number from 1 to 65536`,
		"fsdp2:wrap=h.*+none":       "none applies to all modules",
		"fsdp2:wrap=ends+h.*":       "ends applies to all modules",
		"ddp:bucket_cap_mb=1e3":     `bucket_cap_mb: "1e3" is not a whole number`,
		"tp:tp=2,tp_by=megatron":    `tp_by: "megatron" is none of torch, transformers`,
		"tp:tp=1":                   `tp: "1" is not a whole number`,
		"zero1:bucket_view=perhaps": `bucket_view: "perhaps" is neither true nor false`,
		"zero1:engine=horovod":      `engine: "horovod" is none of deepspeed`,
		"zero2:offload=all":         "offload: only ZeRO-3 keeps weights in host memory; use offload=optimizer, or --strategy zero3",
		"zero2:prefetch=1":          `zero2 has no option "prefetch", only fsdp1, zero3`,
		"zero3:bucket=-1":           `bucket: "-1" is not a whole number`,
		"zero3:live=auto":           `live: "auto" is not a whole number`,
		"zero2:bucket=0":            `bucket: invalid bucket size "0": need at least one element`,
	} {
		_, err := ParseStrategy(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestStrategiesThatRanksCannotFollowAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"ddp:rank=8":                               "there is no rank 8 of 8",
		"fsdp2:replicate=3":                        "8 GPUs cannot be divided into 3 replicas",
		"ddp:static_graph=true,find_unused=true":   "exclude each other",
		"device-map:memory=1GiB":                   "memory has 1 sizes for 8 GPUs",
		"pp:micro=4":                               "4 micro-batches do not fill a pipeline of 8 stages",
		"zero1:static_graph=true,find_unused=true": "exclude each other",
		"zero1:overlap=true":                       "bucket, overlap and offload are DeepSpeed's; add engine=deepspeed",
		"zero1:engine=deepspeed,bucket_view=true":  "no options of DistributedDataParallel",
		"fsdp2:replicate=16":                       "8 GPUs cannot be divided into 16 replicas",
		"fsdp2:reshard=3":                          "reshard=3: it must divide the 8 ranks that share the parameters",
		"fsdp2:replicate=4,reshard=4":              "reshard=4: it must divide the 2 ranks",
		"fsdp2:ep=2,reshard=2":                     "expert parallelism (ep=2) needs true, false or auto",
		"fsdp1:wrap=a:b":                           "one module in a unit",
		"fsdp1:reshard=auto":                       "frees all units after forward or none",
		"fsdp1:replicate=8":                        "shards nothing over one rank",
		"tp:tp=2,reshard=2":                        "PyTorch reshards to fewer ranks only without tensor parallelism",
	} {
		s, err := ParseStrategy(text)
		require.NoError(t, err, text)
		_, reason := newSubject(&Model{SupportsRanks: true},
			&Case{GPUs: 8, Strategy: &s}).firstConflict(shapeConflicts)
		require.Contains(t, reason, want, text)
	}
	_, reason := newSubject(&Model{SupportsRanks: true},
		&Case{Strategy: &Strategy{Name: DDP}}).firstConflict(rankConflicts)
	require.Contains(t, reason, "is not a number of GPUs")
}

func TestStrategiesComeBackFromTheirText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strategies().Draw(t, "strategy")
		again, err := ParseStrategy(s.String())
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}

// FuzzParseStrategy: what has been read reads the same when printed.
func FuzzParseStrategy(f *testing.F) {
	for _, text := range []string{
		"ddp:bucket_view=true", "fsdp2:mp=bf16,wrap=a+b.*", "zero1:rank=3", "fsdp2:", "=",
		"ddp:rank=-1", "fsdp2:replicate=99999999999999999999",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseStrategy(text)
		if err != nil {
			return
		}
		again, err := ParseStrategy(s.String())
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}

func TestCommunicatorsOfARank(t *testing.T) {
	for text, want := range map[string]int{
		"ddp": 1, "fsdp2": 1, "zero3": 1, "pp:micro=8": 1, "hsdp:replicate=2": 2, "fsdp2:replicate=8": 1,
		"tp:tp=2": 2, "tp:tp=8,sequence=true": 1, "tp:tp=2,replicate=2": 3, "fsdp2:cp=4": 2, "fsdp2:ep=4": 2,
	} {
		s, err := ParseStrategy(text)
		require.NoError(t, err, text)
		require.Equal(t, want, s.Communicators(8), text)
	}
}
