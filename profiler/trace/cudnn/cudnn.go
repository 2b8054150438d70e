// Package cudnn models the workspaces of cuDNN 9.19 convolutions as PyTorch
// 2.11 uses them: cudnn.benchmark off, TF32 on. It says which transient bytes
// one call asks the caching allocator for beside its output.
package cudnn

// Engine is a class of cuDNN engines with one way to use workspace.
type Engine uint8

// The engine classes.
const (
	// Direct engines read and write the tensors where they are.
	Direct Engine = iota
	// Copying engines make channels-last copies of some of x, w, y.
	Copying
)

func (e Engine) String() string {
	switch e {
	case Direct:
		return "direct"
	case Copying:
		return "copies"
	}
	return "unknown"
}

// Plan is what the model thinks cuDNN does for one direction.
type Plan struct {
	Engine Engine
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
	p := newProblem(c, d, &b)
	if p.depthwise() || (p.pointwise() && p.unitStride()) {
		return Plan{Engine: Direct}
	}
	if b.Capability < 80 && c.DType != F16 {
		return Plan{Engine: Direct}
	}
	if p.kind == fprop && p.c <= 4 {
		return Plan{Engine: Direct}
	}
	set, pad := copyXWY, int64(8)
	if c.DType == F32 {
		pad = 4
		if p.kind == fprop && p.Groups == 1 {
			set = copyX | copyW
		}
	}
	n := p.layoutCopies(set, pad, pad)
	return Plan{Engine: Copying, Allocations: []int64{n}}
}
