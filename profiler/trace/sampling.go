package trace

import (
	"math"
	"slices"

	"github.com/vprof/vprof/internal/lists"

	"github.com/vprof/vprof/profiler/program"
)

// Multinomial records torch.multinomial(x, n, replacement): n places of each row, drawn
// with the weights x.
func (x *Tensor) Multinomial(n int64, replacement bool) *Tensor {
	c := x.tape.Begin("multinomial", x)
	y := c.Let(c.t.Alloc(I64, lists.With(x.shape, x.Dim(-1), n)...))
	if replacement && n > 1 {
		// Weights that sum to one, their sums so far, and random numbers.
		for range 3 {
			c.Let(x.AllocLike(x.dtype))
		}
		c.t.Launch(program.Index, x.numel, []*Tensor{y}, []*Tensor{x})
		return c.End(y)
	}
	c.Let(x.checkWeights())
	x.checkSums(c)
	q := c.Let(x.AllocLike(x.dtype))
	c.t.LaunchElementwise(q, 8, x)
	if n > 1 {
		values := c.Let(c.t.Alloc(x.dtype, y.shape...))
		c.t.LaunchSort(values, y, q)
		c.Drop(values)
	} else {
		c.t.Launch(program.Reduction, x.numel, []*Tensor{y}, []*Tensor{q})
	}
	c.Drop(q)
	return c.End(y)
}

// checkWeights records (self.max() < inf) & (self.min() >= 0).
func (x *Tensor) checkWeights() *Tensor {
	c := x.tape.Begin("multinomial", x)
	largest := c.Let(c.t.Alloc(x.dtype))
	finite := c.Let(c.t.Alloc(Bool))
	smallest := c.Let(c.t.Alloc(x.dtype))
	positive := c.Let(c.t.Alloc(Bool))
	valid := c.t.Alloc(Bool)
	c.t.Launch(program.Reduction, x.numel, []*Tensor{valid, finite, positive}, []*Tensor{x, largest, smallest})
	return c.End(valid)
}

// checkSums records (self.sum(-1) == 0).any(), which the host reads. The last result lives as
// long as the caller.
func (x *Tensor) checkSums(caller *Call) {
	c := x.tape.Begin("multinomial", x)
	sums := c.Let(c.t.Alloc(x.dtype, x.shape[:len(x.shape)-1]...))
	zero := c.Let(c.t.Alloc(Bool, sums.shape...))
	c.t.Launch(program.Reduction, x.numel, []*Tensor{sums, zero}, []*Tensor{x})
	if len(x.shape) > 1 {
		zero = c.t.Alloc(Bool)
	}
	caller.Let(c.End(zero))
	caller.Drop(caller.Let(c.t.Alloc(Bool)))
}

// RandPerm records torch.randperm(n): random keys are sorted, and the places with them.
func (t *Tape) RandPerm(n int64, d DType) *Tensor {
	c := t.Begin("randperm")
	y := c.Let(t.Alloc(d, n))
	c.Drop(c.Let(t.Alloc(I64)))
	places := c.Let(t.Alloc(d, n))
	// As many bits as keep two equal keys in one of ten draws apart.
	wanted := math.Ceil(math.Log2(float64(n) - (6*float64(n)*float64(n)+1)/(12*math.Log(0.9))))
	key, bits := I64, min(64, int(wanted))
	if bits <= 32 {
		key = I32
	}
	keys, sorted := c.Let(t.Alloc(key, n)), c.Let(t.Alloc(key, n))
	t.RadixSort(sorted, y, keys, places, bits)
	return c.End(y)
}

// BlockDiag records torch.block_diag(xs) of matrices, vectors and numbers.
func BlockDiag(xs ...*Tensor) *Tensor {
	t := xs[0].tape
	c := t.BeginList("block_diag", xs)
	d := xs[0].dtype
	var rows, columns int64
	sizes, shapes := make([][2]int64, len(xs)), make([][]int64, len(xs))
	for i, x := range xs {
		d = PromoteTypes(d, x.dtype)
		sizes[i], shapes[i] = [2]int64{1, 1}, x.shape
		shape := slices.Concat([]int64{1, 1}, x.shape)
		copy(sizes[i][:], shape[len(shape)-2:])
		rows, columns = rows+sizes[i][0], columns+sizes[i][1]
	}
	y := t.Filled("block_diag", d, rows, columns)
	t.Launch(program.Copy, 0, []*Tensor{y}, xs)
	return c.End(y.Derived("BlockDiagBackward0", xs, nil, func(b *Gradients) {
		var row, column int64
		for i, s := range sizes {
			if b.Needs(i) {
				part := b.Grad.Slice(0, row, row+s[0]).Slice(1, column, column+s[1])
				if len(shapes[i]) < 2 {
					part = part.AsShape(shapes[i])
				}
				b.Out[i] = part.Retain()
			}
			row, column = row+s[0], column+s[1]
		}
		b.EndStatement()
	}))
}
