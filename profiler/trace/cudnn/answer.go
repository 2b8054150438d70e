package cudnn

// An Answer returns what cuDNN itself answered about a convolution, the bytes of its plan's
// workspace, and whether it was asked about it. Sizes are given as [Canonical] has them.
type Answer func(Config, Direction) (bytes int64, asked bool)

// Answered returns the transient allocations of one direction of a convolution as
// [Rules.Workspaces] does, but by cuDNN's own answer if there is one, and tells whether there
// is. What PyTorch allocates around the call is modeled in both cases, and so are kernels that
// cuDNN proposes only on a machine with a GPU.
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
