package cudnn

import "github.com/vprof/vprof/internal/ceil"

// BatchNorm is a batch norm in training over a channels-last tensor. Otherwise, cuDNN needs no workspace.
type BatchNorm struct {
	Channels, Rows int64 // rows are the positions of all samples
	Half           bool  // in half precision
}

// Sizes of the workspace's areas in numbers of 4 bytes, and the shape of blocks.
const (
	normNumber        = 4
	normThreads       = 512
	normMaxLanes      = 16 // neighboring threads along the channels
	normVector        = 4  // channels of one thread, if they divide by it
	normFixedForward  = 268
	normFixedBackward = 264
)

// tiles returns the number of tiles if each block makes the given number of passes with all its threads. columns is the
// number of tiles along the channels, padded the number of channels in whole tiles.
func (n BatchNorm) tiles(passes int64) (tiles, columns, padded int64) {
	width := int64(normVector)
	if n.Channels%normVector != 0 {
		width = 1
	}
	lanes := min(normMaxLanes, powerOfTwo(ceil.Div(n.Channels, width)))
	columns = ceil.Div(n.Channels, lanes*width)
	return ceil.Div(n.Rows, passes*normThreads/lanes), columns, columns * lanes * width
}

// Forward returns the workspace of the forward pass in bytes: two sums per channel and a flag for each tile, a counter
// per column of tiles, and a fixed area. Like [BatchNorm.Backward], the formula gives all twelve sizes in the recorded
// vectors exactly. Whether it depends on the number of multiprocessors is unknown.
func (n BatchNorm) Forward() int64 {
	passes := int64(2)
	if n.Half {
		passes = 5
	}
	tiles, columns, padded := n.tiles(passes)
	return normNumber * (normFixedForward + tiles*(2*padded+columns) + columns)
}

// Backward returns the workspace of the backward pass in bytes, which has no flags.
func (n BatchNorm) Backward() int64 {
	tiles, columns, padded := n.tiles(3)
	return normNumber * (normFixedBackward + tiles*2*padded + columns)
}
