package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/llama"
)

func TestRowsNameKnownParts(t *testing.T) {
	for kind := range llamaTypeRows() {
		d, _ := llamaTypeOf(kind)
		c := d.Base
		require.Contains(t, []llama.Norm{
			llama.RMSNorm, llama.GemmaNorm, llama.OlmoNorm, llama.LayerNorm, llama.LayerNorm1P, llama.FloatNorm,
			llama.CohereNorm, llama.Llama4Norm,
		}, c.Norm, kind)
		require.Contains(t, []llama.Order{
			llama.NormFirst, llama.NormAround, llama.CohereParallel, llama.NeoX, llama.NeoXParallel, llama.Llama4Order,
			llama.NemotronBlock,
		}, c.Order, kind)
		require.Contains(t, []llama.QKNorm{llama.NoQKNorm, llama.HeadsNorm, llama.TransposedNorm, llama.ViewedNorm},
			c.QKNorm, kind)
		require.Contains(t, []llama.QKV{llama.ThreeProjections, llama.OneProjection, llama.HeadsProjection}, c.QKV, kind)
		require.Contains(t, []llama.MLP{llama.Gated, llama.FusedGated, llama.Ungated}, c.MLP, kind)
		require.Contains(t, []llama.Scale{llama.Unscaled, llama.ByBuffer, llama.ByNumber}, c.EmbedScale, kind)
		require.Contains(t, []llama.Routing{
			llama.RouteSoftmax, llama.RouteSoftmaxFloat, llama.RouteBiased, llama.RouteGroups, llama.RouteGreedy,
		}, c.Experts.Routing, kind)
	}
	for kind := range llamaTypeReaders {
		require.Contains(t, llamaTypeRows(), kind)
	}
}
