package trace

import (
	"math/bits"
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Embedding is torch.nn.functional.embedding(x, weight): rows of the weight.
func (x *Tensor) Embedding(weight *Tensor) *Tensor {
	if of, shared := x.tape.splits[weight]; shared {
		return x.parallelEmbedding(weight, of)
	}
	c := x.tape.begin("embedding", x, weight)
	flat := x.reshape([]int64{x.numel}) // an expanded x is copied
	y := c.t.empty(weight.dtype, slices.Concat(x.shape, weight.shape[1:])...)
	c.t.launch(program.Index, y.numel, []*Tensor{y}, []*Tensor{flat, weight.touched(y.numel)})
	rows := weight.shape[0]
	return c.end(y.derived("EmbeddingBackward0", inputs{weight}, saves{x},
		func(b *backward) { b.give(0, b.grad.embeddingBackward(b.saved(0), rows)) }))
}

// Up to this many indices the gradient of an embedding is added up without
// sorting them (embedding_dense_backward_cuda).
const embeddingUnsorted = 3072

// embeddingBackward is embedding_dense_backward_cuda.
func (g *Tensor) embeddingBackward(indices *Tensor, rows int64) *Tensor {
	c := g.tape.begin("embedding_backward", g, indices)
	indices = c.let(indices.contiguousUntracked())
	grad := c.let(g.contiguousUntracked())
	n := indices.numel
	if n <= embeddingUnsorted {
		weight := c.let(c.t.Zeros(g.dtype, rows, g.Size(-1)))
		c.t.launch(program.Index, g.numel, []*Tensor{weight.touched(g.numel)}, []*Tensor{grad, indices})
		return c.end(weight)
	}
	sorted := c.let(c.t.empty(indices.dtype, n))
	order := c.let(c.t.empty(indices.dtype, n))
	positions := c.let(c.t.Arange(n))
	keyBits := int(8 * indices.dtype.Size())
	if c.t.rules.Operators.EmbeddingSortsFewBits {
		keyBits = bits.Len64(uint64(rows - 1))
	}
	c.t.radixSort(sorted, order, indices, positions, keyBits)
	c.drop(positions)
	return c.end(grad.embeddingSegments(sorted, order, rows))
}

// embeddingSegments is embedding_backward_cuda_kernel: runs of equal indices
// are cut into parts of ten, the parts summed, and the sums scattered.
func (g *Tensor) embeddingSegments(sorted, order *Tensor, rows int64) *Tensor {
	const rowsPerThread = 10 // NROWS_PER_THREAD
	c := g.tape.begin("embedding_backward_cuda_kernel")
	n, width, d := sorted.numel, g.Size(-1), sorted.dtype
	weight := c.let(c.t.Zeros(g.dtype, rows, width))
	segments := c.let(c.t.empty(d, n))
	count := c.let(c.t.empty(I64))
	c.t.uniqueByKey(sorted, segments, count)
	most := min(n, rows)
	parts := c.let(c.t.empty(d, most))
	starts := c.let(c.t.empty(d, most))
	c.t.scan(parts, starts)
	partCount := c.let(c.t.empty(I64))
	partStarts := c.let(c.t.empty(d, n/rowsPerThread+most))
	sums := c.let(c.t.empty(g.dtype.accumulate(), partStarts.numel, width))
	c.t.launch(program.Index, g.numel, []*Tensor{sums}, []*Tensor{g, order, partStarts, partCount})
	c.t.launch(program.Index, sums.numel, []*Tensor{weight.touched(sums.numel)},
		[]*Tensor{sums, segments, starts, count})
	return c.end(weight)
}
