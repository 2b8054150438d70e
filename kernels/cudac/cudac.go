// Package cudac is the kernels' CUDA C, and a CPU to run it on in tests: every thread of a block is a fiber, barriers
// and the instructions of tensor cores are played by functions, and memory outside of the buffers may not be touched.
// It shows that the arithmetic is right, every byte visited and no barrier missing; nothing about speed.
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
