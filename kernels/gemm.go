package kernels

import (
	"cmp"
	"math"

	"github.com/vprof/vprof/internal/ceil"
)

// Sizes of the kernels for matrix products (tile.cuh, tensor.cuh, cores.cuh).
const (
	tileSide = 128
	// Threads and shared memory of a block. With tensor cores, shared memory holds two stages of 16 KiB, or three from
	// sm_80 on. With CUDA cores, it holds two stages of two tiles. A tile is two vectors deep, its lines padded by four
	// floats.
	tensorThreads = 128
	stageBytes    = 16 << 10
	coreThreads   = 256
	// tileFloats is the number of floats of a partial result, which one block stores and another block adds up.
	tileFloats = tileSide * tileSide
	// leastShareDepth is the smallest depth for which several blocks share a tile.
	leastShareDepth = 512
)

// Matrix is a batch of matrices with dense rows. Row is the distance between the starts of rows, Batch the distance
// between matrices, in elements.
type Matrix struct {
	Addr       uint64
	Row, Batch int64
}

// GEMM is a batch of matrix products C = A times B transposed. A is M by K, B is N by K, and C is M by N, all of one
// type; sums are F32. Rows and matrices of A and B start at multiples of 16 bytes. F16 runs on tensor cores, and from
// compute capability 8.0 on also BF16 and TF32.
type GEMM struct {
	Type Type
	// TF32 reports whether tensor cores multiply F32, with 10 bits of the mantissa.
	TF32           bool
	A, B, C        Matrix
	M, N, K, Batch int64
	// Scale multiplies the result; zero means one.
	Scale float64
}

var gemmNames = forProducts("gemm")

// Launch returns the kernel launch for a GPU of the compute capability.
func (k GEMM) Launch(capability int) Launch {
	size := k.Type.Size()
	if !wholeVectors(k.A, k.M, k.Batch, size) || !wholeVectors(k.B, k.N, k.Batch, size) {
		panic("kernels: gemm: a row that does not begin at a multiple of 16 bytes")
	}
	name, engine := gemmNames.choose(k.Type, k.TF32, capability)
	p := product{m: k.M, n: k.N, k: k.K, batch: k.Batch, scale: k.Scale}
	p.chooseSplits()
	args := make([]uint64, 0, 15)
	args = k.A.appendArgs(args)
	args = k.B.appendArgs(args)
	args = k.C.appendArgs(args)
	l := p.launch(name, engine, p.appendArgs(args))
	l.Reads = k.A.visited(k.M, k.K, k.Batch, size) + k.B.visited(k.N, k.K, k.Batch, size)
	if k.M == 0 || k.N == 0 {
		l.Reads = 0
	}
	l.Writes = k.M * k.N * k.Batch * size
	return l
}

// wholeVectors reports whether all rows start at multiples of 16 bytes.
func wholeVectors(m Matrix, rows, batch, size int64) bool {
	lanes := vectorBytes / size
	return m.Addr%vectorBytes == 0 && (m.Row%lanes == 0 || rows <= 1) && (m.Batch%lanes == 0 || batch <= 1)
}

// appendArgs appends the matrix to a kernel's arguments.
func (m Matrix) appendArgs(args []uint64) []uint64 {
	return append(args, m.Addr, uint64(m.Row), uint64(m.Batch))
}

// visited returns the number of distinct bytes of all matrices. Rows may overlap, and a batch may repeat one matrix.
func (m Matrix) visited(rows, depth, batch, size int64) int64 {
	elements := rows * depth
	if m.Row < depth && elements > 0 {
		elements = (rows-1)*m.Row + depth
	}
	if m.Batch == 0 {
		batch = min(batch, 1)
	}
	return elements * batch * size
}

// An engine describes the kernels for products that run on tensor cores, or those on CUDA cores.
type engine struct {
	threads, shared uint32
}

// cudaCoreEngine returns the engine without tensor cores for a type.
func cudaCoreEngine(t Type) engine {
	return engine{coreThreads, uint32(2 * 2 * (2 * vectorBytes / t.Size()) * (tileSide + 4) * 4)}
}

// engineFor returns the engine for a type on a GPU, as Engine of product.cuh chooses it.
func engineFor(t Type, tf32 bool, capability int) engine {
	switch {
	case capability >= 80 && (t != F32 || tf32):
		return engine{tensorThreads, 3 * stageBytes}
	case t == F16:
		return engine{tensorThreads, 2 * stageBytes}
	}
	return cudaCoreEngine(t)
}

// productNames holds the names of a product's kernels: for each type, and for TF32.
type productNames struct {
	typedNames
	tf32 string
}

func forProducts(prefix string) productNames { return productNames{forTypes(prefix), prefix + "_tf32"} }

// choose returns the name and the engine of the kernel for a type on a GPU.
func (n *productNames) choose(t Type, tf32 bool, capability int) (string, engine) {
	e := engineFor(t, tf32, capability)
	if t == F32 && e != cudaCoreEngine(t) {
		return n.tf32, e
	}
	return n.typedNames[t], e
}

// A product describes how the blocks of a matrix product cover the tiles of the result.
type product struct {
	m, n, k, batch, splits int64
	scale                  float64 // of the result; zero is one
}

// chooseSplits divides the depth of each tile among several blocks if there are few tiles and the depth is large. The
// blocks' partial sums must fit the module's scratch memory.
func (p *product) chooseSplits() {
	if p.k >= 1<<30 || p.m >= 1<<30 || p.n >= 1<<30 || p.batch >= 1<<30 {
		panic("kernels: a product with a side of 2^30 or more")
	}
	tiles := p.tiles() * p.batch
	p.splits = 1
	if tiles > 0 && tiles < scratchTickets {
		p.splits = max(1, min(ceil.Div(p.k, leastShareDepth), scratchFloats/tileFloats/tiles))
	}
}

func (p *product) tiles() int64 { return ceil.Div(p.m, tileSide) * ceil.Div(p.n, tileSide) }

func (p *product) appendArgs(args []uint64) []uint64 {
	return append(args, uint64(p.m), uint64(p.n), uint64(p.k), uint64(p.batch), uint64(p.splits),
		math.Float64bits(cmp.Or(p.scale, 1)))
}

// batchBlocks returns the y size of a grid over a batch: CUDA allows at most 65535; the z size multiplies it.
func batchBlocks(batch int64) uint32 { return uint32(min(max(batch, 1), 65535)) }

func (p *product) launch(name string, e engine, args []uint64) Launch {
	l := newLaunch(name, p.tiles()*p.splits, e.shared, args)
	l.Block[0] = e.threads
	l.Grid[1] = batchBlocks(p.batch)
	l.Grid[2] = uint32(max(ceil.Div(p.batch, int64(l.Grid[1])), 1))
	l.FLOPs = 2 * p.m * p.n * p.k * p.batch
	return l
}
