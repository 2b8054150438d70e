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
		require.Equal(t, c.rows, planOf(&models.Strategy{Name: models.TP, TP: 2},
			Layout{Blocks: []string{"l.0"}, Linears: c.linears}).rows, name)
	}
	told := planOf(&models.Strategy{Name: models.TP, TP: 2, Col: []string{"a"}},
		Layout{Blocks: []string{"l.0"}, Linears: []string{"l.0.query_key_value"}})
	require.Equal(t, plan{columns: []string{"a"}}, told)
}

// fsdp2_prepare_model of accelerate: embeddings alone unless the output layer shares their weights, the last norm with
// the output layer unless adapters hide it, and of a model without such layers its blocks.
func TestEndsAreWrappedAsAccelerateDoes(t *testing.T) {
	modules := []string{
		"", "model", "model.embed_tokens", "model.layers", "model.layers.0", "model.layers.0.norm", "model.norm", "lm_head",
	}
	block := distributed.Group{Module: "model.layers.0"}
	tied := map[string][]string{"model.embed_tokens.weight": {"lm_head"}}
	for name, c := range map[string]struct {
		layout Layout
		want   []distributed.Group
	}{
		"its own output layer": {Layout{Modules: modules}, []distributed.Group{
			block,
			{Module: "model.embed_tokens", With: []string{}},
			{Module: "model.norm", With: []string{"lm_head"}, Kept: true},
		}},
		"tied": {Layout{Modules: modules, Sharing: tied}, []distributed.Group{
			block, {Module: "model.norm", With: []string{"model.embed_tokens", "lm_head"}, Kept: true},
		}},
		"adapted": {Layout{Modules: modules, Adapted: true}, []distributed.Group{
			block, {Module: "model.embed_tokens", With: []string{}}, {Module: "lm_head", With: []string{}, Kept: true},
		}},
		"others": {Layout{Modules: []string{"", "model.layers.0", "head"}}, []distributed.Group{block}},
	} {
		c.layout.Blocks = []string{"model.layers.0"}
		got, err := wrapsOf(&models.Strategy{Name: models.FSDP2, Wrap: []string{models.Ends}}, c.layout)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}
