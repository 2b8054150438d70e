package train

import (
	"cmp"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
)

// DeepSpeed's defaults of stage 3, in elements.
const (
	prefetchBucket       = 50_000_000
	persistenceThreshold = 100_000
	maxReuseDistance     = 1_000_000_000
	maxLiveParameters    = 1_000_000_000
	subGroupSize         = 1_000_000_000
)

// PlaceModel calls to, which moves a model to the GPU. Under ZeRO-3, and under fully_shard by default, the weights are
// not allocated yet, since they move to the GPU in parts.
func PlaceModel(t *trace.Tape, c models.Case, to func()) {
	if s := c.Strategy; s != nil && s.Init != models.InitDevice && (s.SharesWeights() || s.SharesStages(c.GPUs)) {
		t.WithoutWeightMemory(to)
		return
	}
	to()
}

// deepSpeedOptions returns the options that all ZeRO stages share.
func deepSpeedOptions(s *models.Strategy, l ModelLayout) distributed.DeepSpeed {
	o := distributed.DeepSpeed{
		Bucket: s.Bucket, Overlap: s.Overlap,
		OffloadOptimizer: s.Offload == models.OffloadOptimizer || s.Offload == models.OffloadAll,
	}
	if s.Bucket == models.AutoSize {
		o.Bucket = hiddenSize(l) * hiddenSize(l)
	}
	return o
}

// hiddenSize returns the model's hidden size: the shorter side of its first matrix, the embedding.
func hiddenSize(l ModelLayout) int64 {
	for _, p := range l.Params {
		if s := (*p.Tensor).Shape(); len(s) == 2 {
			return min(s[0], s[1])
		}
	}
	return 1
}

// setUpZeRO sets up DeepSpeed's stage 1 or 2.
func setUpZeRO(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout, stage int) (*Ranks, error) {
	if s.Rank == nil {
		w.Rank = distributed.HeaviestRank(l.Params, w.Size)
	}
	z, err := distributed.PartitionZeRO2(t, w, deepSpeedOptions(s, l), stage, l.Params)
	if err != nil {
		return nil, err
	}
	return &Ranks{Parameters: z.Masters(), sync: z.SetSync, end: z.End, update: func(step func()) {
		z.Step()
		step()
	}}, nil
}

// setUpZeRO3 sets up DeepSpeed's stage 3.
func setUpZeRO3(t *trace.Tape, w distributed.World, c models.Case, l ModelLayout) (*Ranks, error) {
	s := c.Strategy
	fetch := distributed.ZeRO3Options{
		Prefetch: cmp.Or(s.Prefetch, prefetchBucket), Persist: cmp.Or(s.Persist, persistenceThreshold),
		Reuse: cmp.Or(s.Reuse, maxReuseDistance), Live: cmp.Or(s.Live, maxLiveParameters),
		SubGroupSize:   cmp.Or(s.SubGroupSize, subGroupSize),
		OffloadWeights: s.Offload == models.OffloadParams || s.Offload == models.OffloadAll,
		Serial:         s.NoOverlap, Scattered: s.Scattered, TorchLinear: s.TorchLinear,
	}
	if s.Prefetch == models.AutoSize { // transformers' HfTrainerDeepSpeedConfig
		fetch.Prefetch = hiddenSize(l) * hiddenSize(l) * 9 / 10
	}
	if s.Persist == models.AutoSize {
		fetch.Persist = 10 * hiddenSize(l)
	}
	z, err := distributed.PartitionZeRO3(t, w, deepSpeedOptions(s, l), fetch, moduleOwners(l))
	if err != nil {
		return nil, err
	}
	r := zero3Ranks(z)
	r.Parameters = z.Masters()
	r.update = func(step func()) { z.Step(c.Clip != models.ClipNone, step) }
	return r, nil
}

// zero3Ranks adds the wrappers by which modules gather their weights in stage 3.
func zero3Ranks(z *distributed.ZeRO3) *Ranks {
	r := &Ranks{Wrappers: map[string]trace.Wrapper{}}
	for _, m := range z.Modules() {
		r.Wrappers[m.Module()] = m
	}
	return r
}

// setUpFrozenZeRO3 sets up stage 3 of a frozen model without prefetching, as TRL's prepare_deepspeed does.
func setUpFrozenZeRO3(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout) (*Ranks, error) {
	fetch := distributed.ZeRO3Options{
		Persist: 10 * hiddenSize(l), Reuse: maxReuseDistance, Live: maxLiveParameters, Frozen: true,
		Serial:         s.NoOverlap,
		OffloadWeights: s.Offload == models.OffloadParams || s.Offload == models.OffloadAll,
	}
	z, err := distributed.PartitionZeRO3(t, w, deepSpeedOptions(s, l), fetch, moduleOwners(l))
	if err != nil {
		return nil, err
	}
	return zero3Ranks(z), nil
}

// moduleOwners returns the modules with parameters of their own, and the modules around adapters, whose code reads an
// adapter's weight (peft's _cast_input_dtype).
func moduleOwners(l ModelLayout) []distributed.ModuleGroup {
	var groups []distributed.ModuleGroup
	at := map[string]int{}
	for _, m := range l.Modules {
		if around, found := strings.CutSuffix(m, ".lora_A.default"); found {
			groups = append(groups, distributed.ModuleGroup{Module: around})
			at[around] = len(groups) - 1
		}
	}
	for _, p := range l.Params {
		m := modulePathOf(p.Name)
		i, known := at[m]
		if !known {
			i = len(groups)
			at[m] = i
			groups = append(groups, distributed.ModuleGroup{Module: m})
		}
		groups[i].Params = append(groups[i].Params, p)
	}
	return groups
}
