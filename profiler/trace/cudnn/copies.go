package cudnn

import (
	"math/bits"

	"github.com/vprof/vprof/internal/ceil"
)

// copyAlign is the alignment of each buffer in a workspace, and the bytes added to align the workspace itself.
const copyAlign = 16

// concurrentGroups is the largest number of groups that engines without a grouped kernel run at a time, with one launch
// and one set of copies per group, on eight internal streams in turn. It was observed as min(groups, 8)/groups of the
// copies of all groups.
const concurrentGroups = 8

// channelPadding says up to which number of channels an engine pads each group of its copies.
type channelPadding uint8

const (
	// padNone does not pad.
	padNone channelPadding = iota
	// padVector pads to the width of a tensor-core load, 16 bytes: 8 channels in half precision and 4 in TF32.
	padVector
	// padGroup pads both channel counts of every group to one power of two, as grouped xmma kernels require.
	padGroup
)

// copyShape is the size of an engine's copies: input and output channels per group, groups, bytes per element.
type copyShape struct{ c, k, groups, es int64 }

func (p *problem) padded(h copyTraits) copyShape {
	s := copyShape{p.cg, p.kg, p.Groups, p.es}
	if h.widened {
		s.es = F32.Size()
	}
	if h.pad == padNone {
		return s
	}
	if h.pad == padGroup && p.Groups > 1 {
		s.c = powerOfTwo(max(s.c, s.k, 4))
		s.k = s.c
		if s.c < groupedChannels {
			s.groups = ceil.Multiple(s.groups, groupedChannels/s.c)
		}
		return s
	}
	v := vectorBytes / s.es
	s.c, s.k = ceil.Multiple(s.c, v), ceil.Multiple(s.k, v)
	return s
}

// groupedChannels is the multiple to which the grouped xmma kernels pad the channels of all groups.
const groupedChannels = 8

// vectorBytes is the width of the loads of tensor-core kernels.
const vectorBytes = 16

// copyTraits describes how the copies of an engine differ from the usual ones.
type copyTraits struct {
	pad channelPadding
	// contiguousResult reports whether the engine writes the result in place, without a copy.
	contiguousResult bool
	// unrounded reports whether the engine reads fp32 inputs directly. Other engines need inputs rounded to TF32, which
	// takes a copy even if the layout is right.
	unrounded bool
	// widened reports whether the engine computes half precision in TF32, on fp32 copies of all tensors.
	widened bool
}

// copyHabits has the copyTraits of the engine classes that work on copies.
var copyHabits = [numEngines]copyTraits{
	Copies:          {pad: padVector},
	Serial:          {pad: padVector},
	OffsetCopies:    {pad: padVector},
	Indexed:         {pad: padGroup},
	Looped:          {pad: padVector},
	LoopedSerial:    {pad: padVector},
	Grouped:         {pad: padGroup},
	ContiguousOut:   {pad: padGroup, contiguousResult: true},
	Unpadded:        {pad: padNone},
	Widened:         {pad: padVector, widened: true},
	WidenedUnpadded: {pad: padNone, widened: true},
	Unrounded:       {pad: padGroup, unrounded: true},
	Hopper:          {pad: padGroup, unrounded: true},
}

// layoutCopies returns the bytes of an engine's channels-last copies. A tensor is copied if its layout is not
// channels-last, if its channels are padded, or if it must be rounded or widened.
func (p *problem) layoutCopies(h copyTraits) int64 {
	s := p.padded(h)
	strided := p.Layout == Contiguous
	round := h.widened || p.DType == F32 && p.gpu.Capability >= 80 && !h.unrounded

	x := s.c != p.cg || s.groups != p.Groups || (strided && p.xs > 1 && p.c > 1) || (round && p.kind != dgrad)
	w := s.c != p.cg || s.k != p.kg || s.groups != p.Groups || h.widened ||
		(strided && p.taps > 1 && (p.cg > 1 || h.pad == padNone)) || (round && p.kind != wgrad)
	y := s.k != p.kg || s.groups != p.Groups || (strided && p.ys > 1 && p.k > 1) ||
		(round && p.kind != fprop) || h.widened
	if h.contiguousResult {
		switch p.kind {
		case fprop:
			y = false
		case dgrad:
			x = false
		}
	}
	var total int64
	if x {
		total += ceil.Multiple(p.N*s.groups*s.c*p.xs*s.es, copyAlign)
	}
	if w {
		total += ceil.Multiple(s.groups*s.k*s.c*p.taps*s.es, copyAlign)
	}
	if y {
		total += ceil.Multiple(p.N*s.groups*s.k*p.ys*s.es, copyAlign)
	}
	return total
}

// oneGroup returns the problem of a single group, for engines without a grouped kernel. Among the channels of all
// groups, one group is never channels-last.
func (p *problem) oneGroup() problem {
	q := *p
	q.Groups, q.c, q.k = 1, p.cg, p.kg
	if p.Groups > 1 {
		q.Layout = Contiguous
	}
	return q
}

func powerOfTwo(n int64) int64 { return 1 << bits.Len64(uint64(n-1)) }
