package train

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
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
