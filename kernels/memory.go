package kernels

import (
	"math"

	"github.com/vprof/vprof/internal/ceil"
)

// Fill writes a pattern that a seed and the position of each byte determine.
type Fill struct {
	To   Range
	Seed uint64
}

// Launch returns the launch.
func (k Fill) Launch() Launch {
	l := newLaunch("fill", blocksFor(k.To.Bytes, 4), 0, []uint64{k.To.Addr, uint64(k.To.Bytes), k.Seed})
	l.Writes = k.To.Bytes
	return l
}

// Verify compares memory with the pattern that a [Fill] of the same length writes.
type Verify struct {
	Of   Range
	Seed uint64
	// Result is the address of two words of 8 bytes, initially zero: the number of 16-byte vectors that differ, and the
	// bitwise complement of the index of the first one.
	Result uint64
}

// Launch returns the kernel launch. The kernel writes Result only if something differs.
func (k Verify) Launch() Launch {
	l := newLaunch("verify", blocksFor(k.Of.Bytes, 4), 0, []uint64{k.Of.Addr, uint64(k.Of.Bytes), k.Seed, k.Result})
	l.Reads = k.Of.Bytes
	return l
}

// Copy copies bytes between two ranges of equal length that do not overlap.
type Copy struct{ From, To Range }

// Launch returns the launch.
func (k Copy) Launch() Launch { return copyLaunch("copy", k.From, k.To, blocksFor(k.To.Bytes, 4)) }

func copyLaunch(name string, from, to Range, blocks int64) Launch {
	l := newLaunch(name, blocks, 0, []uint64{from.Addr, uint64(from.Bytes), to.Addr, uint64(to.Bytes)})
	l.Reads, l.Writes = from.Bytes, to.Bytes
	return l
}

// Cast converts elements from F32 to a 16-bit type or back.
type Cast struct {
	FromType, ToType Type
	From, To         uint64
	Elements         int64
}

// casts are the names of the conversion kernels, by source and destination type.
var casts = [numTypes][numTypes]string{
	F32:  {F16: "cast_f32_f16", BF16: "cast_f32_bf16"},
	F16:  {F32: "cast_f16_f32"},
	BF16: {F32: "cast_bf16_f32"},
}

// Launch returns the launch.
func (k Cast) Launch() Launch {
	name := casts[k.FromType][k.ToType]
	if name == "" {
		panic("kernels: no cast from " + k.FromType.String() + " to " + k.ToType.String())
	}
	from := Range{k.From, k.Elements * k.FromType.Size()}
	to := Range{k.To, k.Elements * k.ToType.Size()}
	return copyLaunch(name, from, to, ceil.Div(k.Elements, 8*threadsPerBlock))
}

// MaxOperands is the largest number of inputs, and of outputs, of an [Elementwise].
const MaxOperands = 8

// Elementwise writes to every output the sum of its inputs, after applying x = Scale*x + Shift to it Rounds times.
// Ranges may differ in length; elements past their ends are read as zero.
type Elementwise struct {
	Type          Type
	Reads, Writes []Range
	// Rounds of x = Scale*x + Shift.
	Rounds       int64
	Scale, Shift float64
	// Settled reports whether results are scaled to between a half and one, with their sign (settle in device.cuh).
	Settled bool
}

var elementwiseNames = forTypes("elementwise")

// Launch returns the kernel launch. Without outputs, the kernel still reads the inputs.
func (k Elementwise) Launch() Launch {
	if len(k.Reads) > MaxOperands || len(k.Writes) > MaxOperands {
		panic("kernels: elementwise: too many operands")
	}
	args := make([]uint64, 6+4*MaxOperands)
	args[0], args[1], args[2], args[3] = uint64(len(k.Reads)), uint64(len(k.Writes)), uint64(k.Rounds), bit(k.Settled)
	args[4], args[5] = math.Float64bits(k.Scale), math.Float64bits(k.Shift)
	reads, longestRead := putRanges(args[6:], k.Reads)
	writes, longestWrite := putRanges(args[6+2*MaxOperands:], k.Writes)
	longest := max(longestRead, longestWrite)
	perThread := int64(4)
	if k.Type != F32 {
		perThread = 2
	}
	l := newLaunch(elementwiseNames[k.Type], blocksFor(longest, perThread), 0, args)
	l.Reads, l.Writes = reads, writes
	l.FLOPs = ceil.Div(longest, k.Type.Size()) * (int64(max(len(k.Reads)-1, 0)) + 2*k.Rounds)
	return l
}

// bit returns a bool as a kernel argument.
func bit(on bool) uint64 {
	if on {
		return 1
	}
	return 0
}

// putRanges writes ranges into arguments. It returns the bytes of all ranges and of the longest.
func putRanges(args []uint64, ranges []Range) (sum, longest int64) {
	for i, r := range ranges {
		args[2*i], args[2*i+1] = r.Addr, uint64(r.Bytes)
		sum += r.Bytes
		longest = max(longest, r.Bytes)
	}
	return sum, longest
}

// Gather copies rows of a table to a dense matrix: row i of the matrix is row Step*i of the table, modulo its rows.
type Gather struct {
	// From is the address of the table, To the address of the matrix.
	From, To uint64
	Step     int64
	// Rows is the number of copied rows, at most TableRows. Step and TableRows must have no common divisor, so that
	// each row is read at most once.
	Rows, TableRows int64
	RowBytes        int64
}

// Launch returns the kernel launch. A thread copies 16 bytes, or one element of short rows.
func (k Gather) Launch() Launch {
	unit := int64(vectorBytes)
	for _, element := range []int64{4, 2} {
		if k.RowBytes < vectorBytes && (uint64(k.RowBytes)|k.From|k.To)%uint64(element) == 0 {
			unit = element
			break
		}
	}
	l := newLaunch("gather", ceil.Div(k.Rows*ceil.Div(k.RowBytes, unit), threadsPerBlock), 0, []uint64{
		k.From, k.To, uint64(k.Step), uint64(k.Rows), uint64(k.TableRows), uint64(k.RowBytes), uint64(unit),
	})
	l.Reads, l.Writes = k.Rows*k.RowBytes, k.Rows*k.RowBytes
	return l
}
