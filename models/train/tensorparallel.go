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

// tensorPlan names the linear layers of a block that tensor parallelism shards by columns and by rows, by the last
// parts of their paths.
type tensorPlan struct{ columns, rows []string }

// tensorPlans are the plans of transformers' models (base_model_tp_plan) that shard linear layers and gather nothing
// between them, and a plan for OPT, which has none. The first applies if a model lacks a layer of each other plan.
var tensorPlans = []tensorPlan{
	// Llama and similar models
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

func tensorPlanOf(s *models.Strategy, l ModelLayout) tensorPlan {
	if len(s.ColumnWise)+len(s.RowWise) > 0 {
		return tensorPlan{s.ColumnWise, s.RowWise}
	}
	for _, p := range tensorPlans[1:] {
		if len(l.Blocks) > 0 && !slices.ContainsFunc(slices.Concat(p.columns, p.rows), func(name string) bool {
			return !slices.ContainsFunc(l.Linears, func(m string) bool {
				return nn.IsBelow(m, l.Blocks[0]) && strings.HasSuffix(m, "."+name)
			})
		}) {
			return p
		}
	}
	return tensorPlans[0]
}

// applyTensorParallel applies parallelize_module to each block over groups of neighboring ranks, then fully_shard.
func applyTensorParallel(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout) (*Ranks, error) {
	shared, styles, err := parallelizeModules(t, w, s, l)
	if err != nil {
		return nil, err
	}
	var meshes []string
	if s.TPPlan != "" {
		meshes = parameterMeshes(s, l, shared)
	}
	r, err := shardOverGroups(t, w, s, l)
	if err == nil {
		r.styles, r.meshes = styles, meshes
	}
	return r, err
}

// parallelizeModules applies parallelize_module to each block and to the layers around the blocks. It returns the
// sharded layers and the modules' parallel styles.
func parallelizeModules(t *trace.Tape, w distributed.World, s *models.Strategy,
	l ModelLayout) (
	shared []distributed.SharedLayer, styles map[string]trace.Style, err error,
) {
	blocks, err := shardedLinears(s, l)
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

// parameterMeshes returns each trained parameter's mesh besides fully_shard's: "tp", "ep" or "".
func parameterMeshes(s *models.Strategy, l ModelLayout, shared []distributed.SharedLayer) (meshes []string) {
	for _, p := range l.Params {
		mesh := ""
		switch {
		case strings.Contains(p.Name, expertsPrefix) && s.EP > 0:
			mesh = "ep"
		case strings.Contains(p.Name, expertsPrefix), slices.ContainsFunc(shared, func(l distributed.SharedLayer) bool {
			return l.Path == modulePathOf(p.Name)
		}):
			mesh = "tp"
		}
		if (*p.Tensor).RequiresGrad() && p.TiedTo == "" {
			meshes = append(meshes, mesh)
		}
	}
	return meshes
}

// shardOverGroups applies fully_shard over the groups of ranks that share layers, if there are several groups.
func shardOverGroups(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout) (*Ranks, error) {
	each := max(1, s.TP)
	if groups := w.Size / each; groups > 1 {
		return applyFullyShard(t, distributed.World{Size: groups, Rank: w.Rank / each}, s, l)
	}
	distributed.ParametersToDevice(t, l.Params, loadsShards(s))
	return &Ranks{Parameters: trainedParams(l)}, nil
}

// The names of modules in torchtitan's sequence-parallel plan (apply_non_moe_tp) for Llama and similar models of
// transformers: attention and feed-forward layers, whose inputs are all tokens, and the layers around the blocks.
var (
	halfNames     = []string{"self_attn", "mlp"}
	outputName    = "lm_head"
	embeddingName = "embed_tokens"
)

// transformersSplits are how transformers' plan shards the layers around the blocks.
var transformersSplits = map[string]trace.Split{embeddingName: trace.ByWord, outputName: trace.ByColumn}

// outsideBlocks returns the layers around the blocks that ranks share, and the modules' parallel styles: the
// embedding and output layer with sequence parallelism, the output layer with a parallel loss, and norms, which each
// rank holds as a whole.
func outsideBlocks(s *models.Strategy, l ModelLayout) (layers []distributed.SharedLayer, styles map[string]trace.Style,
	err error,
) {
	params := paramsByName(l)
	share := func(m string, how trace.Sharing) {
		layers = append(layers, distributed.SharedLayer{
			Path: m, Sharing: how, Weight: params[m+".weight"], Bias: params[m+".bias"],
		})
	}
	styles = map[string]trace.Style{}
	found := map[string]int{}
	for _, m := range l.Modules {
		last := m[strings.LastIndexByte(m, '.')+1:]
		inBlock := slices.ContainsFunc(l.Blocks, func(b string) bool { return nn.IsBelow(m, b) })
		switch {
		case s.TPPlan != "" && (last == embeddingName || last == outputName) && !inBlock:
			if params[m+".weight"] != nil { // a weight tied to the embedding has been sharded with it
				share(m, trace.Sharing{Split: transformersSplits[last], Gathered: true})
			}
		case !s.Sequence && (!s.ParallelLoss || last != outputName):
			continue
		case last == outputName && !inBlock:
			share(m, trace.Sharing{Split: trace.ByColumn, Tokens: s.Sequence, Gathered: !s.ParallelLoss})
		case last == embeddingName && !inBlock:
			share(m, trace.Sharing{Split: trace.ByWord, Tokens: true})
		case strings.HasSuffix(last, "norm") && params[m+".weight"] != nil:
			share(m, trace.Sharing{Tokens: true})
			styles[m] = trace.Style{Ranks: s.TP}
			last = "norm"
		case slices.Contains(halfNames, last) && inBlock:
			styles[m] = trace.Style{Ranks: s.TP, Gathers: true}
		}
		found[last]++
	}
	return layers, styles, missingModules(s, l, found)
}

func missingModules(s *models.Strategy, l ModelLayout, found map[string]int) error {
	blocks := len(l.Blocks)
	switch {
	case !s.Sequence && !s.ParallelLoss && s.TPPlan == "":
		return nil
	case found[outputName] != 1:
		return fmt.Errorf("transformers' plan of tensor parallelism (tp_by) shards the output layer %s, which the "+
			"model does not have; use another --strategy", outputName)
	case s.TPPlan != "" && found[embeddingName] != 1:
		return fmt.Errorf("transformers' plan of tensor parallelism (tp_by) shards the embeddings %s, which the "+
			"model does not have; use another --strategy", embeddingName)
	case s.TPPlan != "":
		return nil
	case len(l.Sharing[outputName+".weight"]) > 0, len(l.Sharing["model."+embeddingName+".weight"]) > 0:
		return errors.New("tensor parallelism: parallelize_module makes two weights of the one that embeddings and " +
			"output layer share; use a model with untied weights, or leave out sequence and loss")
	case s.Sequence && (found[embeddingName] != 1 || found[halfNames[0]] != blocks || found[halfNames[1]] != blocks):
		return fmt.Errorf("sequence parallelism (sequence=true) needs blocks with %s, norms, and embeddings %s, and "+
			"the model has other modules; leave out sequence", strings.Join(halfNames, " and "), embeddingName)
	}
	return nil
}

func paramsByName(l ModelLayout) map[string]**trace.Tensor {
	params := map[string]**trace.Tensor{}
	for _, p := range l.Params {
		params[p.Name] = p.Tensor
	}
	return params
}

func trainedParams(l ModelLayout) []*trace.Tensor {
	all := lists.Map(l.Params, func(p distributed.Param) *trace.Tensor { return *p.Tensor })
	return lists.Filter(all, (*trace.Tensor).RequiresGrad)
}

// shardedLinears returns the sharded linear layers of the blocks; in each block those sharded by columns come first.
func shardedLinears(s *models.Strategy, l ModelLayout) ([]distributed.SharedLayer, error) {
	params := paramsByName(l)
	chosen := tensorPlanOf(s, l)
	plan := []struct {
		names []string
		split trace.Split
	}{{chosen.columns, trace.ByColumn}, {chosen.rows, trace.ByRow}}
	var out []distributed.SharedLayer
	for _, b := range l.Blocks {
		for _, part := range plan {
			for _, m := range l.Linears {
				if nn.IsBelow(m, b) && slices.ContainsFunc(part.names, func(name string) bool {
					return nn.MatchesSuffix(m, name)
				}) {
					out = append(out, distributed.SharedLayer{
						Path: m, Weight: params[m+".weight"], Bias: params[m+".bias"],
						Sharing: trace.Sharing{
							Split: part.split, Tokens: s.Sequence, Inside: s.Sequence, InPlace: s.TPPlan != "",
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
			errors.New("tensor parallelism: the model has no list of equal modules that holds a fifth of its " +
				"parameters; use another --strategy")
	}
	inside := slices.DeleteFunc(slices.Clone(l.Linears), func(m string) bool { return !nn.IsBelow(m, l.Blocks[0]) })
	if len(inside) == 0 {
		return nil, errors.New("tensor parallelism: the model's blocks have no nn.Linear layers for " +
			"parallelize_module to shard; use another --strategy")
	}
	return nil, fmt.Errorf("tensor parallelism: the model's blocks have no linear layer named %s; name yours in "+
		"--strategy with col=... and row=..., as in %s",
		strings.Join(slices.Concat(plan[0].names, plan[1].names), ", "), inside[len(inside)/2])
}
