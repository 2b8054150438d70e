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

// applyFullyShard applies fully_shard to the blocks and then to the model.
func applyFullyShard(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout) (*Ranks, error) {
	groups, err := shardGroups(s, l)
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
		Parameters: f.Parameters(l.untiedNames()), Wrappers: map[string]trace.Wrapper{}, sync: f.SetSync,
		each:  s.EachSync,
		check: f.Check, finish: f.Finish,
	}
	for _, g := range f.Groups() {
		maps.Copy(r.Wrappers, g.Wrappers())
	}
	if o.Offload { // clipping and the optimizer's step run on the CPU
		r.Parameters = nil
	}
	return r, nil
}

// shardOptions returns the strategy's options of fully_shard or FullyShardedDataParallel.
func shardOptions(s *models.Strategy) distributed.Options {
	o := distributed.Options{Replicate: s.Replicate, Offload: s.Offload != "", From: parameterSources[s.Init]}
	switch s.Resharding() {
	case "true":
	case "auto":
		o.Reshard = distributed.ReshardAuto
	case "false", "1": // PyTorch treats a group of one rank like False
		o.Reshard = distributed.ReshardNone
	default:
		o.ReshardRanks = s.ReshardRanks()
	}
	if s.MP != "" {
		o.ParamType = new(dtypeOf(s.MP))
		o.ReduceType = new(trace.F32) // MixedPrecisionPolicy(param_dtype, reduce_dtype=torch.float32)
	}
	if s.Reduce != "" {
		o.ReduceType = new(dtypeOf(s.Reduce))
	}
	return o
}

// parameterSources maps where a model is created to how its shards reach the GPU.
var parameterSources = map[models.Init]distributed.ParameterSource{
	"": distributed.FromMeta, models.InitMeta: distributed.FromMeta, models.InitDevice: distributed.FromDevice,
	models.InitHost:  distributed.FromHost,
	models.InitRank0: distributed.FromRank0,
}

func loadsShards(s *models.Strategy) bool { return s.TPPlan != "" && s.Init == "" }

// applyFSDP1 applies FullyShardedDataParallel to the blocks, to the layers that adapters train, and to the model.
func applyFSDP1(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout) (*Ranks, error) {
	groups, err := flatGroups(s, l)
	if err != nil {
		return nil, err
	}
	o := shardOptions(s)
	// by default the type in which gradients are computed
	if o.Prefetch = cmp.Or(s.BackwardPrefetch, distributed.PrefetchPre); s.Reduce == "" {
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
		Parameters: f.Parameters(l.untiedNames()), Wrappers: f.Wrappers(), sync: f.SetSync, each: s.EachSync,
	}, nil
}

// flatGroups returns the wrapped modules, children before parents, with their parameters in the model's order. peft's
// fsdp_auto_wrap_policy also wraps each layer without children whose weight is trained.
func flatGroups(s *models.Strategy, l ModelLayout) ([]distributed.ModuleGroup, error) {
	if l.Adapted && len(s.Wrap) == 0 {
		l.Blocks = slices.Clone(l.Blocks)
		for _, p := range l.Params {
			m := modulePathOf(p.Name)
			inside := func(child string) bool { return child != m && nn.IsBelow(child, m) }
			if p.Name == m+".weight" && (*p.Tensor).RequiresGrad() && !slices.ContainsFunc(l.Modules, inside) {
				l.Blocks = append(l.Blocks, m)
			}
		}
	}
	groups, err := shardGroups(s, l)
	after := postOrder(l.Modules)
	slices.SortStableFunc(groups, func(a, b distributed.ModuleGroup) int { return after[a.Module] - after[b.Module] })
	for _, g := range groups {
		slices.SortStableFunc(g.Params, func(a, b distributed.Param) int { return cmp.Compare(a.Order, b.Order) })
	}
	return groups, err
}
