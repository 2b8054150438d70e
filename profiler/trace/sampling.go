package trace

import (
	"github.com/vprof/vprof/internal/lists"
	"math"
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Multinomial records torch.multinomial(x, n, replacement): n places of each row, drawn
// with the weights x.
func (x *Tensor) Multinomial(n int64, replacement bool) *Tensor {
	c := x.tape.begin("multinomial", x)
	y := c.let(c.t.empty(I64, lists.With(x.shape, x.dim(-1), n)...))
	if replacement && n > 1 {
		// Weights that sum to one, their sums so far, and random numbers.
		for range 3 {
			c.let(x.emptyLike(x.dtype))
		}
		c.t.launch(program.Index, x.numel, []*Tensor{y}, []*Tensor{x})
		return c.end(y)
	}
	c.let(x.checkWeights())
	x.checkSums(c)
	q := c.let(x.emptyLike(x.dtype))
	c.t.launchElementwise(q, 8, x)
	if n > 1 {
		values := c.let(c.t.empty(x.dtype, y.shape...))
		c.t.launchSort(values, y, q)
		c.drop(values)
	} else {
		c.t.launch(program.Reduction, x.numel, []*Tensor{y}, []*Tensor{q})
	}
	c.drop(q)
	return c.end(y)
}

// checkWeights records (self.max() < inf) & (self.min() >= 0).
func (x *Tensor) checkWeights() *Tensor {
	c := x.tape.begin("multinomial", x)
	largest := c.let(c.t.empty(x.dtype))
	finite := c.let(c.t.empty(Bool))
	smallest := c.let(c.t.empty(x.dtype))
	positive := c.let(c.t.empty(Bool))
	valid := c.t.empty(Bool)
	c.t.launch(program.Reduction, x.numel, []*Tensor{valid, finite, positive}, []*Tensor{x, largest, smallest})
	return c.end(valid)
}

// checkSums records (self.sum(-1) == 0).any(), which the host reads. The last result lives as
// long as the caller.
func (x *Tensor) checkSums(caller *call) {
	c := x.tape.begin("multinomial", x)
	sums := c.let(c.t.empty(x.dtype, x.shape[:len(x.shape)-1]...))
	zero := c.let(c.t.empty(Bool, sums.shape...))
	c.t.launch(program.Reduction, x.numel, []*Tensor{sums, zero}, []*Tensor{x})
	if len(x.shape) > 1 {
		zero = c.t.empty(Bool)
	}
	caller.let(c.end(zero))
	caller.drop(caller.let(c.t.empty(Bool)))
}

// RandPerm records torch.randperm(n): random keys are sorted, and the places with them.
func (t *Tape) RandPerm(n int64, d DType) *Tensor {
	c := t.begin("randperm")
	y := c.let(t.empty(d, n))
	c.drop(c.let(t.empty(I64)))
	places := c.let(t.empty(d, n))
	// As many bits as keep two equal keys in one of ten draws apart.
	wanted := math.Ceil(math.Log2(float64(n) - (6*float64(n)*float64(n)+1)/(12*math.Log(0.9))))
	key, bits := I64, min(64, int(wanted))
	if bits <= 32 {
		key = I32
	}
	keys, sorted := c.let(t.empty(key, n)), c.let(t.empty(key, n))
	t.radixSort(sorted, y, keys, places, bits)
	return c.end(y)
}

// BlockDiag records torch.block_diag(xs) of matrices, vectors and numbers.
func BlockDiag(xs ...*Tensor) *Tensor {
	t := xs[0].tape
	c := t.beginList("block_diag", xs)
	d := xs[0].dtype
	var rows, columns int64
	sizes, shapes := make([][2]int64, len(xs)), make([][]int64, len(xs))
	for i, x := range xs {
		d = promote(d, x.dtype)
		sizes[i], shapes[i] = [2]int64{1, 1}, x.shape
		shape := slices.Concat([]int64{1, 1}, x.shape)
		copy(sizes[i][:], shape[len(shape)-2:])
		rows, columns = rows+sizes[i][0], columns+sizes[i][1]
	}
	y := t.Filled("block_diag", d, rows, columns)
	t.launch(program.Copy, 0, []*Tensor{y}, xs)
	return c.end(y.derived("BlockDiagBackward0", xs, nil, func(b *backward) {
		var row, column int64
		for i, s := range sizes {
			if b.needs(i) {
				part := b.grad.Slice(0, row, row+s[0]).Slice(1, column, column+s[1])
				if len(shapes[i]) < 2 {
					part = part.reshape(shapes[i])
				}
				b.out[i] = part.retain()
			}
			row, column = row+s[0], column+s[1]
		}
		b.statement()
	}))
}
