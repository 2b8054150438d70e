package ops

import (
	"math"
	"slices"

	"github.com/vprof/vprof/internal/lists"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Multinomial records torch.multinomial(x, n, replacement): n indices for each row of probabilities x.
func Multinomial(x *tensor, n int64, replacement bool) *tensor {
	c := x.Tape().Begin("multinomial", x)
	y := c.Bind(c.Tape().Alloc(trace.I64, lists.Replace(x.Shape(), x.Dim(-1), n)...))
	if replacement && n > 1 {
		// These are the normalized weights, their prefix sums, and random numbers.
		for range 3 {
			c.Bind(x.AllocLike(x.DType()))
		}
		c.Tape().Launch(program.Index, x.Numel(), []*tensor{y}, []*tensor{x})
		return c.End(y)
	}
	c.Bind(checkWeights(x))
	checkSums(x, c)
	q := c.Bind(x.AllocLike(x.DType()))
	c.Tape().LaunchElementwise(q, 8, x)
	if n > 1 {
		values := c.Bind(c.Tape().Alloc(x.DType(), y.Shape()...))
		c.Tape().LaunchSort(values, y, q)
		c.Drop(values)
	} else {
		c.Tape().Launch(program.Reduction, x.Numel(), []*tensor{y}, []*tensor{q})
	}
	c.Drop(q)
	return c.End(y)
}

// checkWeights records (self.max() < inf) & (self.min() >= 0).
func checkWeights(x *tensor) *tensor {
	c := x.Tape().Begin("multinomial", x)
	largest := c.Bind(c.Tape().Alloc(x.DType()))
	finite := c.Bind(c.Tape().Alloc(trace.Bool))
	smallest := c.Bind(c.Tape().Alloc(x.DType()))
	positive := c.Bind(c.Tape().Alloc(trace.Bool))
	valid := c.Tape().Alloc(trace.Bool)
	c.Tape().Launch(program.Reduction, x.Numel(), []*tensor{valid, finite, positive}, []*tensor{x, largest, smallest})
	return c.End(valid)
}

// checkSums records (self.sum(-1) == 0).any(), which the host reads. The result lives until caller ends.
func checkSums(x *tensor, caller *call) {
	c := x.Tape().Begin("multinomial", x)
	sums := c.Bind(c.Tape().Alloc(x.DType(), x.Shape()[:len(x.Shape())-1]...))
	zero := c.Bind(c.Tape().Alloc(trace.Bool, sums.Shape()...))
	c.Tape().Launch(program.Reduction, x.Numel(), []*tensor{sums, zero}, []*tensor{x})
	if len(x.Shape()) > 1 {
		zero = c.Tape().Alloc(trace.Bool)
	}
	caller.Bind(c.End(zero))
	caller.Drop(caller.Bind(c.Tape().Alloc(trace.Bool)))
}

// RandPerm records torch.randperm(n), which sorts the numbers 0 to n-1 by random keys.
func RandPerm(t *tape, n int64, d trace.DType) *tensor {
	c := t.Begin("randperm")
	y := c.Bind(t.Alloc(d, n))
	c.Drop(c.Bind(t.Alloc(trace.I64)))
	places := c.Bind(t.Alloc(d, n))
	// With this number of bits, all keys differ with a probability of 0.9.
	wanted := math.Ceil(math.Log2(float64(n) - (6*float64(n)*float64(n)+1)/(12*math.Log(0.9))))
	key, bits := trace.I64, min(64, int(wanted))
	if bits <= 32 {
		key = trace.I32
	}
	keys, sorted := c.Bind(t.Alloc(key, n)), c.Bind(t.Alloc(key, n))
	t.RadixSort(sorted, y, keys, places, bits)
	return c.End(y)
}

// BlockDiag records torch.block_diag(xs) of matrices, vectors and numbers.
func BlockDiag(xs ...*tensor) *tensor {
	t := xs[0].Tape()
	c := t.BeginList("block_diag", xs)
	d := xs[0].DType()
	var rows, columns int64
	sizes, shapes := make([][2]int64, len(xs)), make([][]int64, len(xs))
	for i, x := range xs {
		d = trace.PromoteTypes(d, x.DType())
		sizes[i], shapes[i] = [2]int64{1, 1}, x.Shape()
		shape := slices.Concat([]int64{1, 1}, x.Shape())
		copy(sizes[i][:], shape[len(shape)-2:])
		rows, columns = rows+sizes[i][0], columns+sizes[i][1]
	}
	y := t.Filled("block_diag", d, rows, columns)
	t.Launch(program.Copy, 0, []*tensor{y}, xs)
	return c.End(y.SetGradFn("BlockDiagBackward0", xs, nil, func(b *backward) {
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
