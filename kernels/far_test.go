package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/kernels/cudac"
	"github.com/vprof/vprof/tools/sample"
)

// An operand grows with the number of units of a launch: in each of its rows (zero is one) a unit has so many bytes.
type operand struct {
	bytes, rows int64
	written     bool
}

// A far case is a launch over a number of units, which lie one after the other in each operand. The last units of a
// large launch must come to what a small launch of the same values comes to.
type farCase struct {
	name     string
	operands []operand
	launch   func(units int64, at []uint64) kernels.Launch
}

// farBytes is the size of the largest operand of a case: beyond 2 and 4 GiB, beyond 2^31 elements of four bytes, and
// with a lower half that is negative as a number of 32 bits.
const farBytes = 11 << 30

// Of operands of gigabytes, of which only what is touched takes memory, the last blocks of every kernel read and write
// the end, and nothing else.
func TestEveryKernelReachesTheEndOfOperandsOfGigabytes(t *testing.T) {
	if !cudac.Available {
		t.Skip(cudac.Missing)
	}
	covered := map[string]bool{"verify": true, "fill": true} // by TestPatternsReachTheEndOfGigabytes
	tried := slices.Clone(archs)
	slices.Reverse(tried) // the newest, which alone has all kernels, is in every sample
	for _, arch := range sample.OfSlow(tried) {
		c := newCPU(t, arch, arch == 75)
		for _, f := range farCases(c) {
			covered[f.run(t, c)] = true
		}
		covered[strideOverGigabytes(t, c, kernels.F16)] = true
		c.free()
	}
	text, err := os.ReadFile("cubin/usage.csv")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range lines[2:] { // after its source and the names of columns
		name := strings.Split(line, ",")[1]
		require.True(t, covered[name], "%s was not tried", name)
	}
}

// run compares the end of a large launch with a small launch, and returns the kernel's name.
func (f *farCase) run(t *testing.T, c *cpu) string {
	largest := int64(0)
	for _, o := range f.operands {
		largest = max(largest, o.bytes*max(1, o.rows))
	}
	units := farBytes/largest + 1
	_, want := f.ends(t, c, 1)
	name, got := f.ends(t, c, units)
	what := fmt.Sprintf("%s (%s) on sm_%d, %d units", name, f.name, c.arch, units)
	for i := range want {
		require.True(t, bytes.Equal(want[i], got[i]), what)
		require.NotEqual(t, make([]byte, len(want[i])), want[i], what)
	}
	return name
}

// ends launches over a number of units with the same values in the last of them, and returns the last unit of what is
// written.
func (f *farCase) ends(t *testing.T, c *cpu, units int64) (name string, written [][]byte) {
	var at []uint64
	var buffers []*cudac.Buffer
	for i, o := range f.operands {
		b, err := cudac.NewSparse(o.bytes * max(1, o.rows) * units)
		require.NoError(t, err)
		defer b.Free()
		for r := range max(1, o.rows) {
			end := b.Bytes()[((r+1)*units-1)*o.bytes:][:o.bytes]
			for j := 2; j+1 < len(end) && !o.written; j += 4 { // numbers of few bits in every type
				end[j], end[j+1] = byte(int(4*small(i+int(r), j))&3)<<6, 0x3c
			}
		}
		at, buffers = append(at, b.Address()), append(buffers, b)
	}
	l := f.launch(units, at)
	blocks := int64(l.Grid[0]) * int64(l.Grid[1]) * int64(l.Grid[2])
	require.NoError(t, cudac.Run(cudac.Launch{
		Arch: c.arch, Name: l.Name, Grid: l.Grid, Block: l.Block, Shared: l.Shared, Args: l.Args, Backward: c.back,
		First: uint64(blocks - ceil.Div(blocks, units)),
	}), f.name)
	for i, o := range f.operands {
		for r := range max(1, o.rows) {
			if o.written {
				written = append(written, bytes.Clone(buffers[i].Bytes()[((r+1)*units-1)*o.bytes:][:o.bytes]))
			}
		}
	}
	return l.Name, written
}

