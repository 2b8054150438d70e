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
	"github.com/vprof/vprof/tools/sample"
)

// archs are the modules that every kernel is run of.
var archs = []int{70, 75, 80}

// failer is a test or a rapid one.
type failer interface {
	require.TestingT
	Helper()
}

// A cpu is where the kernels of a test run: buffers and launches.
type cpu struct {
	t       failer
	arch    int
	back    bool
	buffers []*cudac.Buffer
}

// onEveryArch runs a test for each module, with threads in rising and in falling order.
func onEveryArch(t *testing.T, test func(t *testing.T, c *cpu)) {
	t.Helper()
	if !cudac.Available {
		t.Skip(cudac.Missing)
	}
	for _, arch := range sample.Of(archs) {
		for _, backward := range []bool{false, true} {
			name := map[bool]string{false: "", true: " backward"}[backward]
			t.Run(fmt.Sprintf("sm_%d%s", arch, name), func(t *testing.T) {
				c := newCPU(t, arch, backward)
				defer c.free()
				test(t, c)
			})
		}
	}
}

// forAll runs a property with kernels of any module, in either order.
func forAll(t *testing.T, property func(t *rapid.T, c *cpu)) {
	t.Helper()
	if !cudac.Available {
		t.Skip(cudac.Missing)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := newCPU(t, rapid.SampledFrom(archs).Draw(t, "module"), rapid.Bool().Draw(t, "backward"))
		defer c.free()
		property(t, c)
	})
}

func newCPU(t failer, arch int, backward bool) *cpu { return &cpu{t: t, arch: arch, back: backward} }

func (c *cpu) free() {
	for _, b := range c.buffers {
		b.Free()
	}
}

// alloc returns n bytes of memory whose address is off past a multiple of 512.
func (c *cpu) alloc(n, off int64) tensor {
	b := cudac.NewBuffer(int(n + off))
	c.buffers = append(c.buffers, b)
	return tensor{b, off, n}
}

// run starts a kernel and checks that it visits exactly the bytes of memory that the launch says.
func (c *cpu) run(l kernels.Launch) {
	c.t.Helper()
	require.LessOrEqual(c.t, l.Shared, uint32(kernels.MaxShared))
	for _, b := range c.buffers {
		b.ClearMarks()
	}
	require.NoError(c.t, cudac.Run(cudac.Launch{
		Arch: c.arch, Name: l.Name, Grid: l.Grid, Block: l.Block, Shared: l.Shared, Args: l.Args, Backward: c.back,
	}))
	reads, writes := c.traffic()
	require.Equal(c.t, l.Reads, reads, "bytes read by %s", l.Name)
	require.Equal(c.t, l.Writes, writes, "bytes written by %s", l.Name)
}

// traffic returns how many bytes were read and how many written since the marks were cleared.
func (c *cpu) traffic() (reads, writes int64) {
	for _, b := range c.buffers {
		for i := range b.Bytes() {
			if b.Reads(i) > 0 {
				reads++
			}
			if b.Writes(i) > 0 {
				writes++
			}
		}
	}
	return reads, writes
}

// A tensor is a stretch of a buffer.
type tensor struct {
	buffer     *cudac.Buffer
	off, bytes int64
}

func (x tensor) addr() uint64        { return x.buffer.Address() + uint64(x.off) }
func (x tensor) span() kernels.Range { return kernels.Range{Addr: x.addr(), Bytes: x.bytes} }
func (x tensor) data() []byte        { return x.buffer.Bytes()[x.off : x.off+x.bytes] }
func (x tensor) visits(i int64) (r, w int) {
	return x.buffer.Reads(int(x.off + i)), x.buffer.Writes(int(x.off + i))
}

// get returns the bytes as elements; a part of one at the end is filled with zeros.
func (x tensor) get(t kernels.Type) []float64 {
	d := append(append([]byte{}, x.data()...), 0, 0, 0)
	out := make([]float64, (x.bytes+t.Size()-1)/t.Size())
	for i := range out {
		out[i] = decode(t, d[int64(i)*t.Size():])
	}
	return out
}

func (x tensor) set(t kernels.Type, values func(i int) float64) {
	d := append(append([]byte{}, x.data()...), 0, 0, 0)
	for i := 0; int64(i) < (x.bytes+t.Size()-1)/t.Size(); i++ {
		encode(t, d[int64(i)*t.Size():], values(i))
	}
	copy(x.data(), d)
}

// tensorOf allocates n elements and fills them with small numbers that every type holds exactly.
func (c *cpu) tensorOf(t kernels.Type, n int64, seed int) tensor {
	x := c.alloc(n*t.Size(), 0)
	x.set(t, func(i int) float64 { return small(seed, i) })
	return x
}

// small returns a number among -2, -1.75, ..., 2.
func small(seed, i int) float64 {
	h := uint32(seed)*2654435761 + uint32(i)*40503 + 977
	h = (h ^ h>>13) * 2246822519
	return float64(int(h>>16%32)%17-8) / 4
}

func decode(t kernels.Type, b []byte) float64 {
	switch t {
	case kernels.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case kernels.BF16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	}
	h := binary.LittleEndian.Uint16(b)
	sign, e, m := 1-2*float64(h>>15), int(h>>10&31), float64(h&1023)
	switch e {
	case 31:
		if m != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	case 0:
		return sign * math.Ldexp(m, -24)
	}
	return sign * math.Ldexp(1024+m, e-25)
}

func encode(t kernels.Type, b []byte, v float64) {
	switch t {
	case kernels.F32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v)))
	case kernels.BF16:
		binary.LittleEndian.PutUint16(b, roundTo(v, 8, -126, 128))
	case kernels.F16:
		binary.LittleEndian.PutUint16(b, roundTo(v, 11, -14, 16))
	}
}

// roundTo returns the nearest number with so many bits of precision, as the bits of an IEEE format of 16 bits; least is
// the exponent of its smallest normal number, past its largest there is only infinity.
func roundTo(v float64, precision, least, past int) uint16 {
	sign := uint16(0)
	if math.Signbit(v) {
		sign = 0x8000
	}
	v = math.Abs(v)
	if v == 0 {
		return sign
	}
	_, e := math.Frexp(v)
	e = max(e-1, least)
	m := uint64(math.RoundToEven(math.Ldexp(v, precision-1-e)))
	if m == 1<<precision {
		m, e = m/2, e+1
	}
	if e >= past || math.IsInf(v, 0) {
		return sign | uint16(past-least+1)<<(precision-1)
	}
	if m < 1<<(precision-1) { // subnormal
		return sign | uint16(m)
	}
	return sign | uint16(e-least+1)<<(precision-1) | uint16(m&(1<<(precision-1)-1))
}

// round returns a number as a type holds it.
func round(t kernels.Type, v float64) float64 {
	var b [4]byte
	encode(t, b[:], v)
	return decode(t, b[:])
}

// near requires equal numbers up to the rounding of a type, and of sums in F32.
func near(t failer, typ kernels.Type, want, got []float64, what string) {
	t.Helper()
	epsilon := map[kernels.Type]float64{kernels.F32: 1e-5, kernels.F16: 1e-3, kernels.BF16: 8e-3}[typ]
	require.Len(t, got, len(want), what)
	for i := range want {
		if !(math.Abs(want[i]-got[i]) <= epsilon*(1+math.Abs(want[i]))) {
			require.Failf(t, what, "element %d: want %v, got %v", i, want[i], got[i])
		}
	}
}

var types = []kernels.Type{kernels.F32, kernels.F16, kernels.BF16}
