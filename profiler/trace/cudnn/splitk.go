package cudnn

import "github.com/vprof/vprof/internal/ceil"

// partials returns the workspace of a split-k reduction without copies of tensors: partial results in fp32, which are
// summed afterwards, and the counters that order the sums. It depends on the engine:
//
// - xmma kernels keep whole tiles of the kernel's size and a counter for each,     and one more set of counters
// (4*(splits+1) bytes a tile);   - CUTLASS kernels followed by ReduceSplitK keep whole results, padded like     the
// copies;   - CUTLASS kernels that split serially add to the result in turn, so that a     counter per tile is all they
// need;   - Hopper kernels share out the last wave of tiles; Splits counts the tiles     kept, whatever the number of
// tiles there are.
func (p *problem) partials(c Choice) int64 {
	switch {
	case c.Splits == 0:
		return 0
	case c.Engine == Hopper:
		return c.Splits * c.tileBytes()
	case c.Engine == Serial || c.Engine == LoopedSerial:
		return 4 * p.tileCount(c)
	case c.TileM == 0:
		return c.Splits*p.result32(c.Engine) + splitHeader
	}
	tiles := p.tileCount(c)
	return tiles*(c.Splits*(c.tileBytes()+4)+4) + tileHeader
}

const (
	// splitHeader is the constant size in bytes of the workspace of split CUTLASS engines, tileHeader of xmma engines.
	splitHeader = 128
	tileHeader  = 159
	// groupTile is the side of the blocks into which grouped kernels divide the channels of all groups.
	groupTile = 64
)

// tileBytes returns the bytes of one tile of partial sums.
func (c Choice) tileBytes() int64 { return 4 * c.TileM * c.TileN }

// tileCount returns the number of tiles of the result. The grouped wgrad processes several small groups in one block.
func (p *problem) tileCount(c Choice) int64 {
	s := p.padded(copyHabits[c.Engine])
	var rows, columns int64
	switch p.kind {
	case fprop:
		rows, columns = p.N*p.ys, s.groups*s.k
	case dgrad:
		rows, columns = p.N*p.xs, s.groups*s.c
	case wgrad:
		rows, columns = s.groups*s.k, s.c*p.taps
		if s.groups > 1 {
			columns = max(s.c, min(c.TileN, groupTile)) * p.taps
		}
	}
	return ceil.Div(rows, c.TileM) * ceil.Div(columns, c.TileN)
}

// result32 returns the bytes of the result in fp32 with the padding of engine e.
func (p *problem) result32(e Engine) int64 {
	s := p.padded(copyHabits[e])
	switch p.kind {
	case fprop:
		return 4 * p.N * s.groups * s.k * p.ys
	case dgrad:
		return 4 * p.N * s.groups * s.c * p.xs
	}
	return 4 * s.groups * s.c * s.k * p.taps
}
