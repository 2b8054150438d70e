package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/kernels"
)

// matrix allocates a batch of matrices with gaps between their rows.
func (c *cpu) matrix(t kernels.Type, rows, depth, batch, gap int64, seed int) (kernels.Matrix, tensor) {
	row := depth + gap
	x := c.tensorOf(t, rows*row*batch, seed)
	return kernels.Matrix{Addr: x.addr(), Row: row, Batch: rows * row}, x
}

// multiply returns the product that a GEMM must come to, over what C held before.
func multiply(k kernels.GEMM, a, b, c []float64) []float64 {
	for batch := range k.Batch {
		for m := range k.M {
			for n := range k.N {
				sum := 0.0
				for d := range k.K {
					sum += a[batch*k.A.Batch+m*k.A.Row+d] * b[batch*k.B.Batch+n*k.B.Row+d]
				}
				c[batch*k.C.Batch+m*k.C.Row+n] = round(k.Type, sum)
			}
		}
	}
	return c
}

func TestGEMMMultipliesMatricesOfAnySize(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) {
		k := kernels.GEMM{Type: rapid.SampledFrom(types).Draw(t, "type"), TF32: rapid.Bool().Draw(t, "TF32")}
		side := rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(100, 150))
		k.M, k.N = side.Draw(t, "m"), side.Draw(t, "n")
		k.K, k.Batch = rapid.Int64Range(0, 130).Draw(t, "k"), rapid.Int64Range(0, 2).Draw(t, "batch")
		// Rows begin at whole vectors.
		gap := func(row int64) int64 { return (8-row%8)%8 + 8*rapid.Int64Range(0, 1).Draw(t, "gap") }
		var a, b, y tensor
		k.A, a = c.matrix(k.Type, k.M, k.K, k.Batch, gap(k.K), 1)
		k.B, b = c.matrix(k.Type, k.N, k.K, k.Batch, gap(k.K), 2)
		k.C, y = c.matrix(k.Type, k.M, k.N, k.Batch, rapid.Int64Range(0, 9).Draw(t, "gap"), 3)
		if rapid.Bool().Draw(t, "one A for all") {
			k.A.Batch = 0
		}
		want := multiply(k, a.get(k.Type), b.get(k.Type), y.get(k.Type))
		c.run(k.Launch(c.arch))
		near(t, k.Type, want, y.get(k.Type), "product")
	})
}

// A convolution over one row of pixels is a product whose operand's rows
// overlap: each begins a pixel after the one before.
func TestGEMMTakesOverlappingRows(t *testing.T) {
	onEveryArch(t, func(t *testing.T, c *cpu) {
		for _, typ := range types {
			k := kernels.GEMM{Type: typ, TF32: true, M: 140, N: 9, K: 72, Batch: 1}
			a, b, y := c.tensorOf(typ, (k.M-1)*24+k.K, 1), c.tensorOf(typ, k.N*k.K, 2), c.tensorOf(typ, k.M*k.N, 3)
			k.A = kernels.Matrix{Addr: a.addr(), Row: 24}
			k.B = kernels.Matrix{Addr: b.addr(), Row: k.K}
			k.C = kernels.Matrix{Addr: y.addr(), Row: k.N}
			want := multiply(k, a.get(typ), b.get(typ), y.get(typ))
			c.run(k.Launch(c.arch))
			near(t, typ, want, y.get(typ), "product")
		}
	})
}

// Tensor cores take the upper 19 bits of F32.
func TestTF32DropsTheLowerBits(t *testing.T) {
	onEveryArch(t, func(t *testing.T, c *cpu) {
		x, w, y := c.alloc(32, 0), c.alloc(32, 0), c.alloc(4, 0)
		x.set(kernels.F32, func(int) float64 { return 1 + 1.0/1024 + 1.0/2048 }) // bits 10 and 11
		w.set(kernels.F32, func(int) float64 { return 1 })
		row := func(x tensor) kernels.Matrix { return kernels.Matrix{Addr: x.addr(), Row: 8} }
		k := kernels.GEMM{Type: kernels.F32, TF32: true, A: row(x), B: row(w), C: row(y), M: 1, N: 1, K: 8, Batch: 1}
		c.run(k.Launch(c.arch))
		want := 8 * (1 + 1.0/1024)
		if c.arch < 80 {
			want = 8 * (1 + 1.0/1024 + 1.0/2048)
		}
		require.InDelta(t, want, y.get(kernels.F32)[0], 0)
	})
}

