// Package cudnn models the workspaces of cuDNN as PyTorch uses them: the workspaces of recurrent layers ([RNN]), batch
// norms ([BatchNorm]) and convolutions. The rest of this comment describes convolutions, with cudnn.benchmark off and
// TF32 on. The package computes the transient bytes that one call requests from the caching allocator in addition to
// its output. [Rules] hold the differences between releases of cuDNN; the engines and their formulas describe cuDNN 9.
//
// cuDNN first chooses an engine and its knobs by heuristics that time nothing. The engine determines the size of the
// workspace. The model does the same in two steps:
//
//  1. Choice. If one size is varied, cuDNN's choice changes at sharp bounds that
//     do not depend on the other sizes: its heuristics look like decision trees
//     over sizes of the implicit matrix product, its tiles and their remainders.
//     So the model is a vote of a few decision trees per architecture, operation
//     and precision ([Rules]) on the kernel ("copies of x, w and y, 64x128
//     tiles"), and of others on how often that kernel splits the reduction.
//     Command fit grows the trees from what cuDNN answered when it was asked
//     (package query): a few hundred thousand convolutions for each. Which
//     engines exist for a problem at all (Winograd needs 3x3 at stride 1, and so
//     on) is not learned but written down in can.
//  2. Size. Each engine has a formula: the channels-last copies of x, w and y
//     with their padding (copies.go), partial sums of a split reduction
//     (splitk.go), tables of offsets, Winograd and FFT transforms
//     (fft.go). Some formula gives every byte of 97 to 99 % of
//     cuDNN's answers, on Hopper and Turing of 90 to 98 %: what splits the
//     reduction there is not fully understood.
//
// Corrections follow the rules in the same files: trees that learned from the convolutions of public libraries of
// models where the first rules are wrong, and choose [Kept] where they are right (fit -correct).
//
// A few kernels for few channels in half precision are proposed only where there is a device; where they run is learned
// from what PyTorch was recorded to ask for on six GPUs, and for one of them (summedBySample) on two. Nothing else is:
// TestRecordedCalls compares the model with these records and has the values, which say how far to trust it. Between
// GPUs of one architecture cuDNN makes no difference, so a GPU counts by its architecture only.
//
// A transposed convolution runs as the ordinary one's data gradient and the reverse; 1-D runs as 2-D with one row.
package cudnn

// Plan is the engine that the rules predict for one direction of a convolution, with its workspace.
type Plan struct {
	// Choice is the chosen engine with its tuning parameters.
	Choice
	// Allocations are the sizes of the transient allocations in bytes, in order; nil for none.
	Allocations []int64
}

// Workspaces returns the sizes of the transient allocations of one direction of a convolution in bytes, in order; nil
// if it needs none.
func (r *Rules) Workspaces(c Config, d Direction, gpu GPU) []int64 {
	return r.Explain(c, d, gpu).Allocations
}

// Explain returns the chosen engine and its allocations.
func (r *Rules) Explain(c Config, d Direction, gpu GPU) Plan {
	p := newProblem(c, d, &gpu)
	if !gpu.Runs(c) {
		return p.withoutCuDNN()
	}
	f := p.features()
	copied := p.weightCopy(d)
	choice := r.architectures[generation(gpu.Capability)].choose(&p, f[:])
	if p.supportsEngine(choice.Engine) {
		if n := p.workspaceBytes(choice); n+copied <= gpu.Memory {
			return Plan{choice, nonEmptySizes(copied, n)}
		}
	}
	return Plan{Allocations: nonEmptySizes(copied, 0)}
}

// choose returns the engine that the rules choose for a problem with features f.
func (a *architecture) choose(p *problem, f []float32) Choice {
	half := 0
	if p.DType != F32 {
		half = 1
	}
	choice := a.ensemble[p.kind][half]().Choose(f)
	if other, runs := a.onDevice(p, f, p.workspaceBytes(choice)); runs {
		return other
	}
	return choice
}

// onDevice returns the half-precision kernel for few channels per group that replaces an engine with a workspace of the
// given bytes; runs is false if none does. cuDNN proposes such kernels only on a machine with a GPU.
func (a *architecture) onDevice(p *problem, f []float32, bytes int64) (c Choice, runs bool) {
	switch {
	case p.DType == F32:
		return c, false
	case p.summedBySample(bytes):
		return Choice{Engine: SampleSums}, true
	}
	return Choice{Engine: Direct}, p.Layout == Contiguous && a.device[p.kind]().Vote(f) == DeviceVote(true)
}

