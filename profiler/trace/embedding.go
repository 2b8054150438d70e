package trace

import (
	"math/bits"
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Embedding records torch.nn.functional.embedding(x, weight): rows of the weight.
func (x *Tensor) Embedding(weight *Tensor) *Tensor {
	if of, shared := x.tape.ranks.splits[weight]; shared {
		return x.parallelEmbedding(weight, of)
	}
	c := x.tape.Begin("embedding", x, weight)
	flat := x.AsShape([]int64{x.numel}) // an expanded x is copied
	y := c.t.Alloc(weight.dtype, slices.Concat(x.shape, weight.shape[1:])...)
	c.t.Launch(program.Index, y.numel, []*Tensor{y}, []*Tensor{flat, weight.FirstElements(y.numel)})
	rows := weight.shape[0]
	return c.End(y.SetGradFn("EmbeddingBackward0", inputs{weight}, saves{x},
		func(b *Gradients) { b.Set(0, b.Grad.embeddingBackward(b.Saved(0), rows)) }))
}

// embeddingUnsorted is the number of indices up to which an embedding's gradient is summed without sorting them
// (embedding_dense_backward_cuda).
const embeddingUnsorted = 3072

// embeddingBackward records embedding_dense_backward_cuda.
func (g *Tensor) embeddingBackward(indices *Tensor, rows int64) *Tensor {
	c := g.tape.Begin("embedding_backward", g, indices)
	indices = c.Bind(indices.ContiguousUntracked())
	grad := c.Bind(g.ContiguousUntracked())
	if indices.numel <= embeddingUnsorted {
		weight := c.Bind(c.t.Zeros(g.dtype, rows, g.Size(-1)))
		c.t.Launch(program.Index, g.numel, []*Tensor{weight.FirstElements(g.numel)}, []*Tensor{grad, indices})
		return c.End(weight)
	}
	keyBits := int(8 * indices.dtype.Size())
	if c.t.rules.Operators.EmbeddingSortsFewBits {
		keyBits = bits.Len64(uint64(rows - 1))
	}
	return c.End(c.embeddingOfSorted(grad, indices, keyBits, rows))
}

// embeddingOfSorted records the gradient of an embedding that first sorts the indices by some low bits.
func (c *Call) embeddingOfSorted(grad, indices *Tensor, keyBits int, rows int64) *Tensor {
	sorted := c.Bind(c.t.Alloc(indices.dtype, indices.numel))
	order := c.Bind(c.t.Alloc(indices.dtype, indices.numel))
	positions := c.Bind(c.t.Arange(indices.numel))
	c.t.RadixSort(sorted, order, indices, positions, keyBits)
	c.Drop(positions)
	return grad.embeddingSegments(sorted, order, rows)
}

// embeddingSegments records embedding_backward_cuda_kernel: runs of equal indices are split into parts of ten, the
// parts are summed, and the sums are scattered.
func (g *Tensor) embeddingSegments(sorted, order *Tensor, rows int64) *Tensor {
	const rowsPerThread = 10 // NROWS_PER_THREAD
	c := g.tape.Begin("embedding_backward_cuda_kernel")
	n, width, d := sorted.numel, g.Size(-1), sorted.dtype
	weight := c.Bind(c.t.Zeros(g.dtype, rows, width))
	segments := c.Bind(c.t.Alloc(d, n))
	count := c.Bind(c.t.Alloc(I64))
	c.t.uniqueByKey(sorted, segments, count)
	most := min(n, rows)
	parts := c.Bind(c.t.Alloc(d, most))
	starts := c.Bind(c.t.Alloc(d, most))
	c.t.scan(parts, starts)
	partCount := c.Bind(c.t.Alloc(I64))
	partStarts := c.Bind(c.t.Alloc(d, n/rowsPerThread+most))
	sums := c.Bind(c.t.Alloc(g.dtype.accumulate(), partStarts.numel, width))
	c.t.Launch(program.Index, g.numel, []*Tensor{sums}, []*Tensor{g, order, partStarts, partCount})
	c.t.Launch(program.Index, sums.numel, []*Tensor{weight.FirstElements(sums.numel)},
		[]*Tensor{sums, segments, starts, count})
	return c.End(weight)
}

// BagMode is the way in which an embedding bag reduces several rows to one.
type BagMode int64

// The modes, numbered as in torch.nn.functional.embedding_bag.
const (
	BagSum BagMode = iota
	BagMean
	BagMax
)

// EmbeddingBag records torch.embedding_bag(weight, indices, offsets). A bag of indices begins at its offset; its result
// is the sum, mean or maximum of these rows of weight [rows, width]. samples holds per_sample_weights; nil for none. If
// last is set, the last offset is the end of the last bag. The results are output [bags, width], offset2bag, bag_size
// and max_indices.
func (weight *Tensor) EmbeddingBag(indices, offsets *Tensor, mode BagMode, samples *Tensor, last bool) []*Tensor {
	c := weight.tape.Begin("_embedding_bag", weight, indices, offsets, samples)
	bags, width := offsets.numel, weight.Size(1)
	if last {
		bags--
	}
	size := c.Bind(c.t.Alloc(indices.dtype, offsets.shape...))
	bagOf := c.Bind(c.t.Alloc(indices.dtype, indices.numel))
	y := c.Bind(c.t.Alloc(weight.dtype, bags, width))
	most := []int64{0}
	if mode == BagMax {
		most = []int64{bags, width}
	}
	highest := c.Bind(c.t.Alloc(indices.dtype, most...))
	c.t.Launch(program.Index, indices.numel*width, []*Tensor{y, bagOf, size},
		[]*Tensor{indices, offsets, weight.FirstElements(indices.numel * width)})
	rows := weight.shape[0]
	y.SetGradFn("EmbeddingBagBackward0", inputs{weight, samples},
		saves{
			indices, offsets, samples, tensorIf(samples != nil && samples.requiresGrad, weight), bagOf, size, highest,
		},
		inputGradients(
			inputGradient{0, func(b *Gradients) *Tensor {
				return b.Grad.embeddingBagBackward(b.Saved(0), b.Saved(6), mode, rows)
			}},
			inputGradient{1, func(b *Gradients) *Tensor {
				return b.Grad.bagWeightsBackward(b.Saved(0), b.Saved(2), b.Saved(3))
			}},
		))
	return c.EndAll(y, bagOf, size, highest)
}

// embeddingBagBackward records _embedding_bag_dense_backward_cuda: for sums and means the sorted kernels of an
// embedding's gradient, for maxima an addition at the rows of the maxima.
func (g *Tensor) embeddingBagBackward(indices, highest *Tensor, mode BagMode, rows int64) *Tensor {
	c := g.tape.Begin("_embedding_bag_dense_backward", g, indices)
	grad := c.Bind(g.ContiguousUntracked())
	if mode == BagMax {
		weight := c.Bind(c.t.Zeros(g.dtype, rows, g.Size(-1)))
		c.t.Launch(program.Index, g.numel, []*Tensor{weight.FirstElements(g.numel)}, []*Tensor{grad, highest})
		return c.End(weight)
	}
	return c.End(c.embeddingOfSorted(grad, indices, bits.Len64(uint64(rows-1)), rows))
}

// bagWeightsBackward records _embedding_bag_per_sample_weights_backward: a product for each index.
func (g *Tensor) bagWeightsBackward(indices, samples, weight *Tensor) *Tensor {
	c := g.tape.Begin("_embedding_bag_per_sample_weights_backward", g, indices, weight)
	y := c.t.Alloc(samples.dtype, indices.numel)
	c.t.Launch(program.Index, indices.numel*g.Size(-1), []*Tensor{y}, []*Tensor{g, indices, weight})
	return c.End(y)
}
