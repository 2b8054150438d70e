// Package cudnn models the workspaces of cuDNN 9.19 convolutions as PyTorch
// 2.11 uses them: cudnn.benchmark off, TF32 on. It says which transient bytes
// one call asks the caching allocator for beside its output.
package cudnn

//go:generate go run ./fit -o rules.txt testdata/conv-workspaces.jsonl.gz

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
	p := newProblem(c, d, &b)
	r := loadRules()
	f := p.features()
	half := 0
	if c.DType != F32 {
		half = 1
	}
	plan := Plan{Engine: Engine(r.engine[p.kind][half].decide(&f))}
	n := p.bytes(plan.Engine)
	if plan.Engine.splits() {
		plan.Splits = r.split[p.kind][half].decide(&f)
		n += p.partials(plan.Engine, plan.Splits)
	}
	if n > 0 {
		plan.Allocations = []int64{n}
	}
	return plan
}
