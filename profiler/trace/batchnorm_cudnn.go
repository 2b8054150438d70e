package trace

import (
	"math/bits"

	"github.com/vprof/vprof/internal/ceil"
)

// cudnnBatchNormWorkspace is what cuDNN's channels-last batch norm asks for in
// training. Blocks take tiles of rows and channels; each tile leaves two fp32
// sums per channel, padded to whole tiles. The forward keeps a flag per tile,
// both a counter per column of tiles, and a fixed area. Found from the twelve
// different sizes of the recorded vectors, which it gives exactly; they do not
// say whether the number of multiprocessors matters.
func cudnnBatchNormWorkspace(x *Tensor, forward bool) int64 {
	const (
		threads       = 512
		maxLanes      = 16 // threads side by side along the channels
		vector        = 4  // channels of one thread, if they divide by it
		fixedForward  = 268
		fixedBackward = 264
	)
	channels := x.shape[1]
	rows := x.numel / max(channels, 1)
	width := int64(vector)
	if channels%vector != 0 {
		width = 1
	}
	lanes := min(maxLanes, nextPow2(ceil.Div(channels, width)))
	columns := ceil.Div(channels, lanes*width)
	padded := columns * lanes * width

	// Rows of a tile: so many passes of all threads.
	passes := int64(3)
	if forward {
		passes = 2
		if x.dtype.IsHalf() {
			passes = 5
		}
	}
	tiles := ceil.Div(rows, passes*threads/lanes)
	if forward {
		return F32.Size() * (fixedForward + tiles*(2*padded+columns) + columns)
	}
	return F32.Size() * (fixedBackward + tiles*2*padded + columns)
}

// nextPow2 is the smallest power of two that is not less than n.
func nextPow2(n int64) int64 { return 1 << bits.Len64(uint64(n-1)) }
