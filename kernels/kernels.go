// Package kernels holds the kernels that vprof runs on a GPU in place of PyTorch's: CUDA C sources, PTX and cubins
// compiled from them (make kernels), and one Go type per kernel that describes its arguments and returns a [Launch].
// The package only computes arguments; package device/cuda launches the kernels.
//
// A module holds all kernels. Besides its code it uses 8 MiB of device memory, where the blocks of a launch exchange
// partial results. Launches of a module must therefore run one at a time, as on one stream.
package kernels

import (
	"archive/tar"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"sync"

	"github.com/ulikunitz/xz"

	"github.com/vprof/vprof/internal/ceil"
)

// Launch holds the arguments of a kernel launch.
type Launch struct {
	// Name is the name of the kernel in the module.
	Name        string
	Grid, Block [3]uint32
	// Shared is the size of dynamic shared memory in bytes, at most [MaxShared].
	Shared uint32
	// Args is the kernel's only parameter, a structure of 8-byte fields: pass cuLaunchKernel a pointer to the first.
	Args []uint64
	// Reads and Writes are the numbers of distinct bytes of device memory that the kernel reads and writes. FLOPs is
	// its number of operations; a multiply-add counts as two.
	Reads, Writes, FLOPs int64
	// RereadBytes is the part of Reads that an earlier launch for the same [Work] also reads.
	RereadBytes int64
}

// MaxShared is the largest [Launch.Shared], in bytes, which every GPU allows without cuFuncSetAttribute.
const MaxShared = 48 << 10

// MinCapability is the lowest compute capability, times ten, that has kernels.
const MinCapability = 70

// The modules, PTX and cubins in one archive each. They differ little, so compressed together they take half the space.
//
//go:embed ptx/modules.tar.xz
var packedPTX []byte

//go:embed cubin/modules.tar.xz
var packedCubins []byte

// A source is a module, which a process decompresses once. It does not use sync.OnceValue, so that the linker can omit
// the archives from a program without a CUDA device.
type source struct {
	once sync.Once
	text string
}

func (s *source) unpacked(archive []byte, name string) string {
	s.once.Do(func() { s.text = unpack(archive, name) })
	return s.text
}

var ptxSM70, ptxSM75, ptxSM80 source

// PTX returns the module for GPUs of a compute capability times ten, such as 86; empty below [MinCapability]. The
// driver compiles the module. Its PTX version, 7.8, requires driver 520 or newer.
func PTX(capability int) string {
	switch {
	case capability >= 80:
		return ptxSM80.unpacked(packedPTX, "sm_80.ptx")
	case capability >= 75:
		return ptxSM75.unpacked(packedPTX, "sm_75.ptx")
	case capability >= MinCapability:
		return ptxSM70.unpacked(packedPTX, "sm_70.ptx")
	}
	return ""
}

// cubins are the compiled modules by architecture, the newest first.
var cubins = [...]struct {
	capability int
	source
}{{capability: 120}, {capability: 100}, {capability: 90}, {capability: 86}, {capability: 80}, {capability: 75}}

// Cubin returns the compiled module for GPUs of a compute capability times ten, ready to load; empty if there is none.
// A GPU can run a cubin of an earlier capability with the same major number.
func Cubin(capability int) string {
	for i := range cubins {
		if c := cubins[i].capability; c <= capability && c/10 == capability/10 {
			return cubins[i].unpacked(packedCubins, fmt.Sprintf("sm_%d.cubin", c))
		}
	}
	return ""
}

// unpack returns a module of an archive. It takes some tenths of a second.
func unpack(archive []byte, name string) string {
	r, err := xz.NewReader(bytes.NewReader(archive))
	for files := tar.NewReader(r); err == nil; {
		var file *tar.Header
		if file, err = files.Next(); err == nil && file.Name == name {
			var text []byte
			if text, err = io.ReadAll(files); err == nil {
				return string(text)
			}
		}
	}
	panic("kernels: " + name + " is damaged: " + err.Error())
}

// Range is a range of device memory.
type Range struct {
	Addr  uint64
	Bytes int64
}

// Type is the element type of a tensor. All arithmetic is in F32.
type Type uint8

// The element types.
const (
	F32 Type = iota
	F16
	BF16
	numTypes
)

// Size returns the size of an element, in bytes.
func (t Type) Size() int64 {
	if t == F32 {
		return 4
	}
	return 2
}

var typeNames = [numTypes]string{"f32", "f16", "bf16"}

func (t Type) String() string {
	if t < numTypes {
		return typeNames[t]
	}
	return "unknown"
}

// typedNames holds the names of a kernel by element type.
type typedNames [numTypes]string

func forTypes(prefix string) typedNames {
	var names typedNames
	for t := range names {
		names[t] = prefix + "_" + typeNames[t]
	}
	return names
}

// threadsPerBlock is the default block size of kernels.
const threadsPerBlock = 256

// vectorBytes is the largest number of bytes that a thread reads at once.
const vectorBytes = 16

// newLaunch returns a launch of blocks with the default number of threads.
func newLaunch(name string, blocks int64, shared uint32, args []uint64) Launch {
	if blocks > 1<<31-1 {
		panic("kernels: " + name + ": more blocks than a grid has room for")
	}
	return Launch{
		Name: name, Grid: [3]uint32{uint32(max(blocks, 1)), 1, 1}, Block: [3]uint32{threadsPerBlock, 1, 1},
		Shared: shared, Args: args,
	}
}

// blocksFor returns the number of blocks that cover n bytes if each thread processes the given number of vectors.
func blocksFor(n int64, vectorsPerThread int64) int64 {
	return ceil.Div(n, vectorBytes*threadsPerBlock*vectorsPerThread)
}
