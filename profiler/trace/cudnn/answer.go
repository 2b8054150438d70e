package cudnn

// An Answer is what cuDNN itself said when it was asked about a convolution: the
// bytes of its plan's workspace. Sizes are given as [Canonical] has them. The second
// result is false for what nobody asked.
type Answer func(Config, Direction) (bytes int64, asked bool)

// Answered returns the transient allocations of one direction of a convolution as
// [Rules.Workspaces] does, by cuDNN's answer where there is one, and tells whether
// there is. What PyTorch allocates around the call is modeled either way, and so
// are kernels that cuDNN proposes only where there is a device.
func (r *Rules) Answered(c Config, d Direction, b Board, answer Answer) (allocations []int64, asked bool) {
	n, asked := answer(Canonical(c, d))
	if !asked || !b.Runs(c) {
		return r.Workspaces(c, d, b), false
	}
	p := newProblem(c, d, &b)
	f := p.features()
	device := r.architectures[generation(b.Capability)].device[p.kind]
	copied := p.weightCopy(d)
	if p.onlyOnDevice(device(), f[:]) || n+copied > b.Memory {
		return r.Workspaces(c, d, b), false
	}
	return list(copied, n), true
}

// Runs says whether PyTorch gives a convolution of such a type to cuDNN on the board.
func (b Board) Runs(c Config) bool { return c.DType != BF16 || b.Capability >= bf16Capability }
