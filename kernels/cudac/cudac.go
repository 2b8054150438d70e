// Package cudac holds the CUDA C sources of the kernels, and simulates a GPU on the CPU to run them in tests. Each
// thread of a block is a fiber, and functions emulate barriers and tensor core instructions. An access outside of the
// buffers is an error. Tests show that results are right, that every byte is accessed, and that no barrier is missing.
// They say nothing about speed.
package cudac

import "embed"

// Sources holds the files from which the PTX modules are compiled.
//
//go:embed *.cu *.cuh
var Sources embed.FS

// A Launch holds the arguments of a kernel launch.
type Launch struct {
	Arch        int // 70, 75 or 80: the module
	Name        string
	Grid, Block [3]uint32
	Shared      uint32
	Args        []uint64
	// First is the index of the first block that runs. Of grids with millions of blocks, tests run only the last ones.
	First uint64
	// Backward reports whether blocks and threads run in descending order. The result of a kernel that lacks a barrier
	// depends on the order.
	Backward bool
}