// OnDevice reports whether one direction of a convolution runs on a kernel that cuDNN proposes only on a machine with a
// GPU, in place of an engine with a workspace of the given bytes. It returns that kernel's workspace in bytes. The
// units of sizes and channels follow [Canonical].
func (r *Rules) OnDevice(c Config, d Direction, gpu GPU, bytes int64) (workspace int64, runs bool) {
	p := newProblem(c, d, &gpu)
	f := p.features()
	choice, runs := r.architectures[generation(gpu.Capability)].onDevice(&p, f[:], bytes)
	return p.workspaceBytes(choice), runs
}

// summedBySample reports whether [SampleSums] runs in place of an engine with a workspace of the given bytes. It always
// runs for 7x7 filters with stride 1, by peaks of PyTorch 2.11 on an RTX 3090 and an A100 (ConvNeXt, CAFormer and
// MambaOut in channels-last). For other filters cuDNN's answer counts, unless its engine copies the image with every
// channel padded to a group: in no recorded call does such an engine run where SampleSums can.
func (p *problem) summedBySample(bytes int64) bool {
	const padded = 4
	return p.sumsBySample() && (p.K[0] == 7 && !p.strided() || bytes > padded*p.N*p.c*p.xs*p.es)
}

// sumsBySample reports whether [SampleSums] can run: for the weight gradient of a depthwise convolution of
// channels-last tensors in half precision, with square images whose size is kept or halved.
func (p *problem) sumsBySample() bool {
	depthwise := p.Groups > 1 && p.cg == 1 && p.kg == 1 && p.k >= sampleChannels
	square := p.Dim == 2 && p.K[0] == p.K[1] && p.K[0]%2 == 1 && p.K[0] <= 7
	same := p.Pad[0] == p.K[0]/2 && p.Pad[1] == p.Pad[0] && p.Dilation[0] == 1 && p.Dilation[1] == 1
	return p.kind == wgrad && p.DType != F32 && p.Layout != Contiguous && depthwise && square && same &&
		p.Stride[0] == p.Stride[1] && p.Stride[0] <= 2
}

// weightCopy returns the bytes of the channels-last copy of a contiguous weight that PyTorch makes before it calls
// cuDNN if only the input is channels-last. Native depthwise kernels need no copy.
func (p *problem) weightCopy(d Direction) int64 {
	if p.Layout != InputChannelsLast || d == GradWeight || p.taps == 1 || p.cg == 1 {
		return 0
	}
	return p.k * p.cg * p.taps * p.es
}

// bf16Capability is the lowest compute capability at which PyTorch runs bfloat16 convolutions in cuDNN
// (supportsBFloat16ConvolutionWithCuDNNv8 in ATen's CUDAHooks.cpp).
const bf16Capability = 80

// withoutCuDNN returns the plan of PyTorch's own convolution (slow_conv2d and similar): native depthwise kernels, or a
// matrix product for each sample, with a buffer of window columns that all samples share. Groups are computed one after
// another on copies, and the results are concatenated. The plan has the allocations that are alive at the last group.
func (p *problem) withoutCuDNN() Plan {
	if p.Groups > 1 && p.cg == 1 {
		return Plan{}
	}
	plan := Plan{Choice: Choice{Engine: Im2col}}
	if p.Groups > 1 {
		plan.Allocations = p.groupCopies()
	}
	if p.kind != fprop || p.taps > 1 || p.strided() || p.Pad != [3]int64{} {
		plan.Allocations = append(plan.Allocations, p.cg*p.taps*p.ys*p.es)
	}
	return plan
}

// groupCopies returns the sizes of the last group's copies and of the results of all groups.
func (p *problem) groupCopies() []int64 {
	x, y, w := p.N*p.cg*p.xs*p.es, p.N*p.kg*p.ys*p.es, p.kg*p.cg*p.taps*p.es
	switch p.kind {
	case dgrad:
		return []int64{y, x, x * p.Groups}
	case wgrad:
		return []int64{y, x, w * p.Groups}
	}
	return []int64{x, y * p.Groups}
}

// nonEmptySizes returns the sizes that are not zero.
func nonEmptySizes(first, second int64) []int64 {
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
