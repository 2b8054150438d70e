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

// embeddingBackward records embedding_dense_backward_cuda.
func (g *Tensor) embeddingBackward(indices *Tensor, rows int64) *Tensor {
	c := g.tape.begin("embedding_backward", g, indices)
	indices = c.let(indices.contiguousUntracked())
	grad := c.let(g.contiguousUntracked())
	if indices.numel <= embeddingUnsorted {
		weight := c.let(c.t.Zeros(g.dtype, rows, g.Size(-1)))
		c.t.launch(program.Index, g.numel, []*Tensor{weight.touched(g.numel)}, []*Tensor{grad, indices})
		return c.end(weight)
	}
	keyBits := int(8 * indices.dtype.Size())
	if c.t.rules.Operators.EmbeddingSortsFewBits {
		keyBits = bits.Len64(uint64(rows - 1))
	}
	return c.end(c.embeddingOfSorted(grad, indices, keyBits, rows))
}

// embeddingOfSorted returns the gradient of an embedding by indices that are sorted first, by some low bits.
func (c *call) embeddingOfSorted(grad, indices *Tensor, keyBits int, rows int64) *Tensor {
	sorted := c.let(c.t.empty(indices.dtype, indices.numel))
	order := c.let(c.t.empty(indices.dtype, indices.numel))
	positions := c.let(c.t.Arange(indices.numel))
	c.t.radixSort(sorted, order, indices, positions, keyBits)
	c.drop(positions)
	return grad.embeddingSegments(sorted, order, rows)
}

// embeddingSegments records embedding_backward_cuda_kernel: runs of equal indices
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

// BagMode is how an embedding bag makes one row of several.
type BagMode int64

// The modes, as torch.nn.functional.embedding_bag numbers them.
const (
	BagSum BagMode = iota
	BagMean
	BagMax
)

// EmbeddingBag records torch.embedding_bag(weight, indices, offsets): for each bag of
// indices, which begin at its offset, the sum, mean or maximum of those rows of the
// weight [rows, width]. Samples may have weights of their own, nil for none. With last,
// the last offset is where the last bag ends. The results are output [bags, width],
// offset2bag, bag_size and max_indices.
func (weight *Tensor) EmbeddingBag(indices, offsets *Tensor, mode BagMode, samples *Tensor, last bool) []*Tensor {
	c := weight.tape.begin("_embedding_bag", weight, indices, offsets, samples)
	bags, width := offsets.numel, weight.Size(1)
	if last {
		bags--
	}
	size := c.let(c.t.empty(indices.dtype, offsets.shape...))
	bagOf := c.let(c.t.empty(indices.dtype, indices.numel))
	y := c.let(c.t.empty(weight.dtype, bags, width))
	most := []int64{0}
	if mode == BagMax {
		most = []int64{bags, width}
	}
	highest := c.let(c.t.empty(indices.dtype, most...))
	c.t.launch(program.Index, indices.numel*width, []*Tensor{y, bagOf, size},
		[]*Tensor{indices, offsets, weight.touched(indices.numel * width)})
	rows := weight.shape[0]
	y.derived("EmbeddingBagBackward0", inputs{weight, samples},
		saves{indices, offsets, samples, when(samples != nil && samples.requiresGrad, weight), bagOf, size, highest},
		each(
			partial{0, func(b *backward) *Tensor {
				return b.grad.embeddingBagBackward(b.saved(0), b.saved(6), mode, rows)
			}},
			partial{1, func(b *backward) *Tensor {
				return b.grad.bagWeightsBackward(b.saved(0), b.saved(2), b.saved(3))
			}},
		))
	return c.endAll(y, bagOf, size, highest)
}

// embeddingBagBackward records _embedding_bag_dense_backward_cuda: of sums and means the sorted
// parts of the embedding's gradient, of maxima the rows where these were.
func (g *Tensor) embeddingBagBackward(indices, highest *Tensor, mode BagMode, rows int64) *Tensor {
	c := g.tape.begin("_embedding_bag_dense_backward", g, indices)
	grad := c.let(g.contiguousUntracked())
	if mode == BagMax {
		weight := c.let(c.t.Zeros(g.dtype, rows, g.Size(-1)))
		c.t.launch(program.Index, g.numel, []*Tensor{weight.touched(g.numel)}, []*Tensor{grad, highest})
		return c.end(weight)
	}
	return c.end(c.embeddingOfSorted(grad, indices, bits.Len64(uint64(rows-1)), rows))
}

// bagWeightsBackward records _embedding_bag_per_sample_weights_backward: a product for each
// index.
func (g *Tensor) bagWeightsBackward(indices, samples, weight *Tensor) *Tensor {
	c := g.tape.begin("_embedding_bag_per_sample_weights_backward", g, indices, weight)
	y := c.t.empty(samples.dtype, indices.numel)
	c.t.launch(program.Index, indices.numel*g.Size(-1), []*Tensor{y}, []*Tensor{g, indices, weight})
	return c.end(y)
}
