package cudnn

// partials is the room of split-k: fp32 copies of the padded result, summed
// into the result afterwards.
func (p *problem) partials(e Engine, splits float32) int64 {
	if splits <= 0 {
		return 0
	}
	return int64(float64(splits)*float64(p.result32(e))+0.5) + 128
}

// result32 is the size of the result in fp32 with the padding of e.
func (p *problem) result32(e Engine) int64 {
	pad := padVector
	switch e {
	case Grouped, ContiguousOut, Hopper:
		pad = padGroup
	case Unpadded:
		pad = padNone
	}
	c, k := p.channels(pad)
	var n int64
	switch p.kind {
	case fprop:
		n = p.N * k * p.ys
	case dgrad:
		n = p.N * c * p.xs
	case wgrad:
		n = c * k * p.taps
	}
	groups := p.Groups
	if e == Looped {
		groups = min(groups, concurrentGroups)
	}
	return 4 * n * groups
}
