package program

import "github.com/vprof/vprof/internal/lists"

// Class is the use of a buffer. Every buffer has exactly one class, so the classes' bytes sum to the total.
type Class uint8

// The classes, in the order tables show them.
const (
	// Weights are the parameters of the model and of its loss module.
	Weights Class = iota
	// Buffers are the model's tensors that are not parameters.
	Buffers
	// Gradients are the .grad of parameters.
	Gradients
	// OptimizerState is the state of the optimizer and the GradScaler.
	OptimizerState
	// Activations are tensors that autograd saves for backward.
	Activations
	// Batch is the input data of the step.
	Batch
	// Temporaries are short-lived: results that are not saved, gradients between two nodes, scratch space of kernels.
	Temporaries
	// Workspace is scratch space allocated for libraries (cuBLAS, cuDNN, cuFFT).
	Workspace
	// GraphPools are tensors in the allocator's private pools, as for CUDA graphs. When they are freed, only the same
	// graphs can reuse their memory.
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

// Breakdown is a number of bytes per class.
type Breakdown [NumClasses]int64

// EachVisible calls visit for the classes that tables show: all except [GraphPools] of programs without CUDA graphs.
func (b Breakdown) EachVisible(visit func(c Class, bytes int64)) {
	for c, bytes := range b {
		if c := Class(c); c != GraphPools || bytes != 0 {
			visit(c, bytes)
		}
	}
}

// Total returns the sum over the classes.
func (b Breakdown) Total() int64 { return lists.Sum(b[:], func(n int64) int64 { return n }) }
