package train

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
)

// fullyShard applies fully_shard to the blocks, then to the model.
func fullyShard(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout) (*Ranks, error) {
	groups, err := groupsOf(s, l)
	if err != nil {
		return nil, err
	}
	o := shardOptions(s)
	o.GatherStreams, o.ManualSync, o.WarmUp = l.Frozen, s.Name == models.PP, loadsShards(s)
	f, err := distributed.FullyShard(t, w, o, groups)
	if err != nil {
		return nil, err
	}
	r := &Ranks{
		Parameters: f.Parameters(l.names()), Wrappers: map[string]trace.Wrapper{}, sync: f.SetSync, each: s.EachSync,
		check: f.Check, finish: f.Finish,
	}
	for _, g := range f.Groups() {
		maps.Copy(r.Wrappers, g.Wrappers())
	}
	if o.Offload { // the host clips and steps
		r.Parameters = nil
	}
	return r, nil
}

// shardOptions returns the options of fully_shard and FullyShardedDataParallel that a strategy sets.
func shardOptions(s *models.Strategy) distributed.Options {
	o := distributed.Options{Replicate: s.Replicate, Offload: s.Offload != "", From: parameterSources[s.Init]}
	switch s.Resharding() {
	case "true":
	case "auto":
		o.Reshard = distributed.ReshardAuto
	case "false", "1": // as PyTorch takes a group of one
		o.Reshard = distributed.ReshardNone
	default:
		o.ReshardRanks = s.ReshardRanks()
	}
	if s.MP != "" {
		o.ParamType = new(dtypeOf(s.MP))
		o.ReduceType = new(trace.F32) // as MixedPrecisionPolicy(param_dtype, reduce_dtype=torch.float32)
	}
	if s.Reduce != "" {
		o.ReduceType = new(dtypeOf(s.Reduce))
	}
	return o
}

// parameterSources describes how shards come to the device from where a model is made.
var parameterSources = map[models.Init]distributed.ParameterSource{
	"": distributed.FromMeta, models.InitMeta: distributed.FromMeta, models.InitDevice: distributed.FromDevice,
	models.InitHost:  distributed.FromHost,
	models.InitRank0: distributed.FromRank0,
}

// loadsShards reports whether from_pretrained brings each rank's part to the device.
func loadsShards(s *models.Strategy) bool { return s.TPBy != "" && s.Init == "" }

// fullySharded applies FullyShardedDataParallel to the blocks, to the layers that adapters train, and to the model.
func fullySharded(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout) (*Ranks, error) {
	groups, err := flatGroups(s, l)
	if err != nil {
		return nil, err
	}
	o := shardOptions(s)
	if o.Prefetch = cmp.Or(s.BackwardPrefetch, distributed.PrefetchPre); s.Reduce == "" { // as gradients are computed
		o.ReduceType = nil
	}
	if s.Init != models.InitDevice {
		o.From = distributed.FromHost
	}
	f, err := distributed.WrapFSDP1(t, w, o, groups)
	if err != nil {
		return nil, err
	}
	return &Ranks{
		Parameters: f.Parameters(l.names()), Wrappers: f.Wrappers(), sync: f.SetSync, each: s.EachSync,
	}, nil
}

// flatGroups returns the wrapped modules, children before parents, with their parameters in the order of the model.
// peft's fsdp_auto_wrap_policy also wraps each layer without children whose weight trains.
func flatGroups(s *models.Strategy, l ModelLayout) ([]distributed.ModuleGroup, error) {
	if l.Adapted && len(s.Wrap) == 0 {
		l.Blocks = slices.Clone(l.Blocks)
		for _, p := range l.Params {
			m := owner(p.Name)
			inside := func(child string) bool { return child != m && nn.Below(child, m) }
			if p.Name == m+".weight" && (*p.Tensor).RequiresGrad() && !slices.ContainsFunc(l.Modules, inside) {
				l.Blocks = append(l.Blocks, m)
			}
		}
	}
	groups, err := groupsOf(s, l)
	after := afterChildren(l.Modules)
	slices.SortStableFunc(groups, func(a, b distributed.ModuleGroup) int { return after[a.Module] - after[b.Module] })
	for _, g := range groups {
		slices.SortStableFunc(g.Params, func(a, b distributed.Param) int { return cmp.Compare(a.Order, b.Order) })
	}
	return groups, err
}
