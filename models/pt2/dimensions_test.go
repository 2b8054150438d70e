package pt2

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2/export"
)

// torch.export may have several symbols for what the user called one size: they are one setting, whose default is the
// size that the user gave.
func TestSizesOfOneNameAreOneSetting(t *testing.T) {
	input := func(name string, symbols ...string) export.Input {
		in := export.Input{Name: name, Role: export.UserInput, Type: export.Long}
		for _, s := range symbols {
			e, err := export.ParseExpr("Symbol('" + s + "')")
			require.NoError(t, err)
			in.Sizes = append(in.Sizes, export.Size{Expr: e})
		}
		return in
	}
	p := &export.Program{
		Inputs: []export.Input{input("x", "s0", "s1"), input("y", "s2", "s3"), input("z", "s0", "s4")},
		Ranges: map[string]export.Range{}, Extra: &export.Extra{},
	}
	require.NoError(t, json.Unmarshal([]byte(`{"s0": ["batch", 4], "s2": ["batch", 4],
		"s1": ["seq", 96, true], "s3": ["seq", 96, true], "s4": ["target", 64]}`), &p.Extra.Symbols))
	d := findDimensions(p)
	require.Equal(t, map[string]string{"s1": "seq-len", "s3": "seq-len", "s4": "target"}, d.symbols)
	require.EqualValues(t, 96, d.settings[0].Default)
	at := d.symbolValues(models.Case{Batch: 7, Settings: models.Settings{"seq-len": 50, "target": 30}})
	require.Equal(t, map[string]int64{"s0": 7, "s2": 7, "s1": 50, "s3": 50, "s4": 30}, at)
}
