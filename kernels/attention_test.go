package kernels_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/kernels"
)

func checkAttention(t failer, c *cpu, k kernels.Attention) {
	t.Helper()
	q, key := c.tensorOf(k.Type, k.Heads*k.Queries*k.Depth, 1), c.tensorOf(k.Type, k.Heads*k.Keys*k.Depth, 2)
	v, y := c.tensorOf(k.Type, k.Heads*k.Keys*k.Depth, 3), c.tensorOf(k.Type, k.Heads*k.Queries*k.Depth, 4)
	k.Query, k.Key, k.Value, k.Output = q.addr(), key.addr(), v.addr(), y.addr()
	qs, ks, vs, want := q.get(k.Type), key.get(k.Type), v.get(k.Type), make([]float64, k.Heads*k.Queries*k.Depth)
	for row := range k.Heads * k.Queries {
		base, sum := row/k.Queries*k.Keys, 0.0
		for j := range k.Keys {
			s := 0.0
			for d := range k.Depth {
				s += qs[row*k.Depth+d] * ks[(base+j)*k.Depth+d]
			}
			weight := math.Exp(s * k.Scale)
			sum += weight
			for d := range k.Depth {
				want[row*k.Depth+d] += weight * vs[(base+j)*k.Depth+d]
			}
		}
		for d := range k.Depth {
			want[row*k.Depth+d] /= sum
		}
	}
	c.run(k.Launch(c.arch))
	// Weights are rounded, too, and there are many: their errors add.
	got := y.get(k.Type)
	for i := range want {
		epsilon := map[kernels.Type]float64{kernels.F32: 1e-4, kernels.F16: 4e-3, kernels.BF16: 3e-2}[k.Type]
		require.InDelta(t, want[i], got[i], epsilon, "element %d", i)
	}
}

func TestAttentionIsSoftmaxOfProducts(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) {
		k := kernels.Attention{Type: rapid.SampledFrom(types).Draw(t, "type"), Scale: 0.125}
		side := rapid.Int64Range(1, 70)
		k.Queries, k.Keys, k.Heads = side.Draw(t, "queries"), side.Draw(t, "keys"),
			rapid.Int64Range(1, 2).Draw(t, "heads")
		k.Depth = rapid.SampledFrom([]int64{8, 16, 40, 64, 7, 33}).Draw(t, "depth")
		checkAttention(t, c, k)
	})
}

func TestAttentionOverSeveralBlocksOfKeys(t *testing.T) {
	onEveryArch(t, func(t *testing.T, c *cpu) {
		for _, typ := range types {
			checkAttention(t, c, kernels.Attention{
				Type: typ, Queries: 66, Keys: 140, Depth: 128,
				Heads: 1, Scale: 0.05,
			})
			checkAttention(t, c, kernels.Attention{Type: typ, Queries: 3, Keys: 9, Depth: 256, Heads: 2, Scale: 0.05})
		}
	})
}

func TestAttentionRunsInTilesWhereItCan(t *testing.T) {
	for _, tt := range []struct {
		typ        kernels.Type
		depth      int64
		capability int
		want       string
	}{
		{kernels.F16, 64, 90, "attention_f16"},
		{kernels.F16, 64, 75, "attention_f16"},
		{kernels.F16, 64, 70, "attention_f16"},
		{kernels.BF16, 128, 80, "attention_bf16"},
		{kernels.BF16, 128, 75, "attention_bf16"},
		{kernels.F16, 160, 90, "attention_any"},
		{kernels.F16, 20, 90, "attention_any"},
		{kernels.F32, 64, 90, "attention_f32"},
		{kernels.F32, 130, 90, "attention_any"},
	} {
		l := kernels.Attention{Type: tt.typ, Queries: 1, Keys: 1, Heads: 1, Depth: tt.depth}.Launch(tt.capability)
		require.Equal(t, tt.want, l.Name)
	}
}
