// Package cudac has the CUDA C of the kernels, and a simulated GPU on the CPU to run it in tests. Each thread of a
// block is a fiber, and functions emulate barriers and tensor core instructions. Accesses outside of the buffers are
// errors. Tests show that results are right, every byte is visited and no barrier is missing, but nothing about speed.
package cudac

import "embed"

// Sources are the files that the PTX modules are made from.
//
//go:embed *.cu *.cuh
var Sources embed.FS

// A Launch holds the arguments with which a driver starts a kernel.
type Launch struct {
	Arch        int // 70, 75 or 80: the module
	Name        string
	Grid, Block [3]uint32
	Shared      uint32
	Args        []uint64
	// First is the first block that runs: of a grid with millions, the last are enough.
	First uint64
	// Backward runs blocks and threads in falling order. A kernel that lacks a barrier then comes to another result.
	Backward bool
}
