package pt2

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/pt2/export"
)

// Files can say anything: what makes nothing or lacks its arguments is left as it is, for
// the operator table to refuse.
func TestNodesWithoutWhatTheyNeedAreLeftAsTheyAre(t *testing.T) {
	float := export.Named{Name: "dtype", Argument: export.Argument{Kind: export.Type, Int: int64(export.Float)}}
	mask := export.Named{Name: "attn_mask", Argument: export.Argument{Kind: export.Ref, Ref: 0}}
	one := []export.Argument{{Kind: export.Ref, Ref: 0}}
	for _, nodes := range [][]export.Node{
		{{Target: "torch.ops.aten.zeros.default", Inputs: []export.Named{float}}},
		{{Target: "torch.ops.aten.zeros.default", Inputs: []export.Named{float}, Outputs: one}, {Target: attention, Inputs: []export.Named{mask}}},
		{{Target: multiply, Trace: []export.Frame{{}}}},
		{{Target: where}, {Target: "torch.ops.aten.expand.default"}},
	} {
		p := &export.Program{Nodes: nodes, Values: 1}
		require.NotPanics(t, func() {
			followTypes(p)
			castProducts(p)
			forAllRows(p, 0, len(p.Nodes))
			for i := range p.Nodes {
				unmask(p, &p.Nodes[i], false)
			}
		})
		require.Len(t, p.Nodes, len(nodes))
	}
}