// farCases returns a case for every kernel, and for every way in which one of a product's sides may be long.
func farCases(c *cpu) (all []farCase) {
	all = append(all, farCase{
		"copy",
		[]operand{{bytes: 16 << 10}, {bytes: 16 << 10, written: true}},
		func(n int64, at []uint64) kernels.Launch {
			return kernels.Copy{From: span(at[0], n<<14), To: span(at[1], n<<14)}.Launch()
		},
	}, farCase{
		"gather",
		[]operand{{bytes: 4 << 10}, {bytes: 4 << 10, written: true}},
		func(n int64, at []uint64) kernels.Launch {
			return kernels.Gather{From: at[0], To: at[1], Step: 1, Rows: n, TableRows: n, RowBytes: 4 << 10}.Launch()
		},
	})
	for _, p := range [][2]kernels.Type{
		{kernels.F32, kernels.F16}, {kernels.F32, kernels.BF16}, {kernels.F16, kernels.F32}, {kernels.BF16, kernels.F32},
	} {
		all = append(all, farCase{
			"cast",
			[]operand{{bytes: 2048 * p[0].Size()}, {bytes: 2048 * p[1].Size(), written: true}},
			func(n int64, at []uint64) kernels.Launch {
				return kernels.Cast{FromType: p[0], ToType: p[1], From: at[0], To: at[1], Elements: 2048 * n}.Launch()
			},
		})
	}
	for _, t := range types {
		all = append(all, farLists(t)...)
		for _, columns := range []int64{512, 4096} {
			all = append(all, farRows(c, t, columns)...)
		}
		all = append(all, farAttention(c, t)...)
		all = append(all, farProducts(c, t, false)...)
	}
	return append(all, farProducts(c, kernels.F32, true)...)
}

func span(at uint64, n int64) kernels.Range { return kernels.Range{Addr: at, Bytes: n} }

// farLists returns the kernels that go through ranges of memory, and reductions.
func farLists(t kernels.Type) []farCase {
	size := t.Size()
	const chunk = 32 << 10
	return []farCase{{
		"ranges",
		[]operand{{bytes: chunk}, {bytes: chunk}, {bytes: chunk, written: true}},
		func(n int64, at []uint64) kernels.Launch {
			return kernels.Elementwise{
				Type: t, Reads: []kernels.Range{span(at[0], n*chunk), span(at[1], n*chunk)},
				Writes: []kernels.Range{span(at[2], n*chunk)}, Rounds: 1, Scale: .5, Shift: 1,
			}.Launch()
		},
	}, {
		"lists",
		[]operand{{bytes: chunk}, {bytes: chunk}, {bytes: chunk, written: true}},
		func(n int64, at []uint64) kernels.Launch {
			return kernels.Update{
				Type: t, Read: 3, Written: 4, Rounds: 1, Scale: .5, Shift: 1,
				Parts: []kernels.Part{{Bytes: n * chunk, Addrs: at}},
			}.Launch()
		},
	}, {
		"rows",
		[]operand{{bytes: 1024 * size}, {bytes: size, written: true}},
		func(n int64, at []uint64) kernels.Launch {
			return kernels.ReduceRows{Type: t, From: at[0], To: at[1], Rows: n, Columns: 1024}.Launch()
		},
	}, {
		"columns",
		[]operand{{bytes: 4096, rows: 5}, {bytes: 4096, written: true}},
		func(n int64, at []uint64) kernels.Launch {
			return kernels.ReduceColumns{Type: t, From: at[0], To: at[1], Rows: 5, Columns: n * 4096 / size}.Launch()
		},
	}}
}

