package trace

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// reduceGeometry is the shape of a reduction in ATen's kernels, after TensorIterator has sorted and merged dimensions.
type reduceGeometry struct {
	dims            []reduceDim // fastest first, the reduced ones in front
	reducedDims     int
	inputs, outputs int64 // per output, and how many
	slow            int64 // bytes between neighbors along the first dimension not reduced
}

// reduceDim is a dimension of a reduction: its size, and its strides in bytes in the input and in the output. The
// output stride of a reduced dimension is zero.
type reduceDim struct{ size, in, out int64 }

// reduceGeometry computes the geometry of a sum of x over the dimensions marked in reduced. outSize is the size of an
// output element in bytes. The dimensions are appended to dst, which is empty.
func (x *Tensor) reduceGeometry(dst []reduceDim, reduced []bool, outSize int64) reduceGeometry {
	g := reduceGeometry{dims: dst, inputs: 1, outputs: 1}
	out := outSize
	var buf [8]int
	for _, d := range sortDimensions(buf[:0], x.shape, []*Tensor{x}, reduced) {
		dim := reduceDim{size: x.shape[d], in: x.strides[d] * x.dtype.Size()}
		if reduced[d] {
			g.inputs *= dim.size
		} else {
			g.outputs *= dim.size
			dim.out = out
			out *= dim.size
		}
		if n := len(g.dims); n == 0 || !g.dims[n-1].merge(dim) {
			g.dims = append(g.dims, dim)
		}
	}
	for _, d := range g.dims {
		if d.out == 0 {
			g.reducedDims++
		}
	}
	if g.reducedDims < len(g.dims) {
		g.slow = g.dims[g.reducedDims].in
	}
	return g
}

// merge joins dimension next to d if their strides allow it (coalesce_dimensions).
func (d *reduceDim) merge(next reduceDim) bool {
	switch {
	case d.size == 1:
		*d = next
	case next.size == 1 || d.size*d.in == next.in && d.size*d.out == next.out:
		d.size *= next.size
	default:
		return false
	}
	return true
}

// reduceBlock is the assignment of a reduction kernel's thread block to the tensor (ReduceConfig of Reduce.cuh).
type reduceBlock struct {
	width, height int64
	outVec        int64 // outputs one thread makes
	// stepIn and stepOut count the inputs and outputs that a block processes at once.
	stepIn, stepOut int64
	// acrossX and acrossY report whether the threads of a row and of a column of the block reduce to the same output.
	acrossX, acrossY bool
}

// block implements the first part of setReduceConfig (ATen/native/cuda/Reduce.cuh): the shape of a block. vt0 is the
// number of values that a thread loads at once.
func (g reduceGeometry) block(inSize, vt0 int64) reduceBlock {
	const maxThreads, warp = 512, 32
	b := reduceBlock{outVec: 1, stepIn: 1, stepOut: 1, acrossX: true}
	dim0, dim1, stride := int64(1), int64(1), inSize
	if len(g.dims) > 0 {
		b.acrossX = g.reducedDims == len(g.dims) || g.dims[0].in < g.slow
		if b.acrossX {
			dim0, dim1, stride = g.inputs, g.outputs, g.dims[0].in
		} else {
			dim0, dim1, stride = g.outputs, g.inputs, g.slow
		}
	}
	switch {
	case stride != inSize:
	case !b.acrossX:
		b.outVec = g.outputVec(inSize)
		dim0 /= b.outVec
	case dim0 > 128 && len(g.dims) == 1 && vt0 >= 4:
		dim0 /= 4
	}
	limit := maxThreads / b.outVec
	p0, p1 := min(lastPow2(dim0), limit), min(lastPow2(dim1), limit)
	b.width = min(p0, warp)
	b.height = min(p1, limit/b.width)
	b.width = min(p0, limit/b.height)
	if b.acrossX {
		b.stepIn *= b.width
	} else {
		b.stepOut *= b.width
	}
	b.acrossY = b.perThread(g) >= min(b.height*16, 256)
	if b.acrossY {
		b.stepIn *= b.height
	} else {
		b.stepOut *= b.height
	}
	return b
}

