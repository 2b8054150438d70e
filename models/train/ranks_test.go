package train

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace/distributed"
)

// Each model has the plan whose layers its blocks have, and others that of Llama.
func TestPlansAreThoseOfTheBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		linears []string
		rows    []string
	}{
		"llama": {[]string{
			"l.0.a.q_proj", "l.0.a.k_proj", "l.0.a.v_proj", "l.0.a.o_proj", "l.0.m.up_proj",
			"l.0.m.gate_proj", "l.0.m.down_proj",
		}, []string{"o_proj", "down_proj", "down"}},
		"gpt_neox": {
			[]string{"l.0.a.query_key_value", "l.0.a.dense", "l.0.m.dense_h_to_4h", "l.0.m.dense_4h_to_h"},
			[]string{"dense", "dense_4h_to_h"},
		},
		"opt": {
			[]string{"l.0.a.q_proj", "l.0.a.k_proj", "l.0.a.v_proj", "l.0.a.out_proj", "l.0.fc1", "l.0.fc2"},
			[]string{"out_proj", "fc2"},
		},
		"elsewhere": {
			[]string{"l.0.a.q_proj", "l.0.a.k_proj", "l.0.a.v_proj", "l.0.a.out_proj", "head.fc1", "head.fc2"},
			[]string{"o_proj", "down_proj", "down"},
		},
	} {
		require.Equal(t, c.rows, tensorPlanOf(&models.Strategy{Name: models.TP, TP: 2},
			ModelLayout{Blocks: []string{"l.0"}, Linears: c.linears}).rows, name)
	}
	told := tensorPlanOf(&models.Strategy{Name: models.TP, TP: 2, ColumnWise: []string{"a"}},
		ModelLayout{Blocks: []string{"l.0"}, Linears: []string{"l.0.query_key_value"}})
	require.Equal(t, tensorPlan{columns: []string{"a"}}, told)
}

// fsdp2_prepare_model of accelerate: embeddings alone unless the output layer shares their weights, the last norm with
// the output layer unless adapters hide it, and of a model without such layers its blocks.
func TestEndsAreWrappedAsAccelerateDoes(t *testing.T) {
	modules := []string{
		"", "model", "model.embed_tokens", "model.layers", "model.layers.0", "model.layers.0.norm", "model.norm",
		"lm_head",
	}
	block := distributed.ModuleGroup{Module: "model.layers.0"}
	tied := map[string][]string{"model.embed_tokens.weight": {"lm_head"}}
	for name, c := range map[string]struct {
		layout ModelLayout
		want   []distributed.ModuleGroup
	}{
		"its own output layer": {ModelLayout{Modules: modules}, []distributed.ModuleGroup{
			block,
			{Module: "model.embed_tokens", With: []string{}},
			{Module: "model.norm", With: []string{"lm_head"}, StaysGathered: true},
		}},
		"tied": {ModelLayout{Modules: modules, Sharing: tied}, []distributed.ModuleGroup{
			block, {Module: "model.norm", With: []string{"model.embed_tokens", "lm_head"}, StaysGathered: true},
		}},
		"adapted": {ModelLayout{Modules: modules, Adapted: true}, []distributed.ModuleGroup{
			block, {Module: "model.embed_tokens", With: []string{}}, {
				Module: "lm_head", With: []string{},
				StaysGathered: true,
			},
		}},
		"others": {ModelLayout{Modules: []string{"", "model.layers.0", "head"}}, []distributed.ModuleGroup{block}},
	} {
		c.layout.Blocks = []string{"model.layers.0"}
		got, err := fullyShardCalls(&models.Strategy{Name: models.FSDP2, Wrap: []string{models.WrapEnds}}, c.layout)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}