// farRows returns the kernels of rows, which a warp or a block has for itself.
func farRows(c *cpu, t kernels.Type, columns int64) []farCase {
	rows := int64(8)
	if columns*t.Size() > 4096 {
		rows = 1
	}
	line := rows * columns * t.Size()
	weight, bias := c.tensorOf(t, columns, 3).addr(), c.tensorOf(t, columns, 4).addr()
	in, out, number := operand{bytes: line}, operand{bytes: line, written: true}, operand{bytes: 4 * rows}
	told := operand{bytes: 4 * rows, written: true}
	return []farCase{{"softmax", []operand{in, out}, func(n int64, at []uint64) kernels.Launch {
		return kernels.Softmax{Type: t, Input: at[0], Output: at[1], Rows: n * rows, Columns: columns}.Launch()
	}}, {"softmax backward", []operand{in, in, out}, func(n int64, at []uint64) kernels.Launch {
		return kernels.SoftmaxBackward{
			Type: t, Output: at[0], Gradient: at[1], Result: at[2], Rows: n * rows, Columns: columns,
		}.Launch()
	}}, {"normalize", []operand{in, out, told, told}, func(n int64, at []uint64) kernels.Launch {
		return kernels.Normalize{
			Type: t, Input: at[0], Output: at[1], Weight: weight, Bias: bias, Mean: at[2], Deviation: at[3],
			Rows: n * rows, Columns: columns, Epsilon: 1e-5,
		}.Launch()
	}}, {"normalize backward", []operand{in, in, out, number, number}, func(n int64, at []uint64) kernels.Launch {
		return kernels.NormalizeBackward{
			Type: t, Input: at[0], Gradient: at[1], Result: at[2], Weight: weight, Mean: at[3], Deviation: at[4],
			Rows: n * rows, Columns: columns,
		}.Launch()
	}}}
}

// farAttention returns attention over many heads with long queries, with long keys, and of a depth that has no tiles.
func farAttention(c *cpu, t kernels.Type) (all []farCase) {
	for _, k := range []kernels.Attention{
		{Queries: 1024, Keys: 64, Depth: 128}, {Queries: 64, Keys: 1024, Depth: 128}, {Queries: 1024, Keys: 8, Depth: 130},
	} {
		k.Type, k.Scale = t, .125
		line := k.Depth * t.Size()
		all = append(all, farCase{
			fmt.Sprintf("attention of %d queries, depth %d", k.Queries, k.Depth),
			[]operand{
				{bytes: k.Queries * line},
				{bytes: k.Keys * line},
				{bytes: k.Keys * line},
				{bytes: k.Queries * line, written: true},
			},
			nil,
		})
		all[len(all)-1].launch = func(n int64, at []uint64) kernels.Launch {
			of := k
			of.Heads, of.Query, of.Key, of.Value, of.Output = n, at[0], at[1], at[2], at[3]
			return of.Launch(c.arch)
		}
	}
	return all
}

// farProducts returns products with one long side, of matrices and of convolutions.
func farProducts(c *cpu, t kernels.Type, tf32 bool) []farCase {
	const tile, depth = 128, 64
	size := t.Size()
	fixed := c.tensorOf(t, tile*depth, 5).addr()
	g := kernels.GEMM{Type: t, TF32: tf32, M: depth, N: depth, K: depth, Batch: 1}
	dense := func(at uint64, row int64) kernels.Matrix { return kernels.Matrix{Addr: at, Row: row} }
	conv := kernels.Conv{
		Type: t, TF32: tf32, Images: 1, Height: 16, Width: 16, Channels: depth, OutChannels: depth, Groups: 1,
		TapsY: 3, TapsX: 3,
		StrideY: 1, StrideX: 1, PadY: 1, PadX: 1, DilationY: 1, DilationX: 1,
		Weight: c.tensorOf(t, 9*depth*depth, 6).addr(),
	}
	image := 256 * depth * size
	pixels := c.tensorOf(t, 1024*8, 7).addr()
	return []farCase{{
		"rows",
		[]operand{{bytes: tile * depth * size}, {bytes: tile * depth * size, written: true}},
		func(n int64, at []uint64) kernels.Launch {
			g.M, g.A, g.B, g.C = n*tile, dense(at[0], depth), dense(fixed, depth), dense(at[1], depth)
			return g.Launch(c.arch)
		},
	}, {
		"columns",
		[]operand{{bytes: tile * depth * size}, {bytes: tile * size, rows: depth, written: true}},
		func(n int64, at []uint64) kernels.Launch {
			g.M, g.N, g.A, g.B, g.C = depth, n*tile, dense(fixed, depth), dense(at[0], depth), dense(at[1], n*tile)
			return g.Launch(c.arch)
		},
	}, {
		"images",
		[]operand{{bytes: image}, {bytes: image, written: true}},
		func(n int64, at []uint64) kernels.Launch {
			conv.Images, conv.Input, conv.Output = n, at[0], at[1]
			return conv.Forward(c.arch)
		},
	}, {
		"gradients of images",
		[]operand{{bytes: image}, {bytes: image, written: true}},
		func(n int64, at []uint64) kernels.Launch {
			conv.Images, conv.Output, conv.Input = n, at[0], at[1]
			return conv.InputGradient(c.arch)
		},
	}, {
		"filters",
		[]operand{{bytes: tile * size, rows: 1024}, {bytes: tile * 8 * size, written: true}},
		func(n int64, at []uint64) kernels.Launch {
			return kernels.Conv{
				Type: t, TF32: tf32, Images: 1, Height: 32, Width: 32, Channels: 8, OutChannels: n * tile, Groups: 1,
				TapsY: 1, TapsX: 1, StrideY: 1, StrideX: 1, DilationY: 1, DilationX: 1,
				Output: at[0], Input: pixels, Weight: at[1],
			}.WeightGradient(c.arch)
		},
	}}
}

