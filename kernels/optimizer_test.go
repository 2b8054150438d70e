package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/kernels"
)

// partsOf allocates tensors in lists that run in parallel.
func (c *cpu) partsOf(t *rapid.T, lists int, size int64) (parts []kernels.Part, tensors [][]tensor) {
	elements := rapid.OneOf(rapid.Int64Range(0, 20), rapid.SampledFrom([]int64{8191, 8192, 8193, 16385}))
	for range rapid.IntRange(1, min(8, kernels.MaxParts(lists))).Draw(t, "tensors") {
		p, row := kernels.Part{Bytes: elements.Draw(t, "elements") * size}, []tensor{}
		for range lists {
			x := c.alloc(p.Bytes, offsets.Draw(t, "offset")&^3)
			p.Addrs, row = append(p.Addrs, x.addr()), append(row, x)
		}
		parts, tensors = append(parts, p), append(tensors, row)
	}
	return parts, tensors
}

func TestUpdateWorksOnAllTensors(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) {
		typ := rapid.SampledFrom(types).Draw(t, "type")
		lists := rapid.IntRange(1, 5).Draw(t, "lists")
		mask := rapid.Uint64Range(0, 1<<lists-1)
		k := kernels.Update{
			Type: typ, Read: mask.Draw(t, "read"), Written: mask.Draw(t, "written"), Rounds: 1,
			Scale: 0.5, Shift: 1,
		}
		var tensors [][]tensor
		k.Parts, tensors = c.partsOf(t, lists, typ.Size())
		var wants [][]float64
		for p, row := range tensors {
			want := make([]float64, k.Parts[p].Bytes/typ.Size())
			for l, x := range row {
				x.set(typ, func(i int) float64 { return small(l, i) })
				for i, v := range x.get(typ) {
					want[i] += v * float64(k.Read>>l&1)
				}
			}
			for i := range want {
				want[i] = round(typ, 0.5*want[i]+1)
			}
			wants = append(wants, want)
		}
		c.run(k.Launch())
		for p, row := range tensors {
			for l, x := range row {
				if k.Written>>l&1 == 1 {
					near(t, typ, wants[p], x.get(typ), "written")
				}
			}
		}
	})
}

// Arguments of a kernel may take 4 KiB on drivers before CUDA 12.1.
func TestArgumentsFitEveryDriver(t *testing.T) {
	require.Equal(t, 160, kernels.MaxParts(1))
	parts := make([]kernels.Part, kernels.MaxParts(4))
	for i := range parts {
		parts[i].Addrs = make([]uint64, 4)
	}
	require.LessOrEqual(t, 8*len(kernels.Update{Parts: parts}.Launch().Args), 4096)
}
