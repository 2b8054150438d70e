package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/kernels/cudac"
)

// lengths are bytes around what threads, warps and blocks take at once.
var lengths = rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, 20_000),
	rapid.SampledFrom([]int64{16383, 16384, 16385, 32768}))

// offsets are where memory may begin; 0 and 16 are aligned.
var offsets = rapid.SampledFrom([]int64{0, 0, 16, 4, 2, 1})

func TestVerifyFindsWhatFillWrote(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) {
		x, result := c.alloc(lengths.Draw(t, "bytes"), offsets.Draw(t, "offset")), c.alloc(16, 0)
		seed := rapid.Uint64().Draw(t, "seed")
		c.run(kernels.Fill{To: x.span(), Seed: seed}.Launch())
		check := kernels.Verify{Of: x.span(), Seed: seed, Result: result.addr()}.Launch()
		c.run(check)
		require.Equal(t, make([]byte, 16), result.data())
		if x.bytes == 0 {
			return
		}
		// One wrong bit is found, and where.
		at := rapid.Int64Range(0, x.bytes-1).Draw(t, "wrong byte")
		x.data()[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		check.Reads, check.Writes = x.bytes, 16
		c.run(check)
		require.EqualValues(t, 1, binary.LittleEndian.Uint64(result.data()))
		require.EqualValues(t, at/16, ^binary.LittleEndian.Uint64(result.data()[8:]))
	})
}

// Fill must not leave the same bytes at other places or under other seeds, or stray writes would not show.
func TestPatternsDifferByPlaceAndSeed(t *testing.T) {
	onEveryArch(t, func(t *testing.T, c *cpu) {
		seen := map[string]string{}
		for seed := range uint64(3) {
			x := c.alloc(64<<10, 0)
			c.run(kernels.Fill{To: x.span(), Seed: seed}.Launch())
			for at := int64(0); at < x.bytes; at += 16 {
				pattern, where := string(x.data()[at:at+16]), fmt.Sprintf("seed %d, byte %d", seed, at)
				require.Empty(t, seen[pattern], where)
				seen[pattern] = where
			}
		}
	})
}

func TestCopyMovesEveryByte(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) {
		n := lengths.Draw(t, "bytes")
		from, to := c.alloc(n, offsets.Draw(t, "from")), c.alloc(n, offsets.Draw(t, "to"))
		for i := range from.data() {
			from.data()[i] = byte(i*7 + i>>8)
		}
		c.run(kernels.Copy{From: from.span(), To: to.span()}.Launch())
		require.Equal(t, from.data(), to.data())
	})
}

func TestCastRoundsToNearest(t *testing.T) {
	pairs := [][2]kernels.Type{
		{kernels.F32, kernels.F16},
		{kernels.F32, kernels.BF16},
		{kernels.F16, kernels.F32},
		{kernels.BF16, kernels.F32},
	}
	// Ties to both sides, the smallest and largest numbers of the types, zeros.
	special := []float64{
		0, math.Copysign(0, -1), 1, -1, 1 + 1.0/2048, 1 + 3.0/2048, 1 + 1.0/256, 1 + 3.0/256,
		65504, 65519, 65520, -65520, 6e-8, 3e-8, 2.9e-8, 6.1e-5, 1e-40, 3.4e38, math.Inf(1), math.Inf(-1), 1.0 / 3,
	}
	forAll(t, func(t *rapid.T, c *cpu) {
		p := rapid.SampledFrom(pairs).Draw(t, "types")
		n := rapid.Int64Range(0, 3000).Draw(t, "elements")
		from := c.alloc(n*p[0].Size(), offsets.Draw(t, "from")&^1)
		to := c.alloc(n*p[1].Size(), offsets.Draw(t, "to")&^1)
		from.set(p[0], func(i int) float64 {
			if i%2 == 0 {
				return special[i/2%len(special)]
			}
			return math.Float64frombits(0x3e50000000000000 + uint64(i)*0x9e3779b97f4a7c15>>10) // 1e-8 to 1e6
		})
		c.run(kernels.Cast{FromType: p[0], ToType: p[1], From: from.addr(), To: to.addr(), Elements: n}.Launch())
		want := from.get(p[0])
		for i := range want {
			want[i] = round(p[1], want[i])
		}
		require.Equal(t, want, to.get(p[1]))
	})
}

