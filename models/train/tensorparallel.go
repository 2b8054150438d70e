package train

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
)

// plan names the linear layers of a block that tensor parallelism splits column by column
// and row by row, by the ends of their paths.
type plan struct{ columns, rows []string }

// plans are those of transformers' models (base_model_tp_plan) as far as they split linear
// layers and gather nothing between them, and that of OPT, which has none. The first is
// taken if no other is whole.
var plans = []plan{
	// Llama and its like
	{[]string{"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "up"}, []string{"o_proj", "down_proj", "down"}},
	// GPT-NeoX
	{[]string{"query_key_value", "dense_h_to_4h"}, []string{"dense", "dense_4h_to_h"}},
	// StarCoder2
	{[]string{"q_proj", "k_proj", "v_proj", "c_fc"}, []string{"o_proj", "c_proj"}},
	// nanochat
	{[]string{"q_proj", "k_proj", "v_proj", "fc1"}, []string{"o_proj", "fc2"}},
	// Phi
	{[]string{"q_proj", "k_proj", "v_proj", "fc1"}, []string{"dense", "fc2"}},
	// OPT
	{[]string{"q_proj", "k_proj", "v_proj", "fc1"}, []string{"out_proj", "fc2"}},
}

// planOf is the plan of a strategy for blocks with some linear layers.
func planOf(s *models.Strategy, l Layout) plan {
	if len(s.Col)+len(s.Row) > 0 {
		return plan{s.Col, s.Row}
	}
	for _, p := range plans[1:] {
		if len(l.Blocks) > 0 && !slices.ContainsFunc(slices.Concat(p.columns, p.rows), func(name string) bool {
			return !slices.ContainsFunc(l.Linears, func(m string) bool {
				return nn.Below(m, l.Blocks[0]) && strings.HasSuffix(m, "."+name)
			})
		}) {
			return p
		}
	}
	return plans[0]
}

// tensorParallel is parallelize_module of each block over the ranks of a group, then
// fully_shard over the groups. Ranks of a group are next to each other.
func tensorParallel(t *trace.Tape, w distributed.World, s *models.Strategy, l Layout) (*Ranks, error) {
	layers, err := splitLayers(s, l)
	if err != nil {
		return nil, err
	}
	group := distributed.World{Size: s.TP, Rank: w.Rank % s.TP}
	if err := distributed.ParallelizeModule(t, group, layers, !s.Whole); err != nil {
		return nil, err
	}
	return fullyShard(t, distributed.World{Size: w.Size / s.TP, Rank: w.Rank / s.TP}, s, l)
}

// splitLayers are the linear layers of the blocks that ranks share: in each block those
// column by column first.
func splitLayers(s *models.Strategy, l Layout) ([]distributed.Linear, error) {
	params := map[string]**trace.Tensor{}
	for _, p := range l.Params {
		params[p.Name] = p.Tensor
	}
	chosen := planOf(s, l)
	plan := []struct {
		names []string
		split trace.Split
	}{{chosen.columns, trace.ByColumn}, {chosen.rows, trace.ByRow}}
	var out []distributed.Linear
	for _, b := range l.Blocks {
		for _, part := range plan {
			for _, m := range l.Linears {
				if nn.Below(m, b) && slices.ContainsFunc(part.names, func(name string) bool {
					return m == name || strings.HasSuffix(m, "."+name)
				}) {
					out = append(out, distributed.Linear{
						Path: m, Split: part.split, Weight: params[m+".weight"],
						Bias: params[m+".bias"],
					})
				}
			}
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case len(l.Blocks) == 0:
		return nil,
			errors.New("tp: the model has no list of equal modules that holds a fifth of its parameters; take " +
				"another strategy")
	}
	inside := slices.DeleteFunc(slices.Clone(l.Linears), func(m string) bool { return !nn.Below(m, l.Blocks[0]) })
	if len(inside) == 0 {
		return nil,
			errors.New("tp: the model's blocks have no linear layers (nn.Linear), which parallelize_module shares " +
				"out; take another strategy")
	}
	return nil,
		fmt.Errorf("tp: no linear layer of the blocks is called %s; name yours with col=... and row=..., as in %s",
			strings.Join(slices.Concat(plan[0].names, plan[1].names), ", "), inside[len(inside)/2])
}
