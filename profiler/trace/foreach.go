package trace

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// Operators on lists of tensors, and pointwise operators without autograd, for optimizers, clipping and loss scaling.

// multiTensorChunk is the number of elements that a block of multi_tensor_apply processes (kChunkSize of
// ATen/native/cuda/MultiTensorApply.cuh).
const multiTensorChunk = 65536

// multiTensorMax is the largest number of tensors in one launch, by the number of lists (depth_to_max_tensors there).
var multiTensorMax = [...]int{110, 64, 48, 36, 30}

// ForeachNew records torch._foreach_<op>, which returns a list with a result for each tensor of the first list. The
// caller must bind the results (see [Frame.BindList]) or discard them.
func ForeachNew(op string, flops int64, args ...[]*Tensor) []*Tensor {
	if len(args[0]) == 0 {
		return nil
	}
	t := args[0][0].tape
	c := t.beginForeach(op, args[0])
	out := lists.Map(args[0], func(x *Tensor) *Tensor { return x.AllocLike(x.dtype) })
	t.launchForeach(flops, out, args)
	return c.EndAll(out...)
}

// beginForeach starts a call of an operator on lists, on the GPU of the list xs.
func (t *Tape) beginForeach(op string, xs []*Tensor) *Call {
	c := t.Begin(op)
	if t.ranks.spread != nil {
		t.runWith(xs)
	}
	return c
}

// ForeachUpdate records torch._foreach_<op>_ with flops operations per element. It reads and writes the tensors of out,
// and reads lists of the same length. Shorter lists hold scalars, whose reads do not count.
func ForeachUpdate(op string, flops int64, out []*Tensor, lists ...[]*Tensor) {
	if len(out) == 0 {
		return
	}
	t := out[0].tape
	c := t.beginForeach(op, out)
	t.launchForeach(flops, out, append([][]*Tensor{out}, lists...))
	c.Finish()
}

// launchForeach launches the kernels of an operator on lists. A kernel takes as many tensors as fit its arguments.
func (t *Tape) launchForeach(flops int64, out []*Tensor, lists [][]*Tensor) {
	most := multiTensorMax[min(len(lists), len(multiTensorMax))-1]
	for from := 0; from < len(out); from += most {
		to := min(from+most, len(out))
		reads := make([]*Tensor, 0, len(lists)*(to-from))
		for _, list := range lists {
			if len(list) == len(out) {
				reads = append(reads, list[from:to]...)
			}
		}
		t.Launch(program.OptimizerUpdate, flops*TotalNumel(out[from:to]), out[from:to], reads)
	}
}

// ForeachNorm records torch._foreach_norm: one norm for each tensor of the list.
func ForeachNorm(xs []*Tensor) []*Tensor {
	t := xs[0].tape
	c := t.beginForeach("_foreach_norm_Scalar", xs)
	d := xs[0].dtype
	partial := t.normPartials(c, xs)
	t.native = "foreach_tensor_norm_cuda_internal"
	out := lists.Map(xs, func(*Tensor) *Tensor { return t.Alloc(d) })
	t.Launch(program.Reduction, 2*TotalNumel(xs), []*Tensor{partial}, xs)
	t.Launch(program.Reduction, partial.numel, out, []*Tensor{partial})
	return c.EndAll(out...)
}

// normPartials allocates the partial results of the norms of a list.
func (t *Tape) normPartials(c *Call, xs []*Tensor) *Tensor {
	most, all := int64(0), int64(0)
	for _, x := range xs {
		chunks := ceil.Div(x.numel, multiTensorChunk)
		most, all = max(most, chunks), all+chunks
	}
	n, acc := int64(len(xs)), xs[0].dtype.accumulate()
	if t.rules.Operators.ForeachNormByChunk {
		c.Bind(t.Alloc(I64, n+1)) // where each tensor's begin, and the end
		return c.Bind(t.Alloc(acc, all))
	}
	t.native = "zeros_symint"
	partial := c.Bind(t.Alloc(acc, n*most))
	t.LaunchFill(partial)
	return partial
}

// TotalNumel returns the number of elements of all tensors.
func TotalNumel(xs []*Tensor) int64 { return lists.Sum(xs, (*Tensor).Numel) }

// Pointwise records the elementwise operator op with a new result, without autograd.
func Pointwise(op string, flops int64, xs ...*Tensor) *Tensor {
	t := xs[0].tape
	c := t.Begin(op, xs...)
	return c.End(t.Map(op, resultType(xs...), flops, xs...))
}

// Update records the elementwise operator op in place, without autograd: it reads out and xs, writes out, and returns
// out.
func Update(op string, flops int64, out *Tensor, xs ...*Tensor) *Tensor {
	c := out.tape.Begin(op, append([]*Tensor{out}, xs...)...)
	c.t.LaunchElementwise(out, flops, append([]*Tensor{out}, xs...)...)
	return c.End(out)
}

// Compare records a comparison of x with a number, which returns a mask.
func Compare(op string, x *Tensor) *Tensor { return x.CompareScalar(op) }

// VectorNorm records torch.linalg.vector_norm of x over dims, or all dimensions, without autograd.
func VectorNorm(x *Tensor, keep bool, dims ...int) *Tensor {
	return x.reduce(reduction{op: "linalg_vector_norm", out: x.dtype, accSize: x.dtype.accumulate().Size()}, dims, keep)
}

// Copy records x.to(device, copy=True) without autograd.
func Copy(x *Tensor) *Tensor {
	c := x.tape.Begin("to_dtype_layout", x)
	y := x.AllocLike(x.dtype)
	c.t.LaunchCopy(y, x)
	return c.End(y)
}
