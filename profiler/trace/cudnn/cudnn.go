// Package cudnn models the workspaces of cuDNN 9.19 convolutions as PyTorch
// 2.11 uses them: cudnn.benchmark off, TF32 on. It says which transient bytes
// one call asks the caching allocator for beside its output.
//
// cuDNN first chooses an engine, by heuristics that time nothing, and the
// engine says how much workspace it wants. The model does the same in two
// steps:
//
//  1. Choice. Decision rules (rules.txt) compare sizes of the implicit matrix
//     product, tiles per multiprocessor, alignments and proportions with
//     thresholds, per operation and precision, and name the engine classes to
//     try in order. Command fit found them on recorded workspaces; the test
//     measures rules of the same making on geometries they never saw. Which
//     classes exist for a problem at all (Winograd wants 3x3 at stride 1, and
//     so on) is not learned but written down in can, and an engine whose
//     workspace exceeds the board's memory is passed over, as PyTorch goes to
//     the next one when the allocation fails.
//  2. Size. Each class has a formula: the channels-last copies of x, w and y
//     with their padding (copies.go), partial sums of a split reduction
//     (splitk.go), Winograd and FFT transforms (winograd.go, fft.go). Where
//     the class is right the bytes are, too, mostly to the byte; only the
//     number of partial sums is a rule again.
//
// How far to trust it: the formulas were worked out on all recorded cases. On
// convolutions of models whose geometry the rules never saw, on boards they
// did see (Ampere and later), the bytes are off by 5 to 15 % in sum and 42 to
// 89 % of the answers are exact (TestHeldOutAccuracy). A board of an
// architecture the rules never saw is another matter: leaving each of the five
// out in turn (fit -without), the sums are off by 11 to 86 %. There is one
// recorded board per architecture, so how well the rules carry to another of
// the same architecture (an RTX 3090 from an RTX 3060) is not known.
//
// A transposed convolution runs as the ordinary one's data gradient and the
// reverse; 1-D runs as 2-D with one row.
package cudnn

//go:generate go run ./fit -o rules.txt testdata/conv-workspaces.jsonl.gz
//go:generate go run ./fit -held-out -o testdata/rules-held-out.txt testdata/conv-workspaces.jsonl.gz

// Plan is what the model thinks cuDNN does for one direction.
type Plan struct {
	// Engine is the class of the chosen engine.
	Engine Engine
	// Splits is how many fp32 copies of the result the engine keeps as
	// partial sums, zero for most.
	Splits float32
	// Allocations are the bytes asked for, in order; nil for none.
	Allocations []int64
}

// Workspaces returns the transient allocations of one direction of a
// convolution: requested bytes, in order, nil if it needs none.
func Workspaces(c Config, d Direction, b Board) []int64 {
	return Explain(c, d, b).Allocations
}

// Explain returns the engine class beside its allocations.
func Explain(c Config, d Direction, b Board) Plan {
	return loadRules().explain(c, d, &b)
}

func (r *rules) explain(c Config, d Direction, b *Board) Plan {
	p := newProblem(c, d, b)
	f := p.features()
	half := 0
	if c.DType != F32 {
		half = 1
	}
	plan := Plan{Engine: Direct}
	copied := p.weightCopy(d)
	for _, e := range r.engine[p.kind][half].leaf(&f).engines {
		if !p.can(e) {
			continue
		}
		n, splits := p.bytes(e), float32(0)
		if e.splits() {
			splits = r.split[p.kind][half].leaf(&f).threshold
			n += p.partials(e, splits)
		}
		if n+copied > b.Memory {
			continue
		}
		plan.Engine, plan.Splits = e, splits
		plan.Allocations = list(copied, n)
		return plan
	}
	plan.Allocations = list(copied, 0)
	return plan
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
