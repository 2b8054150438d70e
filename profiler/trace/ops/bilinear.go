package ops

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
)

// Bilinear records torch.nn.functional.bilinear(x, z, weight, bias), one matrix per output. Autocast does not cast it.
func Bilinear(x *tensor, z, weight, bias *tensor) *tensor {
	c := x.Tape().Begin("bilinear", x, z, weight, bias)
	lead := slices.Clone(x.Shape()[:len(x.Shape())-1])
	outs := weight.Shape()[0]
	rows := trace.Numel(lead)
	a, b := c.Bind(x.Reshape(rows, x.Shape()[len(lead)])), c.Bind(z.Reshape(rows, z.Shape()[len(lead)]))
	y := c.Bind(trilinear(a, b, weight).Reshape(append(lead, outs)...))
	if bias != nil {
		c.Set(&y, y.Add(bias))
	}
	return c.End(y)
}

// trilinear records _trilinear as bilinear calls it: in a loop over the outputs.
func trilinear(x *tensor, z, weight *tensor) *tensor {
	t := x.Tape()
	c := t.Begin("_trilinear", x, weight, z)
	rows, inner, outer, outs := x.Shape()[0], x.Shape()[1], z.Shape()[1], weight.Shape()[0]
	y := c.Bind(t.Filled("_trilinear", x.DType(), rows, outs))
	for range outs {
		eachOutput(c, x.DType(), y, rows*outer, rows)
	}
	return c.End(y.SetGradFn("TrilinearBackward0", inputs{x, weight, z}, saves{x, weight, z}, func(b *backward) {
		sizes := [3][]int64{
			{inner * outer * rows, rows * inner},
			{rows * inner, inner * outer},
			{rows * outer, rows * outer},
		}
		shapes := [3][]int64{{rows, inner}, {outs, inner, outer}, {rows, outer}}
		for i := range sizes {
			if !b.Needs(i) {
				continue
			}
			c := t.Begin("_trilinear", b.Grad)
			g := c.Bind(t.Filled("_trilinear", b.Grad.DType(), shapes[i]...))
			for range outs {
				eachOutput(c, g.DType(), g, sizes[i]...)
			}
			b.Out[i] = c.End(g).Retain()
		}
		b.EndStatement()
	}))
}

// eachOutput records an iteration of _trilinear's loop: products of the given sizes, and their sums.
func eachOutput(c *call, d trace.DType, into *tensor, sizes ...int64) {
	t := c.Tape()
	parts := lists.Map(sizes, func(n int64) *tensor { return c.Bind(t.Alloc(d, n)) })
	t.LaunchElementwise(into, 1, parts...)
	c.DropAll(parts...)
}
