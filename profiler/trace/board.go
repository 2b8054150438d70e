// Package trace records a training step: the model's Go description runs once
// over tensors that have a shape and no data, and every allocation, launch and
// free that PyTorch would do comes out as a program.
package trace

// Board is the figures of a GPU that PyTorch and its libraries look at before they decide
// how much to allocate. The GPU catalog has them.
type Board struct {
	// Name is the catalog's name, such as "rtx-5060-ti".
	Name string
	// Capability is the compute capability times ten: 120 for 12.0.
	Capability int
	// SMs is the number of streaming multiprocessors.
	SMs int
	// ThreadsPerSM is the largest number of resident threads of one of them.
	ThreadsPerSM int
	// Memory is the memory the driver reports, in bytes.
	Memory int64
}
