package pt2

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/pt2/export"
)

// Files can say anything: what makes nothing or lacks its arguments is left as it is, for the operator table to refuse.
func TestNodesWithoutWhatTheyNeedAreLeftAsTheyAre(t *testing.T) {
	float := export.NamedArgument{Name: "dtype", Argument: export.Argument{Kind: export.Type, Int: int64(export.Float)}}
	mask := export.NamedArgument{Name: "attn_mask", Argument: export.Argument{Kind: export.Ref, Ref: 0}}
	one := []export.Argument{{Kind: export.Ref, Ref: 0}}
	for _, nodes := range [][]export.Node{
		{{Target: "torch.ops.aten.zeros.default", Inputs: []export.NamedArgument{float}}},
		{
			{Target: "torch.ops.aten.zeros.default", Inputs: []export.NamedArgument{float}, Outputs: one},
			{Target: attentionTarget, Inputs: []export.NamedArgument{mask}},
		},
		{{Target: multiplyTarget, Trace: []export.Frame{{}}}},
		{{Target: whereTarget}, {Target: "torch.ops.aten.expand.default"}},
	} {
		p, before := &export.Program{Nodes: nodes, Values: 1}, fmt.Sprintf("%+v", nodes)
		correctCastTypes(p)
		castProducts(p)
		keepMaskUnexpanded(p, 0, len(p.Nodes))
		require.Equal(t, before, fmt.Sprintf("%+v", p.Nodes))
		require.NotPanics(t, func() { removeMask(p, &p.Nodes[0], false) })
	}
}

func TestWordsAreFoundWhole(t *testing.T) {
	for line, want := range map[string]bool{
		"x * torch.rsqrt(v)": true, "max * y": false, "x": true, "y = x.float()": true, "xs + 1": false,
		"x_ + x1 + ax": false, "ax + x": true, "": false,
	} {
		require.Equal(t, want, hasWord(line, "x"), line)
	}
	require.True(t, hasWord("norm(x.to(d))", "x.to("))
	require.False(t, hasWord("norm(ax.to(d))", "x.to("))
}
