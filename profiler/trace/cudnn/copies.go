package cudnn

import (
	"math/bits"
	"slices"
)

// copyAlign is the alignment of each piece inside a workspace, and what an
// engine adds for the alignment of the workspace itself.
const copyAlign = 16

// concurrentGroups is the most groups that engines without a grouped kernel
// keep in flight: one launch and one set of copies per group, in turn on eight
// internal streams. Seen as min(groups, 8)/groups of the copies of all groups.
const concurrentGroups = 8

// padding is how an engine pads the channels of one group in its copies.
type padding uint8

const (
	// padNone keeps the channels as they are.
	padNone padding = iota
	// padVector pads to the width of a tensor-core load: 16 bytes, that is 8
	// channels in half precision and 4 in TF32.
	padVector
	// padGroup pads both sides of every group to one power of two, as the
	// grouped xmma kernels want them.
	padGroup
)

// channels returns the padded channels per group of the x and the y side.
func (p *problem) channels(pad padding) (c, k int64) {
	c, k = p.cg, p.kg
	switch pad {
	case padVector:
		v := vectorBytes / p.es
		return roundUp(c, v), roundUp(k, v)
	case padGroup:
		if p.Groups == 1 {
			return p.channels(padVector)
		}
		side := powerOfTwo(max(c, k, 4))
		return side, side
	}
	return c, k
}

// vectorBytes is the width of the loads of tensor-core kernels.
const vectorBytes = 16

// copyHabit is how an engine differs from the usual in what it copies.
type copyHabit uint8

const (
	// contiguousResult engines write the result where it belongs.
	contiguousResult copyHabit = 1 + iota
	// unrounded engines take fp32 inputs as they are. The others want them
	// rounded to TF32, which needs a copy even when the layout is right.
	unrounded
)

// layoutCopies is the room for the channels-last copies of an engine. A tensor
// is copied when its layout differs from channels last, when its channels are
// padded, or when it must be rounded.
func (p *problem) layoutCopies(pad padding, habits ...copyHabit) int64 {
	c, k := p.channels(pad)
	padC, padK := c != p.cg, k != p.kg
	strided := p.Layout == Contiguous
	round := p.DType == F32 && p.board.Capability >= 80 && !slices.Contains(habits, unrounded)

	x := padC || (strided && p.xs > 1 && p.c > 1) || (round && p.kind != dgrad)
	w := padC || padK || (strided && p.taps > 1 && p.cg > 1) || (round && p.kind != wgrad)
	y := padK || (strided && p.ys > 1 && p.k > 1) || (round && p.kind != fprop)
	if slices.Contains(habits, contiguousResult) {
		switch p.kind {
		case fprop:
			y = false
		case dgrad:
			x = false
		}
	}
	var total int64
	if x {
		total += roundUp(p.N*p.Groups*c*p.xs*p.es, copyAlign)
	}
	if w {
		total += roundUp(p.Groups*k*c*p.taps*p.es, copyAlign)
	}
	if y {
		total += roundUp(p.N*p.Groups*k*p.ys*p.es, copyAlign)
	}
	return total
}

// perGroup turns the bytes of all groups into those of an engine that runs one
// group after the other.
func (p *problem) perGroup(all int64) int64 {
	n := min(p.Groups, concurrentGroups)
	return all/p.Groups*n + copyAlign*n
}

// roundUp rounds n up to a multiple of unit.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// ceilDiv is n/d rounded up.
func ceilDiv(n, d int64) int64 { return (n + d - 1) / d }

// powerOfTwo is the smallest power of two that is at least n.
func powerOfTwo(n int64) int64 { return 1 << bits.Len64(uint64(n-1)) }
