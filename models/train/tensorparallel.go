package train

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
)

// tensorPlan names the linear layers of a block that tensor parallelism splits by columns and by rows, by the ends of
// their paths.
type tensorPlan struct{ columns, rows []string }

// tensorPlans are the plans of transformers' models (base_model_tp_plan) that split linear layers and gather nothing
// between them, and a plan for OPT, which has none. The first is taken if no other is whole.
var tensorPlans = []tensorPlan{
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

// tensorPlanOf returns the plan of a strategy for blocks with some linear layers.
func tensorPlanOf(s *models.Strategy, l ModelLayout) tensorPlan {
	if len(s.ColumnWise)+len(s.RowWise) > 0 {
		return tensorPlan{s.ColumnWise, s.RowWise}
	}
	for _, p := range tensorPlans[1:] {
		if len(l.Blocks) > 0 && !slices.ContainsFunc(slices.Concat(p.columns, p.rows), func(name string) bool {
			return !slices.ContainsFunc(l.Linears, func(m string) bool {
				return nn.Below(m, l.Blocks[0]) && strings.HasSuffix(m, "."+name)
			})
		}) {
			return p
		}
	}
	return tensorPlans[0]
}

// tensorParallel applies parallelize_module to each block over the ranks of a group, then fully_shard over the groups.
// Ranks of a group are next to each other.
func tensorParallel(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout) (*Ranks, error) {
	shared, styles, err := parallelize(t, w, s, l)
	if err != nil {
		return nil, err
	}
	var meshes []string
	if s.TPBy != "" {
		meshes = meshesOf(s, l, shared)
	}
	r, err := shardOver(t, w, s, l)
	if err == nil {
		r.styles, r.meshes = styles, meshes
	}
	return r, err
}

// parallelize applies parallelize_module to each block, and to the layers around the blocks. It returns the shared
// layers and the styles of modules.
func parallelize(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout) (
	shared []distributed.SharedLayer, styles map[string]trace.Style, err error,
) {
	blocks, err := splitLayers(s, l)
	if err != nil {
		return nil, nil, err
	}
	shared, styles, err = outsideBlocks(s, l)
	if err != nil {
		return nil, nil, err
	}
	shared = append(shared, blocks...)
	group := distributed.World{Size: s.TP, Rank: w.Rank % s.TP}
	return shared, styles, distributed.ParallelizeModule(t, group, shared, s.Init != models.InitDevice)
}

// meshesOf returns each trained parameter's mesh besides fully_shard's: "tp", "ep" or "".
func meshesOf(s *models.Strategy, l ModelLayout, shared []distributed.SharedLayer) (meshes []string) {
	for _, p := range l.Params {
		mesh := ""
		switch {
		case strings.Contains(p.Name, expertsInside) && s.EP > 0:
			mesh = "ep"
		case strings.Contains(p.Name, expertsInside), slices.ContainsFunc(shared, func(l distributed.SharedLayer) bool {
			return l.Path == owner(p.Name)
		}):
			mesh = "tp"
		}
		if (*p.Tensor).RequiresGrad() && p.TiedTo == "" {
			meshes = append(meshes, mesh)
		}
	}
	return meshes
}

// shardOver applies fully_shard over groups of ranks that share layers, if there are several groups.
func shardOver(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout) (*Ranks, error) {
	each := max(1, s.TP)
	if groups := w.Size / each; groups > 1 {
		return fullyShard(t, distributed.World{Size: groups, Rank: w.Rank / each}, s, l)
	}
	distributed.ParametersToDevice(t, l.Params, loadsShards(s))
	return &Ranks{Parameters: trained(l)}, nil
}

// The names of modules in torchtitan's plan of sequence parallelism (apply_non_moe_tp) as in Llama and its like in
// transformers: halves of a block, which see all tokens, and the output layer.
var (
	halves      = []string{"self_attn", "mlp"}
	outputLayer = "lm_head"
	embeddings  = "embed_tokens"
)

// transformersSplits are the splits of transformers' plan for layers outside of the blocks.
var transformersSplits = map[string]trace.Split{embeddings: trace.ByWord, outputLayer: trace.ByColumn}

// outsideBlocks returns the layers that ranks share besides the linear ones of the blocks: embeddings and output layer
// with sequence parallelism, the latter with a parallel loss, and norms, whole on each rank; and the styles of modules.
func outsideBlocks(s *models.Strategy, l ModelLayout) (layers []distributed.SharedLayer, styles map[string]trace.Style,
	err error,
) {
	params := paramsOf(l)
	share := func(m string, how trace.Sharing) {
		layers = append(layers, distributed.SharedLayer{
			Path: m, Sharing: how, Weight: params[m+".weight"], Bias: params[m+".bias"],
		})
	}
	styles = map[string]trace.Style{}
	found := map[string]int{}
	for _, m := range l.Modules {
		last := m[strings.LastIndexByte(m, '.')+1:]
		inBlock := slices.ContainsFunc(l.Blocks, func(b string) bool { return nn.Below(m, b) })
		switch {
		case s.TPBy != "" && (last == embeddings || last == outputLayer) && !inBlock:
			if params[m+".weight"] != nil { // one that shares the embeddings' has been split with them
				share(m, trace.Sharing{Split: transformersSplits[last], Gathered: true})
			}
		case !s.Sequence && (!s.ParallelLoss || last != outputLayer):
			continue
		case last == outputLayer && !inBlock:
			share(m, trace.Sharing{Split: trace.ByColumn, Tokens: s.Sequence, Gathered: !s.ParallelLoss})
		case last == embeddings && !inBlock:
			share(m, trace.Sharing{Split: trace.ByWord, Tokens: true})
		case strings.HasSuffix(last, "norm") && params[m+".weight"] != nil:
			share(m, trace.Sharing{Tokens: true})
			styles[m] = trace.Style{Ranks: s.TP}
			last = "norm"
		case slices.Contains(halves, last) && inBlock:
			styles[m] = trace.Style{Ranks: s.TP, Gathers: true}
		}
		found[last]++
	}
	return layers, styles, missingModules(s, l, found)
}

func missingModules(s *models.Strategy, l ModelLayout, found map[string]int) error {
	blocks := len(l.Blocks)
	switch {
	case !s.Sequence && !s.ParallelLoss && s.TPBy == "":
		return nil
	case found[outputLayer] != 1:
		return fmt.Errorf("tp: transformers' plan shards the output layer %s, and the model has none", outputLayer)
	case s.TPBy != "" && found[embeddings] != 1:
		return fmt.Errorf("tp: transformers' plan shards the embeddings %s, which the model does not have", embeddings)
	case s.TPBy != "":
		return nil
	case len(l.Sharing[outputLayer+".weight"]) > 0, len(l.Sharing["model."+embeddings+".weight"]) > 0:
		return errors.New("tp: parallelize_module makes two weights of the one that embeddings and output layer " +
			"share; use a model whose weights are not tied, or leave out sequence and loss")
	case s.Sequence && (found[embeddings] != 1 || found[halves[0]] != blocks || found[halves[1]] != blocks):
		return fmt.Errorf("tp: sequence parallelism needs blocks with %s, norms, and embeddings %s, and "+
			"the model has other modules; leave out sequence", strings.Join(halves, " and "), embeddings)
	}
	return nil
}

// paramsOf returns pointers to parameters by their names.
func paramsOf(l ModelLayout) map[string]**trace.Tensor {
	params := map[string]**trace.Tensor{}
	for _, p := range l.Params {
		params[p.Name] = p.Tensor
	}
	return params
}

// trained returns the parameters that train.
func trained(l ModelLayout) []*trace.Tensor {
	all := lists.Map(l.Params, func(p distributed.Param) *trace.Tensor { return *p.Tensor })
	return lists.Filter(all, (*trace.Tensor).RequiresGrad)
}

// splitLayers returns the sharded linear layers of the blocks; in each block those split by columns come first.
func splitLayers(s *models.Strategy, l ModelLayout) ([]distributed.SharedLayer, error) {
	params := paramsOf(l)
	chosen := tensorPlanOf(s, l)
	plan := []struct {
		names []string
		split trace.Split
	}{{chosen.columns, trace.ByColumn}, {chosen.rows, trace.ByRow}}
	var out []distributed.SharedLayer
	for _, b := range l.Blocks {
		for _, part := range plan {
			for _, m := range l.Linears {
				if nn.Below(m, b) && slices.ContainsFunc(part.names, func(name string) bool {
					return nn.Matches(m, name)
				}) {
					out = append(out, distributed.SharedLayer{
						Path: m, Weight: params[m+".weight"], Bias: params[m+".bias"],
						Sharing: trace.Sharing{
							Split: part.split, Tokens: s.Sequence, Inside: s.Sequence, InPlace: s.TPBy != "",
						},
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
			errors.New("tp: the model has no list of equal modules that holds a fifth of its parameters; use " +
				"another strategy")
	}
	inside := slices.DeleteFunc(slices.Clone(l.Linears), func(m string) bool { return !nn.Below(m, l.Blocks[0]) })
	if len(inside) == 0 {
		return nil, errors.New("tp: the model's blocks have no nn.Linear layers for parallelize_module to " +
			"shard; use another strategy")
	}
	return nil, fmt.Errorf("tp: no linear layer of the blocks is called %s; name yours with col=... and row=..., as "+
		"in %s", strings.Join(slices.Concat(plan[0].names, plan[1].names), ", "), inside[len(inside)/2])
}