// perThread returns the number of inputs that each thread reduces.
func (b reduceBlock) perThread(g reduceGeometry) int64 { return ceil.Div(g.inputs, b.stepIn) }

// reduceScratch implements the second part of setReduceConfig. If a reduction is split over blocks, it returns the
// bytes of global memory and of semaphores; otherwise zeros. accSize is the accumulator's size, inSize an input
// element's.
func (gpu GPU) reduceScratch(g reduceGeometry, inSize, accSize, vt0 int64) (buffer, semaphores int64) {
	if g.inputs*g.outputs == 0 {
		return 0, 0
	}
	k := g.block(inSize, vt0)
	target := int64(gpu.SMs) * (int64(gpu.ThreadsPerSM) / (k.width * k.height))
	grid := ceil.Div(g.outputs/k.outVec, k.stepOut)
	each := k.perThread(g)
	if !k.acrossY || each < 256 || grid > target {
		return 0, 0
	}
	blocks := max(min(ceil.Div(target, grid), ceil.Div(each, 16)), ceil.Div(each, 256))
	if blocks <= 1 {
		return 0, 0
	}
	buffer = accSize * g.outputs * blocks
	if !k.acrossX {
		buffer *= k.width * k.outVec
	}
	return buffer, 4 * grid
}

// outputVec implements get_output_vec_size: the number of outputs of one thread.
func (g reduceGeometry) outputVec(inSize int64) int64 {
	vec := int64(4)
	update := func(n int64) {
		for n%vec != 0 {
			vec /= 2
		}
	}
	update(g.dims[g.reducedDims].size)
	for i, d := range g.dims {
		if i != g.reducedDims {
			update(d.in / inSize)
		}
	}
	return vec
}

func lastPow2(n int64) int64 {
	if n < 1 {
		return 1
	}
	return 1 << (63 - bits.LeadingZeros64(uint64(n)))
}

// reducedShape returns the shape of a reduction over dims (all if none are given), and marks the reduced dimensions.
func (x *Tensor) reducedShape(dims []int, keep bool) (shape []int64, reduced []bool) {
	shape, reduced = make([]int64, 0, len(x.shape)), make([]bool, len(x.shape))
	for d := range reduced {
		reduced[d] = len(dims) == 0
	}
	for _, d := range dims {
		reduced[x.Dim(d)] = true
	}
	for d, s := range x.shape {
		switch {
		case !reduced[d]:
			shape = append(shape, s)
		case keep:
			shape = append(shape, 1)
		}
	}
	return shape, reduced
}

// reduction describes a kernel of ATen's reduction family.
type reduction struct {
	op      string
	out     DType
	accSize int64 // of the accumulator
	vt0     int64 // values per thread and step; 4 unless the kernel sets it
	// convert reports whether the input is converted to the result's type before. The kernel converts half to fp32.
	convert bool
}

func (x *Tensor) reduce(r reduction, dims []int, keep bool) *Tensor {
	c := x.tape.Begin(r.op, x)
	shape, reduced := x.reducedShape(dims, keep)
	y := c.Bind(c.t.Alloc(r.out, shape...))
	if widens := x.dtype.IsHalf() && r.out == F32; r.convert && x.dtype != r.out && !widens {
		x = c.Bind(x.AsType(r.out))
	}
	x.reduceScratch(c, reduced, r.out.Size(), r.accSize, cmp.Or(r.vt0, 4))
	c.t.Launch(program.Reduction, x.numel, []*Tensor{y}, []*Tensor{x})
	return c.End(y)
}

// reduceScratch allocates the scratch memory that a reduction of x over the marked dimensions needs in operator c.
func (x *Tensor) reduceScratch(c *Call, reduced []bool, outSize, accSize, vt0 int64) {
	t := x.tape
	var buf [8]reduceDim
	g := x.reduceGeometry(buf[:0], reduced, outSize)
	in := x.dtype.Size()
	scratch := func(n int64) *Tensor { return c.Bind(t.scratch(n)) }
	split := t.sizedByGPU(func(gpu int) int64 {
		buffer, _ := t.gpus.all[gpu].reduceScratch(g, in, accSize, vt0)
		return buffer
	}, scratch)
	if !split {
		return
	}
	t.sizedByGPU(func(gpu int) int64 {
		_, semaphores := t.gpus.all[gpu].reduceScratch(g, in, accSize, vt0)
		return semaphores
	}, scratch)
}

