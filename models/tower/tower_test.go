package tower_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/tower"
)

func parameters(p *nn.NamedModule) (n int64) {
	for _, w := range nn.NewTree(p).Parameters {
		n += w.Numel()
	}
	return n
}

// The published towers of checkpoints: openai/clip-vit-large-patch14-336 and, without the head that
// pools, google/siglip-so400m-patch14-224 as Gemma 3 takes it at 896 pixels.
func TestTowersHaveThePublishedParameters(t *testing.T) {
	clip := tower.Size{
		Width: 1024, Inner: 4096, Layers: 24, Heads: 16, Channels: 3, Image: 336, Patch: 14,
		Positions: 576,
	}
	require.EqualValues(t, 303_507_456, parameters(tower.CLIP(clip)))
	siglip := tower.Size{
		Width: 1152, Inner: 4304, Layers: 27, Heads: 16, Channels: 3, Image: 896, Patch: 14,
		Positions: 4096,
	}
	require.EqualValues(t, 416_866_032, parameters(tower.Siglip(siglip)))
}

// Every further layer adds the same, as much as its four projections, two feed-forward layers and two norms have.
func TestLayersOfTowersAddUp(t *testing.T) {
	made := map[string]func(tower.Size) *nn.NamedModule{
		"CLIP": tower.CLIP, "Siglip": tower.Siglip,
		"SmolVLM": tower.SmolVLM,
	}
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom([]string{"CLIP", "Siglip", "SmolVLM"}).Draw(rt, "tower")
		w, inner := 8*rapid.Int64Range(1, 32).Draw(rt, "width"), rapid.Int64Range(1, 512).Draw(rt, "inner")
		s := tower.Size{
			Width: w, Inner: inner, Layers: rapid.Int64Range(1, 4).Draw(rt, "layers"), Heads: 8,
			Channels: 3, Image: 32, Patch: 8, Positions: 16,
		}
		more := s
		more.Layers++
		require.Equal(rt, 4*(w*w+w)+2*w*inner+inner+w+4*w, parameters(made[name](more))-parameters(made[name](s)), name)
	})
}

// An image is as many tokens as squares of patches fit into it, rounded: at least one, a whole square
// at multiples of its side, and never fewer for a larger image.
func TestTokensOfImagesOfAnySize(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := tower.Size{
			Patch: rapid.Int64Range(1, 32).Draw(rt, "patch"),
			Merge: rapid.Int64Range(1, 4).Draw(rt, "merge"),
		}
		unit, n := s.Patch*s.Merge, rapid.Int64Range(1, 64).Draw(rt, "squares")
		require.Equal(rt, n*n, tower.QwenTokens(s, n*unit))
		side := rapid.Int64Range(1, 4096).Draw(rt, "side")
		require.GreaterOrEqual(rt, tower.QwenTokens(s, side), int64(1))
		require.LessOrEqual(rt, tower.QwenTokens(s, side), tower.QwenTokens(s, side+1))
	})
}

func TestStatesAreOfLayersThatThereAre(t *testing.T) {
	for _, tc := range []struct {
		states []int64
		layers int64
		within bool
	}{
		{nil, 1, true},
		{[]int64{3, 7, 15, 23, 30}, 32, true},
		{[]int64{31}, 32, true},
		{[]int64{0, 32}, 32, false},
	} {
		require.Equal(t, tc.within, tower.StatesWithin(tc.states, tc.layers), "%v of %d", tc.states, tc.layers)
	}
}
