//go:build cuda && linux && cgo

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/vprof/vprof/kernels"
)

// A trial is a kernel, its inputs, and the result computed on the CPU.
type trial struct {
	name   string
	format format
	inputs [][]float64
	want   []float64
	// within is the tolerance of a result, zero where it is exact.
	within float64
	// launch returns the kernel's launch, with the inputs at the first addresses and the result at the last.
	launch func(at []uint64, capability int) kernels.Launch
}

// operandBytes is the room for an operand of a trial.
const operandBytes = 48 * 48 * 4

// trials returns products in every format with kernels of its own, a convolution and attention. The operands of all but
// the last are whole numbers, so small that their sums are exact in every format.
func trials() []trial {
	return []trial{
		product("f32", kernels.F32, false), product("f16", kernels.F16, false), product("bf16", kernels.BF16, false),
		product("tf32", kernels.F32, true),
		convolution(), attention(),
	}
}

// whole returns n whole numbers from -2 to 2.
func whole(n, seed int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = float64((i*(7+6*seed)+i/48*5+seed)%5 - 2)
	}
	return values
}

// product multiplies a square matrix by another, transposed.
func product(name string, t kernels.Type, tf32 bool) trial {
	const side = 48
	a, b, c := whole(side*side, 0), whole(side*side, 1), make([]float64, side*side)
	for i := range c {
		for k := range side {
			c[i] += a[i/side*side+k] * b[i%side*side+k]
		}
	}
	matrix := func(at uint64) kernels.Matrix { return kernels.Matrix{Addr: at, Row: side} }
	return trial{
		name: "a product in " + name, format: format{t}, inputs: [][]float64{a, b}, want: c,
		launch: func(at []uint64, capability int) kernels.Launch {
			return kernels.GEMM{
				Type: t, TF32: tf32, A: matrix(at[0]), B: matrix(at[1]), C: matrix(at[2]), M: side,
				N: side, K: side, Batch: 1,
			}.Launch(capability)
		},
	}
}

// convolution returns a convolution with windows of 3 by 3 over an image, channels last.
func convolution() trial {
	const side, channels, taps = 6, 8, 3
	x, w, y := whole(side*side*channels, 2), whole(channels*taps*taps*channels, 3), make([]float64, side*side*channels)
	for i := range y {
		filter, column, row := i%channels, i/channels%side, i/channels/side
		for tap := range taps * taps {
			r, c := row+tap/taps-1, column+tap%taps-1
			if min(r, c) < 0 || max(r, c) >= side {
				continue
			}
			for channel := range channels {
				y[i] += x[(r*side+c)*channels+channel] * w[(filter*taps*taps+tap)*channels+channel]
			}
		}
	}
	return trial{
		name: "a convolution in f16", format: format{kernels.F16}, inputs: [][]float64{x, w}, want: y,
		launch: func(at []uint64, capability int) kernels.Launch {
			return kernels.Conv{
				Type: kernels.F16, Input: at[0], Weight: at[1], Output: at[2], Images: 1, Height: side, Width: side,
				Channels: channels, OutChannels: channels, Groups: 1,
				TapsY: taps, TapsX: taps, StrideY: 1, StrideX: 1, PadY: 1, PadX: 1, DilationY: 1, DilationX: 1,
			}.Forward(capability)
		},
	}
}

// attention returns a trial of scaled dot-product attention. Expected weights and results are rounded to F16.
func attention() trial {
	const positions, depth, scale, within = 64, 16, 0.125, 4.0 / (1 << 11)
	q, k, v, out := whole(positions*depth, 4), whole(positions*depth, 5), whole(positions*depth, 6),
		make([]float64, positions*depth)
	for i := range positions {
		var sum float64
		weights := make([]float64, positions)
		for j := range positions {
			var near float64
			for d := range depth {
				near += q[i*depth+d] * k[j*depth+d]
			}
			weights[j] = math.Exp(scale * near)
			sum += weights[j]
		}
		for j, weight := range weights {
			for d := range depth {
				out[i*depth+d] += weight / sum * v[j*depth+d]
			}
		}
	}
	return trial{
		name: "attention in f16", format: format{kernels.F16}, inputs: [][]float64{q, k, v}, want: out,
		within: within, launch: func(at []uint64, capability int) kernels.Launch {
			return kernels.Attention{
				Type: kernels.F16, Query: at[0], Key: at[1], Value: at[2], Output: at[3],
				Queries: positions, Keys: positions, Depth: depth, Heads: 1, Scale: scale,
			}.Launch(capability)
		},
	}
}

// wrong counts the elements of a result that differ from the expected ones.
func (t *trial) wrong(result []byte) int {
	n := 0
	for i, want := range t.want {
		if got := t.format.decode(result, i); !(math.Abs(got-want) <= t.within) {
			n++
		}
	}
	return n
}

// A format reads and writes numbers of a type, little endian.
type format struct{ kernels.Type }

// encode writes numbers that the format has without rounding.
func (f format) encode(values []float64) []byte {
	out := make([]byte, 0, int64(len(values))*f.Size())
	for _, v := range values {
		bits := math.Float32bits(float32(v))
		switch f.Type {
		case kernels.F32:
			out = binary.LittleEndian.AppendUint32(out, bits)
		case kernels.BF16:
			out = binary.LittleEndian.AppendUint16(out, uint16(bits>>16))
		case kernels.F16:
			half := bits >> 16 & 0x8000
			if v != 0 { // the exponent's bias is 127 there, 15 here
				half |= (bits>>23&0xff-112)<<10 | bits>>13&0x3ff
			}
			out = binary.LittleEndian.AppendUint16(out, uint16(half))
		default:
			panic(fmt.Sprintf("cuda: no numbers of type %v", f.Type))
		}
	}
	return out
}

// decode reads the number at a place.
func (f format) decode(from []byte, i int) float64 {
	if f.Type == kernels.F32 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(from[4*i:])))
	}
	half := binary.LittleEndian.Uint16(from[2*i:])
	if f.Type == kernels.BF16 {
		return float64(math.Float32frombits(uint32(half) << 16))
	}
	sign, exponent, fraction := 1-2*float64(half>>15), int(half>>10&0x1f), float64(half&0x3ff)
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 0x1f:
		return math.NaN()
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}
