package kernels

import (
	"math"

	"github.com/vprof/vprof/internal/ceil"
)

// Attention computes softmax(Q K^T Scale) V for each head, without storing the matrix of scores. Operands are dense
// [head][position][depth]. If Depth is at most 128, and addresses and Depth are multiples of 16 bytes, the kernel works
// in tiles: on tensor cores for F16 from compute capability 7.5 on and for BF16 from 8.0 on, otherwise on CUDA cores.
// In all other cases each query is processed by one warp, which is slow.
type Attention struct {
	Type                        Type
	Query, Key, Value, Output   uint64
	Queries, Keys, Depth, Heads int64
	Scale                       float64
}

// MaxAttentionDepth is the largest Depth of an [Attention].
const MaxAttentionDepth = 256

var attentionNames = forTypes("attention")

// Launch returns the kernel launch. Keys must not be zero.
func (k Attention) Launch(capability int) Launch {
	if k.Depth > MaxAttentionDepth {
		panic("kernels: attention: depth above 256")
	}
	const lines, tiledDepth = 64, 128 // queries of a block
	name, block, shared := "attention_any", uint32(threadsPerBlock), uint32(0)
	blocks := ceil.Div(k.Queries, threadsPerBlock/32)
	tensorCores := k.Type == F16 && capability >= 75 || k.Type == BF16 && capability >= 80
	if k.Depth <= tiledDepth && k.Depth*k.Type.Size()%vectorBytes == 0 &&
		(k.Query|k.Key|k.Value|k.Output)%vectorBytes == 0 {
		name = attentionNames[k.Type]
		blocks = ceil.Div(k.Queries, lines)
		block, shared = coreThreads, lines*(36+36+68)*4 // lines of operands and weights
		if tensorCores {
			block, shared = tensorThreads, 3*lines*2*tiledDepth
		}
	}
	l := newLaunch(name, blocks, shared, []uint64{
		k.Query, k.Key, k.Value, k.Output,
		uint64(k.Queries), uint64(k.Keys), uint64(k.Depth), uint64(k.Heads), math.Float64bits(k.Scale), uint64(k.Type),
	})
	l.Block[0] = block
	l.Grid[1] = batchBlocks(k.Heads)
	l.Grid[2] = uint32(max(ceil.Div(k.Heads, int64(l.Grid[1])), 1))
	line := k.Depth * k.Heads * k.Type.Size()
	l.Writes = k.Queries * line
	if k.Queries > 0 {
		l.Reads = (k.Queries + 2*k.Keys) * line
	}
	l.FLOPs = 4 * k.Queries * k.Keys * k.Depth * k.Heads
	return l
}

// Launches that do the work of attention operators: one kernel for forward, and the same kernel over the operands of
// each gradient for backward, so that the matrix of scores is never stored.

// heads are the sizes of an attention kernel. Query heads that share keys count as one head with more queries.
type heads struct{ count, queries, keys, depth int64 }

// headsOf computes the sizes of attention from the ranges of queries and keys; false if the sizes do not match any.
func (p *launchPlan) headsOf(w *Work, query, key Range) (heads, bool) {
	size := p.t.Size()
	h := heads{keys: w.N, depth: w.K}
	if w.M <= 0 || w.N <= 0 || w.K <= 0 || w.K > MaxAttentionDepth || query.Bytes != w.Batch*w.M*w.K*size {
		return h, false
	}
	h.count = key.Bytes / (w.N * w.K * size)
	if h.count == 0 || h.count*w.N*w.K*size != key.Bytes || w.Batch%h.count != 0 {
		return h, false
	}
	h.queries = w.Batch / h.count * w.M
	return h, true
}

// addAttention adds launches for attention or its gradients if the ranges have matching sizes; otherwise a matrix
// product with the same number of operations.
func (p *launchPlan) addAttention(w *Work) {
	r := p.reads
	same := func(i, j int) bool { return r[i].Bytes == r[j].Bytes }
	switch {
	case len(r) >= 5 && len(p.writes) >= 3 && same(0, 1) && same(0, 4) && same(2, 3) && p.attendBackward(w):
	case len(r) >= 3 && len(p.writes) >= 1 && same(1, 2) && p.writes[0].Bytes == r[0].Bytes && p.attendForward(w):
	default:
		p.matmul(w)
	}
}

// attendForward adds the launch for attention's forward, whose ranges are query, key, value and output.
func (p *launchPlan) attendForward(w *Work) bool {
	h, ok := p.headsOf(w, p.reads[0], p.reads[1])
	if ok {
		p.attention(h, p.flops, [3]int{0, 1, 2}, 0)
	}
	return ok
}

// attendBackward adds launches for attention's backward, whose inputs are the output's gradient, query, key, value and
// output. PyTorch's kernels compute five products: the scores, their gradient, and one per result. Two kernels of two
// products and one with half as many keys have the same number of operations.
func (p *launchPlan) attendBackward(w *Work) bool {
	const gradient, query, key, value, output = 0, 1, 2, 3, 4
	h, ok := p.headsOf(w, p.reads[query], p.reads[key])
	size := h.count * h.keys * h.depth * p.t.Size()
	if !ok || p.writes[0].Bytes != p.reads[query].Bytes || p.writes[1].Bytes < size || p.writes[2].Bytes < size {
		return false
	}
	turned := heads{count: h.count, queries: h.keys, keys: h.queries, depth: h.depth}
	flops := p.flops
	p.attention(h, flops*2/5, [3]int{query, key, value}, 0)
	p.attention(turned, flops*2/5, [3]int{key, query, gradient}, 1)
	p.attention(turned, flops/5, [3]int{value, gradient, output}, 2)
	return true
}

// attention adds a launch over the operands at three indices. It derives the number of keys from the number of
// operations, half of which a causal mask removes, and reads what earlier launches have not read.
func (p *launchPlan) attention(h heads, flops int64, operands [3]int, result int) {
	perKey := 4 * h.queries * h.depth * h.count
	keys := max(1, min(h.keys, (flops+perKey/2)/perKey))
	of := func(i int) *Range { return &p.visited[operands[i]] }
	l := Attention{
		Type: p.t, Query: of(0).Addr, Key: of(1).Addr, Value: of(2).Addr, Output: p.writes[result].Addr,
		Queries: h.queries, Keys: keys, Depth: h.depth, Heads: h.count, Scale: productScale(h.depth),
	}.Launch(p.capability)
	size := h.count * h.depth * p.t.Size()
	for i, bytes := range []int64{size * h.queries, size * keys, size * keys} {
		again := min(bytes, of(i).Bytes)
		l.RereadBytes += again
		if bytes > again {
			consumeRange(p.reads, operands[i], bytes-again)
			of(i).Bytes = bytes
		}
	}
	p.add(l)
	consumeRange(p.writes, result, l.Writes)
}