// strideOverGigabytes computes the gradient of a weight from an image of gigabytes, of which a convolution reads a
// pixel of each 256 by 256, and only the last differs from zero. It returns the kernel's name.
func strideOverGigabytes(t *testing.T, c *cpu, typ kernels.Type) string {
	const side, stride, channels = 1 << 14, 256, 8
	height := farBytes/(side*channels*typ.Size()) + 1
	k := kernels.Conv{
		Type: typ, Images: 1, Height: height, Width: side, Channels: channels, OutChannels: channels, Groups: 1,
		TapsY: 1, TapsX: 1,
		StrideY: stride, StrideX: stride, DilationY: 1, DilationX: 1,
	}
	image, err := cudac.NewSparse(height * side * channels * typ.Size())
	require.NoError(t, err)
	defer image.Free()
	positions := k.OutHeight() * k.OutWidth()
	gradient, weight := c.alloc(positions*channels*typ.Size(), 0), c.alloc(channels*channels*typ.Size(), 0)
	last := ((k.OutHeight()-1)*stride*side + (k.OutWidth()-1)*stride) * channels * typ.Size()
	require.Greater(t, last, int64(farBytes-1<<24))
	var want []float64
	for i := range int64(channels) {
		encode(typ, image.Bytes()[last+i*typ.Size():], float64(i+1))
		encode(typ, gradient.data()[(positions-1)*channels*typ.Size()+i*typ.Size():], float64(i-2))
	}
	for o := range channels {
		for i := range channels {
			want = append(want, float64((o-2)*(i+1)))
		}
	}
	k.Input, k.Output, k.Weight = image.Address(), gradient.addr(), weight.addr()
	l := k.WeightGradient(c.arch)
	require.NoError(t, cudac.Run(cudac.Launch{
		Arch: c.arch, Name: l.Name, Grid: l.Grid, Block: l.Block, Shared: l.Shared, Args: l.Args, Backward: c.back,
	}))
	near(t, typ, want, weight.get(typ), l.Name)
	return l.Name
}

// The last vectors of a pattern of gigabytes are written and found again, and a wrong one is found where it is.
func TestPatternsReachTheEndOfGigabytes(t *testing.T) {
	onEveryArch(t, func(t *testing.T, c *cpu) {
		const block = 16 << 10
		b, err := cudac.NewSparse(farBytes)
		require.NoError(t, err)
		defer b.Free()
		result := c.alloc(16, 0)
		last := func(l kernels.Launch) {
			require.NoError(t, cudac.Run(cudac.Launch{
				Arch: c.arch, Name: l.Name, Grid: l.Grid, Block: l.Block, Args: l.Args, Backward: c.back,
				First: uint64(l.Grid[0]) - 1,
			}))
		}
		last(kernels.Fill{To: span(b.Address(), farBytes), Seed: 9}.Launch())
		require.NotEqual(t, make([]byte, block), b.Bytes()[farBytes-block:])
		require.Equal(t, make([]byte, block), b.Bytes()[farBytes-2*block:farBytes-block])
		check := kernels.Verify{Of: span(b.Address(), farBytes), Seed: 9, Result: result.addr()}.Launch()
		last(check)
		require.Equal(t, make([]byte, 16), result.data())
		b.Bytes()[farBytes-5] ^= 1
		last(check)
		require.EqualValues(t, 1, result.data()[0])
		require.EqualValues(t, farBytes/16-1, ^binary.LittleEndian.Uint64(result.data()[8:]))
	})
}
