package cudnn

// copyAlign is the alignment of each piece inside a workspace, and what an
// engine adds for the alignment of the workspace itself.
const copyAlign = 16

// copySet says which tensors an engine copies into its own layout.
type copySet uint8

const (
	copyX copySet = 1 << iota
	copyW
	copyY
)

const copyXWY = copyX | copyW | copyY

// layoutCopies is the room for channels-last copies of the tensors in set, with
// the channels of each group padded to multiples of padC (x side) and padK (y
// side). A filter of one point, or a tensor with one channel, has the same
// bytes in both layouts and needs a copy only when it is padded.
func (p *problem) layoutCopies(set copySet, padC, padK int64) int64 {
	cg, kg := p.c/p.Groups, p.k/p.Groups
	pc, pk := roundUp(cg, padC), roundUp(kg, padK)
	var total int64
	if set&copyX != 0 {
		total += roundUp(p.N*p.Groups*pc*p.xs*p.es, copyAlign)
	}
	if set&copyW != 0 && (p.taps > 1 || pc != cg || pk != kg) {
		total += roundUp(p.Groups*pk*pc*p.taps*p.es, copyAlign)
	}
	if set&copyY != 0 {
		total += roundUp(p.N*p.Groups*pk*p.ys*p.es, copyAlign)
	}
	if total == 0 {
		return 0
	}
	return total + copyAlign
}

// roundUp rounds n up to a multiple of unit.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