// SumUncast records at::sum over dims, inside of autocast; no dims means all.
func (x *Tensor) SumUncast(op string, dims []int, keep bool) *Tensor {
	return x.sumAs(op, sumType(x.dtype), dims, keep)
}

// sumAs records [Tensor.SumUncast] with a result of type d.
func (x *Tensor) sumAs(op string, d DType, dims []int, keep bool) *Tensor {
	return x.reduce(reduction{op: op, out: d, accSize: d.accumulate().Size(), convert: true}, dims, keep)
}

// sumType returns the result type of a sum of elements of type d: 64-bit for integers.
func sumType(d DType) DType {
	if !d.differentiable() {
		return I64
	}
	return d
}

// Sum records x.sum(dims); no dims means all. Autocast runs it in fp32.
func (x *Tensor) Sum(keep bool, dims ...int) *Tensor {
	op, node := "sum_dim_IntList", "SumBackward1"
	if len(dims) == 0 {
		op, node = "sum", "SumBackward0"
	}
	c := x.tape.Begin(op, x)
	y := x.sumAs(op, sumType(c.fullResult(x.dtype)), dims, keep)
	return c.End(y.recordReduction(x, node, dims, keep, false))
}

// SumTo records x.sum(dims, dtype=d). The kernel converts the input.
func (x *Tensor) SumTo(d DType, keep bool, dims ...int) *Tensor {
	c := x.tape.Begin("sum_dim_IntList", x)
	c.BelowAutocast()
	return c.End(x.sumAs("sum_dim_IntList", d, dims, keep).recordReduction(x, "SumBackward1", dims, keep, false))
}

// MeanTo records x.mean(dims, dtype=d).
func (x *Tensor) MeanTo(d DType, keep bool, dims ...int) *Tensor {
	c := x.tape.Begin("mean_dim", x)
	return c.End(x.sumAs("mean_dim", d, dims, keep).recordReduction(x, "MeanBackward1", dims, keep, true))
}

// Mean records x.mean(dims); no dims means all.
func (x *Tensor) Mean(keep bool, dims ...int) *Tensor {
	op, node := "mean_dim", "MeanBackward1"
	if len(dims) == 0 {
		op, node = "mean", "MeanBackward0"
	}
	c := x.tape.Begin(op, x)
	y := x.reduce(reduction{op: op, out: x.dtype, accSize: x.dtype.accumulate().Size()}, dims, keep)
	return c.End(y.recordReduction(x, node, dims, keep, true))
}

// recordReduction sets the autograd node of y, a sum or mean of x. Its backward expands the gradient to the shape of x.
func (y *Tensor) recordReduction(x *Tensor, node string, dims []int, keep, mean bool) *Tensor {
	from := x.shape
	return y.SetGradFn(node, inputs{x}, nil, func(b *Gradients) {
		g := b.Grad.expandGradient(from, dims, keep)
		if mean {
			g = g.DivScalar()
		}
		b.Set(0, g)
	})
}

// expandGradient expands a reduction's gradient to the shape of its input.
func (g *Tensor) expandGradient(shape []int64, dims []int, keep bool) *Tensor {
	if !keep {
		g = g.restoreDims(len(shape), dims)
	}
	return g.Expand(shape...)
}

// sumTo records at::sum_to: it sums x, which was broadcast, to the shape before broadcasting.
func (x *Tensor) sumTo(shape []int64) *Tensor {
	if slices.Equal(x.shape, shape) {
		return x
	}
	c := x.tape.Begin("sum_to", x)
	lead := len(x.shape) - len(shape)
	dims := lists.Ascending(lead)
	for i := lead; i < len(x.shape); i++ {
		if shape[i-lead] == 1 && x.shape[i] != 1 {
			dims = append(dims, i)
		}
	}
	y := x
	if len(dims) > 0 {
		y = x.SumUncast("sum_dim_IntList", dims, true)
	}
	if lead > 0 {
		y = y.View(shape...)
	}
	return c.End(y)
}