// Many tiles go in groups, great depths are shared, and a launch leaves the counters of the shares as they were.
func TestGEMMCoversManyTilesAndSharesTheDepth(t *testing.T) {
	tests := []struct{ m, n, k, batch, blocks int64 }{
		{1100, 140, 16, 1, 9 * 2}, // the second group of rows is not full
		{20, 140, 1040, 1, 2 * 3}, // shares of 512 at least: 352 each
		{130, 20, 520, 2, 2 * 2},  // of 288 each
	}
	onEveryArch(t, func(t *testing.T, c *cpu) {
		for i, tt := range tests {
			typ := types[i%len(types)]
			k := kernels.GEMM{Type: typ, TF32: true, M: tt.m, N: tt.n, K: tt.k, Batch: tt.batch}
			var a, b, y tensor
			k.A, a = c.matrix(typ, k.M, k.K, k.Batch, 0, 1)
			k.B, b = c.matrix(typ, k.N, k.K, k.Batch, 0, 2)
			k.C, y = c.matrix(typ, k.M, k.N, k.Batch, 0, 3)
			l := k.Launch(c.arch)
			require.EqualValues(t, tt.blocks, l.Grid[0])
			want := multiply(k, a.get(typ), b.get(typ), y.get(typ))
			for range 2 {
				c.run(l)
				near(t, typ, want, y.get(typ), "product")
			}
		}
	})
}

func TestSharesFitScratchMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		side := rapid.Int64Range(1, 5000)
		k := kernels.GEMM{
			Type: kernels.F16, M: side.Draw(t, "m"), N: side.Draw(t, "n"), K: 8 * side.Draw(t, "k"),
			Batch: rapid.Int64Range(1, 100).Draw(t, "batch"),
		}
		k.A, k.B, k.C = kernels.Matrix{Row: k.K}, kernels.Matrix{Row: k.K}, kernels.Matrix{Row: k.N}
		l := k.Launch(80)
		tiles := ((k.M + 127) / 128) * ((k.N + 127) / 128)
		require.Zero(t, int64(l.Grid[0])%tiles)
		if int64(l.Grid[0]) > tiles {
			// 8 MiB hold 128 tiles of 64 KiB.
			require.LessOrEqual(t, int64(l.Grid[0])*k.Batch, int64(128))
		}
	})
}

func TestTensorCoresServeTheTypesTheyHave(t *testing.T) {
	for _, tt := range []struct {
		typ        kernels.Type
		tf32       bool
		capability int
		name       string
		threads    uint32
	}{
		{kernels.F16, false, 70, "gemm_f16", 128},
		{kernels.F16, true, 75, "gemm_f16", 128},
		{kernels.F16, false, 90, "gemm_f16", 128},
		{kernels.BF16, true, 75, "gemm_bf16", 256},
		{kernels.BF16, false, 80, "gemm_bf16", 128},
		{kernels.F32, false, 120, "gemm_f32", 256},
		{kernels.F32, true, 120, "gemm_tf32", 128},
		{kernels.F32, true, 75, "gemm_f32", 256},
	} {
		k := kernels.GEMM{Type: tt.typ, TF32: tt.tf32, M: 128, N: 128, K: 128, Batch: 1}
		k.A, k.B, k.C = kernels.Matrix{Row: 128}, kernels.Matrix{Row: 128}, kernels.Matrix{Row: 128}
		l := k.Launch(tt.capability)
		require.Equal(t, tt.name, l.Name)
		require.Equal(t, tt.threads, l.Block[0])
		require.EqualValues(t, 2*128*128*128, l.FLOPs)
	}
}