func TestElementwiseAddsScalesAndShifts(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) {
		typ := rapid.SampledFrom(types).Draw(t, "type")
		k := kernels.Elementwise{Type: typ, Rounds: rapid.Int64Range(0, 3).Draw(t, "rounds"), Scale: 0.5, Shift: 0.25}
		count := rapid.IntRange(0, kernels.MaxOperands)
		var sums []float64
		for i := range count.Draw(t, "inputs") {
			x := c.alloc(lengths.Draw(t, "bytes"), offsets.Draw(t, "offset"))
			x.set(typ, func(e int) float64 { return small(i, e) })
			for e, v := range x.get(typ) {
				if e == len(sums) {
					sums = append(sums, 0)
				}
				sums[e] += v
			}
			k.Reads = append(k.Reads, x.span())
		}
		var outs []tensor
		for range count.Draw(t, "outputs") {
			y := c.alloc(lengths.Draw(t, "bytes"), offsets.Draw(t, "offset"))
			outs, k.Writes = append(outs, y), append(k.Writes, y.span())
		}
		c.run(k.Launch())
		for _, y := range outs {
			got := y.get(typ)
			want := make([]float64, y.bytes/typ.Size()) // a part of an element has no value
			for e := range want {
				v := 0.0
				if e < len(sums) {
					v = sums[e]
				}
				for range k.Rounds {
					v = 0.5*v + 0.25
				}
				want[e] = round(typ, v)
			}
			near(t, typ, want, got[:len(want)], "output")
		}
	})
}

// Operands may be of any lengths: far behind the end of a short one, nothing is read of it. Of the
// long one only what the last block writes is there.
func TestFarBehindAShortOperandNothingIsRead(t *testing.T) {
	const block = 16 << 10 // bytes
	onEveryArch(t, func(t *testing.T, c *cpu) {
		short, end := c.alloc(100, 0), c.alloc(block, 0)
		for _, bytes := range []int64{1 << 31, 1<<31 + block, 3 << 30, 1 << 32, 1<<32 + block, 13 << 30} {
			long := kernels.Range{Addr: end.addr() + block - uint64(bytes), Bytes: bytes}
			l := kernels.Elementwise{
				Type: kernels.F32, Reads: []kernels.Range{short.span()}, Writes: []kernels.Range{long}, Scale: 1,
			}.Launch()
			end.buffer.ClearMarks()
			require.NoError(t, cudac.Run(cudac.Launch{
				Arch: c.arch, Name: l.Name, Grid: l.Grid, Block: l.Block, Args: l.Args, Backward: c.back,
				First: uint64(l.Grid[0]) - 1,
			}), "%d bytes", bytes)
			reads, writes := c.traffic()
			require.Zero(t, reads, "%d bytes", bytes)
			require.EqualValues(t, block, writes, "%d bytes", bytes)
		}
	})
}

func TestElementwiseVisitsEveryByteOnce(t *testing.T) {
	onEveryArch(t, func(t *testing.T, c *cpu) {
		a, b, y := c.alloc(100_003, 0), c.alloc(77, 0), c.alloc(50_001, 0)
		for _, typ := range types {
			c.run(kernels.Elementwise{
				Type: typ, Reads: []kernels.Range{a.span(), b.span()},
				Writes: []kernels.Range{y.span()},
			}.Launch())
			for i := range a.bytes {
				r, _ := a.visits(i)
				require.Equal(t, 1, r)
			}
			for i := range y.bytes {
				_, w := y.visits(i)
				require.Equal(t, 1, w)
			}
		}
	})
}
