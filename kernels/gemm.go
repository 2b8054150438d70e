package kernels

import (
	"cmp"
	"math"

	"github.com/vprof/vprof/internal/ceil"
)

// Geometry of the kernels for products (tile.cuh, tensor.cuh, cores.cuh).
const (
	tileSide = 128
	// Threads and shared memory of a block. With tensor cores, shared memory holds two stages of 16 KiB, from sm_80 on
	// three. With CUDA cores it holds two stages of two tiles, each two vectors of the type deep, with lines four
	// floats longer than a tile.
	tensorThreads = 128
	stageBytes    = 16 << 10
	coreThreads   = 256
	// The number of floats of a partial sum, which a block stores for the block that adds up its tile.
	tileFloats = tileSide * tileSide
	// The smallest depth for which an additional block shares a tile.
	leastShareDepth = 512
)

// Matrix is a batch of matrices with dense rows. Row is the distance between the
// beginnings of rows and Batch that between matrices, in elements.
type Matrix struct {
	Addr       uint64
	Row, Batch int64
}

// GEMM is a product of matrices, C = A times B transposed, for each of a batch: A is M by K, B is N by K and C is M by
// N, in one type, with sums in F32. Rows and matrices of A and B begin at multiples of 16 bytes. F16 runs on tensor
// cores; BF16 and TF32 run on them from compute capability 8.0 on.
type GEMM struct {
	Type Type
	// TF32 lets tensor cores multiply F32, of which they take 10 bits of the mantissa.
	TF32           bool
	A, B, C        Matrix
	M, N, K, Batch int64
	// Scale multiplies the result; zero is one.
	Scale float64
}

var gemmNames = forProducts("gemm")

// Launch returns the launch for a GPU of the compute capability.
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

// wholeVectors reports whether rows can be read in units of 16 bytes.
func wholeVectors(m Matrix, rows, batch, size int64) bool {
	lanes := vectorBytes / size
	return m.Addr%vectorBytes == 0 && (m.Row%lanes == 0 || rows <= 1) && (m.Batch%lanes == 0 || batch <= 1)
}

// appendArgs appends the matrix as arguments of a kernel.
func (m Matrix) appendArgs(args []uint64) []uint64 {
	return append(args, m.Addr, uint64(m.Row), uint64(m.Batch))
}

// visited returns the number of distinct bytes of all matrices. Rows may overlap, and all matrices of a batch may be
// one; otherwise elements do not overlap.
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

// An engine is one of the two ways to compute products: on tensor cores or on CUDA cores.
type engine struct {
	threads, shared uint32
}

// cudaCoreEngine returns the engine without tensor cores for a type.
func cudaCoreEngine(t Type) engine {
	return engine{coreThreads, uint32(2 * 2 * (2 * vectorBytes / t.Size()) * (tileSide + 4) * 4)}
}

// engineFor returns the engine for a type: tensor cores or CUDA cores, as Engine of product.cuh does in the module for
// the GPU.
func engineFor(t Type, tf32 bool, capability int) engine {
	switch {
	case capability >= 80 && (t != F32 || tf32):
		return engine{tensorThreads, 3 * stageBytes}
	case t == F16:
		return engine{tensorThreads, 2 * stageBytes}
	}
	return cudaCoreEngine(t)
}

// productNames are a product's kernels: for each type, and for F32 on tensor cores.
type productNames struct {
	typedNames
	tf32 string
}

func forProducts(prefix string) productNames { return productNames{forTypes(prefix), prefix + "_tf32"} }

// choose returns the kernel for a type on a GPU of the compute capability.
func (n *productNames) choose(t Type, tf32 bool, capability int) (string, engine) {
	e := engineFor(t, tf32, capability)
	if t == F32 && e != cudaCoreEngine(t) {
		return n.tf32, e
	}
	return n.typedNames[t], e
}

// A product is the grid of a matrix product: how its blocks cover the tiles of the result.
type product struct {
	m, n, k, batch, splits int64
	scale                  float64 // of the result; zero is one
}

// chooseSplits divides the depth of a tile among several blocks if there are few tiles and the depth is large. Their
// sums must fit the module's scratch memory.
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

// batchBlocks returns the second extent of a grid over a batch, at most the 65535 that CUDA
// allows; the third extent multiplies it where the batch is larger.
func batchBlocks(batch int64) uint32 { return uint32(min(max(batch, 1), 65535)) }

func (p *product) launch(name string, e engine, args []uint64) Launch {
	l := newLaunch(name, p.tiles()*p.splits, e.shared, args)
	l.Block[0] = e.threads
	l.Grid[1] = batchBlocks(p.batch)
	l.Grid[2] = uint32(max(ceil.Div(p.batch, int64(l.Grid[1])), 1))
	l.FLOPs = 2 * p.m * p.n * p.k * p.batch
	return l
}
