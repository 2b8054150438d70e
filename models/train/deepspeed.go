package train

import (
	"cmp"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
)

// DeepSpeed's own values of the options of stage 3, in elements.
const (
	prefetchBucket     = 50_000_000
	persistThreshold   = 100_000
	mostReuseDistance  = 1_000_000_000
	mostLiveParameters = 1_000_000_000
	subGroupSize       = 1_000_000_000
)

// Place calls to, which moves a model to the device, under the case's strategy. Under ZeRO-3, and under fully_shard by
// default, no memory is allocated for the weights yet, since they move to the device in parts.
func Place(t *trace.Tape, c models.Case, to func()) {
	if s := c.Strategy; s != nil && s.Init != models.InitDevice && (s.SharesWeights() || s.SharesStages(c.GPUs)) {
		t.WithoutWeightMemory(to)
		return
	}
	to()
}

// deepSpeed returns the options that the stages share.
func deepSpeed(s *models.Strategy, l ModelLayout) distributed.DeepSpeed {
	o := distributed.DeepSpeed{
		Bucket: s.Bucket, Overlap: s.Overlap,
		OffloadOptimizer: s.Offload == models.OffloadOptimizer || s.Offload == models.OffloadAll,
	}
	if s.Bucket == models.AutoSize {
		o.Bucket = width(l) * width(l)
	}
	return o
}

// width returns the width of the model: the shorter side of its first matrix, the embeddings.
func width(l ModelLayout) int64 {
	for _, p := range l.Params {
		if s := (*p.Tensor).Shape(); len(s) == 2 {
			return min(s[0], s[1])
		}
	}
	return 1
}

// zeroStage returns DeepSpeed's stage 1 or 2.
func zeroStage(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout, stage int) (*Ranks, error) {
	if s.Rank == nil {
		w.Rank = distributed.HeaviestRank(l.Params, w.Size)
	}
	z, err := distributed.PartitionZeRO2(t, w, deepSpeed(s, l), stage, l.Params)
	if err != nil {
		return nil, err
	}
	return &Ranks{Parameters: z.Masters(), sync: z.SetSync, end: z.End, update: func(step func()) {
		z.Step()
		step()
	}}, nil
}

// zero3 returns its stage 3.
func zero3(t *trace.Tape, w distributed.World, c models.Case, l ModelLayout) (*Ranks, error) {
	s := c.Strategy
	fetch := distributed.ZeRO3Options{
		Prefetch: cmp.Or(s.Prefetch, prefetchBucket), Persist: cmp.Or(s.Persist, persistThreshold),
		Reuse: cmp.Or(s.Reuse, mostReuseDistance), Live: cmp.Or(s.Live, mostLiveParameters),
		SubGroupSize:   cmp.Or(s.SubGroupSize, subGroupSize),
		OffloadWeights: s.Offload == models.OffloadParams || s.Offload == models.OffloadAll,
		Serial:         s.NoOverlap, Scattered: s.Scattered, TorchLinear: s.TorchLinear,
	}
	if s.Prefetch == models.AutoSize { // as in transformers' HfTrainerDeepSpeedConfig
		fetch.Prefetch = width(l) * width(l) * 9 / 10
	}
	if s.Persist == models.AutoSize {
		fetch.Persist = 10 * width(l)
	}
	z, err := distributed.PartitionZeRO3(t, w, deepSpeed(s, l), fetch, moduleOwners(l))
	if err != nil {
		return nil, err
	}
	r := zero3Ranks(z)
	r.Parameters = z.Masters()
	r.update = func(step func()) { z.Step(c.Clip != models.ClipNone, step) }
	return r, nil
}

// zero3Ranks makes the modules of stage 3 fetch their weights.
func zero3Ranks(z *distributed.ZeRO3) *Ranks {
	r := &Ranks{Wrappers: map[string]trace.Wrapper{}}
	for _, m := range z.Modules() {
		r.Wrappers[m.Module()] = m
	}
	return r
}

// frozenZeRO3 returns stage 3 of an untrained model as TRL's prepare_deepspeed sets it up, without prefetching.
func frozenZeRO3(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout) (*Ranks, error) {
	fetch := distributed.ZeRO3Options{
		Persist: 10 * width(l), Reuse: mostReuseDistance, Live: mostLiveParameters, Frozen: true, Serial: s.NoOverlap,
		OffloadWeights: s.Offload == models.OffloadParams || s.Offload == models.OffloadAll,
	}
	z, err := distributed.PartitionZeRO3(t, w, deepSpeed(s, l), fetch, moduleOwners(l))
	if err != nil {
		return nil, err
	}
	return zero3Ranks(z), nil
}

// moduleOwners returns the modules with their own parameters, and the modules around adapters, whose code reads an
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
		m := owner(p.Name)
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
