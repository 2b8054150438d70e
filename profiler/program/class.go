package program

import "github.com/vprof/vprof/internal/lists"

// Class describes what a buffer is for. Every buffer has exactly one class, so class totals sum to the whole.
type Class uint8

// The classes, in the order tables show them.
const (
	// Weights are the parameters of the model and of its criterion.
	Weights Class = iota
	// Buffers are the model's tensors that are not trained.
	Buffers
	// Gradients are the .grad of parameters.
	Gradients
	// OptimizerState is the state of the optimizer and the GradScaler.
	OptimizerState
	// Activations are kept by autograd for backward.
	Activations
	// Batch is the input data of the step.
	Batch
	// Temporaries live for a moment: results that are not kept, gradients between two nodes, scratch space of kernels.
	Temporaries
	// Workspace is scratch space asked for by libraries (cuBLAS, cuDNN, cuFFT).
	Workspace
	// GraphPools are the tensors in private pools of the allocator, which CUDA graphs have: when they are freed, their
	// memory goes to the same graphs alone.
	GraphPools

	// NumClasses is the number of classes.
	NumClasses = iota
)

var classNames = [NumClasses]string{
	"weights", "buffers", "gradients", "optimizer state",
	"activations", "batch data", "temporaries", "workspace", "graph pools",
}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "unknown"
}

// Breakdown is an amount of bytes per class at one moment.
type Breakdown [NumClasses]int64

// EachVisible visits the classes that tables show: all but [GraphPools] of programs without CUDA graphs.
func (b Breakdown) EachVisible(visit func(c Class, bytes int64)) {
	for c, bytes := range b {
		if c := Class(c); c != GraphPools || bytes != 0 {
			visit(c, bytes)
		}
	}
}

// Total returns the sum over the classes.
func (b Breakdown) Total() int64 { return lists.Sum(b[:], func(n int64) int64 { return n }) }
