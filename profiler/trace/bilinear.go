package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
)

// Bilinear records torch.nn.functional.bilinear(x, z, weight, bias): one product of both
// inputs with a matrix for each output. Autocast leaves it as it is.
func (x *Tensor) Bilinear(z, weight, bias *Tensor) *Tensor {
	c := x.tape.Begin("bilinear", x, z, weight, bias)
	lead := slices.Clone(x.shape[:len(x.shape)-1])
	outs := weight.shape[0]
	rows := Numel(lead)
	a, b := c.Let(x.Reshape(rows, x.shape[len(lead)])), c.Let(z.Reshape(rows, z.shape[len(lead)]))
	y := c.Let(a.trilinear(b, weight).Reshape(append(lead, outs)...))
	if bias != nil {
		c.Set(&y, y.Add(bias))
	}
	return c.End(y)
}

// trilinear records _trilinear as bilinear calls it, which computes one output after the
// other.
func (x *Tensor) trilinear(z, weight *Tensor) *Tensor {
	t := x.tape
	c := t.Begin("_trilinear", x, weight, z)
	rows, inner, outer, outs := x.shape[0], x.shape[1], z.shape[1], weight.shape[0]
	y := c.Let(t.Filled("_trilinear", x.dtype, rows, outs))
	for range outs {
		c.eachOutput(x.dtype, y, rows*outer, rows)
	}
	return c.End(y.Derived("TrilinearBackward0", inputs{x, weight, z}, saves{x, weight, z}, func(b *Gradients) {
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
			g := c.Let(t.Filled("_trilinear", b.Grad.dtype, shapes[i]...))
			for range outs {
				c.eachOutput(g.dtype, g, sizes[i]...)
			}
			b.Out[i] = c.End(g).Retain()
		}
		b.EndStatement()
	}))
}

// eachOutput records a step of _trilinear's loop: products and their sums.
func (c *Call) eachOutput(d DType, into *Tensor, sizes ...int64) {
	t := c.t
	parts := lists.Map(sizes, func(n int64) *Tensor { return c.Let(t.Alloc(d, n)) })
	t.LaunchElementwise(into, 1, parts...)
	c.DropAll(parts...)
}
