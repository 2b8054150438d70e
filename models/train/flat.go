package train

import (
	"cmp"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
)

// fullySharded applies FullyShardedDataParallel to the blocks, to the layers that adapters train, and to the model.
func fullySharded(t *trace.Tape, w distributed.World, s *models.Strategy, l Layout) (*Ranks, error) {
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
	f, err := distributed.FullySharded(t, w, o, groups)
	if err != nil {
		return nil, err
	}
	return &Ranks{
		Parameters: f.Parameters(l.names()), Wrappers: f.Wrappers(), sync: f.Sync, each: s.EachSync,
	}, nil
}

// flatGroups returns the wrapped modules, children before parents, with their parameters in the order of the model.
// peft's fsdp_auto_wrap_policy also wraps each layer without children whose weight trains.
func flatGroups(s *models.Strategy, l Layout) ([]distributed.Group, error) {
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
	slices.SortStableFunc(groups, func(a, b distributed.Group) int { return after[a.Module] - after[b.Module] })
	for _, g := range groups {
		slices.SortStableFunc(g.Params, func(a, b distributed.Param) int { return cmp.Compare(a.Order, b.Order) })
	}
	return groups, err
}
