package kernels

import (
	"math"

	"github.com/vprof/vprof/internal/ceil"
)

// Attention is softmax(Q K^T Scale) V for each head, without the matrix
// between. Operands are laid out [head][position][depth], dense. Where Depth is 128
// at most, and addresses and Depth are multiples of 16 bytes, it runs in tiles: on
// tensor cores for F16 from compute capability 7.5 on, and for BF16 from 8.0 on, on
// other cores else. The rest has a warp for each query, which is slow.
type Attention struct {
	Type                        Type
	Query, Key, Value, Output   uint64
	Queries, Keys, Depth, Heads int64
	Scale                       float64
}

// MaxAttentionDepth is the largest Depth of an [Attention].
const MaxAttentionDepth = 256

var attentionNames = forTypes("attention")

// Launch computes. Keys must not be zero.
func (k Attention) Launch(capability int) Launch {
	if k.Depth > MaxAttentionDepth {
		panic("kernels: attention: depth above 256")
	}
	const lines, tiledDepth = 64, 128 // queries of a block
	name, block, shared := "attention_any", uint32(threads), uint32(0)
	blocks := ceil.Div(k.Queries, threads/32)
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
	l := launch(name, blocks, shared, []uint64{
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
