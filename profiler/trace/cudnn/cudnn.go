// Package cudnn models the workspaces of cuDNN 9.19 convolutions as PyTorch
// 2.11 uses them: cudnn.benchmark off, TF32 on. It says which transient bytes
// one call asks the caching allocator for beside its output.
//
// cuDNN first chooses an engine and its knobs, by heuristics that time nothing,
// and the engine says how much workspace it wants. The model does the same in
// two steps:
//
//  1. Choice. cuDNN's heuristics are themselves a learned model that picks one
//     of some hundred configurations per architecture: a kernel, its tile, and
//     how often the reduction is split, all constants. So the model is a vote
//     of a few decision trees per architecture, operation and precision
//     (rules/), over sizes of the implicit matrix product, its tiles,
//     alignments and proportions, that names such a configuration ("copies of
//     x, w and y, 3 partial results of 64x128 tiles"). Command fit grows the
//     trees from recorded workspaces and kernel names. Which engines exist for
//     a problem at all (Winograd wants 3x3 at stride 1, and so on) is not
//     learned but written down in can.
//  2. Size. Each engine has a formula: the channels-last copies of x, w and y
//     with their padding (copies.go), partial sums of a split reduction
//     (splitk.go), tables of offsets, Winograd and FFT transforms
//     (winograd.go, fft.go). They give every byte in 95 to 98 % of the cases
//     with a workspace; most of the rest are split reductions on Hopper.
//
// How far to trust it (TestHeldOutAccuracy, which holds the figures): for
// convolutions of the recorded models, nearly every answer is exact. For
// geometries the trees never saw, of convolutions of models, 65 to 92 % of the
// answers are exact, and the bytes are off by 3 to 11 % in sum; on Turing (T4),
// whose fp32 engines want gigabytes or nothing, by up to 50 %. Between boards of
// one architecture cuDNN seems to make no difference: with the rules of the
// recorded RTX 3060 (28 multiprocessors) the peaks recorded of an RTX 3090 (82)
// come out exact, and do not when rules count tiles per multiprocessor. So a
// board counts by its architecture only.
//
// A transposed convolution runs as the ordinary one's data gradient and the
// reverse; 1-D runs as 2-D with one row.
package cudnn

//go:generate go run ./fit -o rules testdata/conv-workspaces.jsonl.gz
//go:generate go run ./fit -held-out -o testdata/held-out testdata/conv-workspaces.jsonl.gz

// Plan is what the model thinks cuDNN does for one direction.
type Plan struct {
	// Choice is the chosen engine with its knobs.
	Choice
	// Allocations are the bytes asked for, in order; nil for none.
	Allocations []int64
}

// Workspaces returns the transient allocations of one direction of a
// convolution: requested bytes, in order, nil if it needs none.
func Workspaces(c Config, d Direction, b Board) []int64 {
	return Explain(c, d, b).Allocations
}

// Explain returns the chosen engine beside its allocations.
func Explain(c Config, d Direction, b Board) Plan {
	return rulesOf(generation(b.Capability)).explain(c, d, &b)
}

func (r *rules) explain(c Config, d Direction, b *Board) Plan {
	p := newProblem(c, d, b)
	f := p.features()
	half := 0
	if c.DType != F32 {
		half = 1
	}
	copied := p.weightCopy(d)
	choice := r.forests[p.kind][half].vote(&f)
	if p.can(choice.Engine) {
		if n := p.bytes(choice); n+copied <= b.Memory {
			return Plan{choice, list(copied, n)}
		}
	}
	return Plan{Allocations: list(copied, 0)}
}

// weightCopy is PyTorch's own channels-last copy of a contiguous weight when
// only the input is channels last, made before cuDNN is called. Native
// depthwise kernels take the weight as it is.
func (p *problem) weightCopy(d Direction) int64 {
	if p.Layout != InputChannelsLast || d == GradWeight || p.taps == 1 || p.cg == 1 {
		return 0
	}
	return p.k * p.cg * p.taps * p.es
}

// list returns the allocations that are not empty.
func list(first, second int64) []int64 {
	switch {
	case first > 0 && second > 0:
		return []int64{first, second}
	case first > 0:
		return []int64{first}
	case second > 0:
		return []int64{second}
	}
	return nil
}
