package kernels

import (
	"math"

	"github.com/vprof/vprof/internal/ceil"
)

// Softmax computes the softmax of each row of a dense matrix.
type Softmax struct {
	Type          Type
	Input, Output uint64
	Rows, Columns int64
}

var softmaxNames = forTypes("softmax")

// Launch returns the kernel launch. It counts five operations per element: compare, subtract, exponentiate, add, scale.
func (k Softmax) Launch() Launch {
	l, team := rowsLaunch(softmaxNames[k.Type], k.Type, k.Rows, k.Columns)
	l.Args = []uint64{k.Input, k.Output, 0, uint64(k.Rows), uint64(k.Columns), uint64(team)}
	l.Reads = k.Rows * k.Columns * k.Type.Size()
	l.Writes, l.FLOPs = l.Reads, 5*k.Rows*k.Columns
	return l
}

// SoftmaxBackward computes Result, the gradient of a [Softmax]'s input, from the softmax's output and its gradient.
// Result may be the same range as Gradient.
type SoftmaxBackward struct {
	Type                     Type
	Output, Gradient, Result uint64
	Rows, Columns            int64
}

var softmaxBackwardNames = forTypes("softmax_backward")

// Launch returns the kernel launch, which counts four operations per element.
func (k SoftmaxBackward) Launch() Launch {
	l, team := rowsLaunch(softmaxBackwardNames[k.Type], k.Type, k.Rows, k.Columns)
	l.Args = []uint64{k.Output, k.Result, k.Gradient, uint64(k.Rows), uint64(k.Columns), uint64(team)}
	n := k.Rows * k.Columns
	l.Reads, l.Writes, l.FLOPs = 2*n*k.Type.Size(), n*k.Type.Size(), 4*n
	return l
}

// Normalize normalizes each row of a matrix to mean 0 and variance 1, and then scales and shifts its columns.
type Normalize struct {
	Type          Type
	Input, Output uint64
	// Weight and Bias are the addresses of one number per column; 0 means none.
	Weight, Bias uint64
	// Mean and Deviation are the addresses to which the mean and the reciprocal standard deviation of each row are
	// written in F32; 0 means none.
	Mean, Deviation uint64
	Rows, Columns   int64
	Epsilon         float64
}

var normalizeNames = forTypes("normalize")

// Launch returns the kernel launch, which counts eight operations per element.
func (k Normalize) Launch() Launch {
	l, team := rowsLaunch(normalizeNames[k.Type], k.Type, k.Rows, k.Columns)
	l.Args = []uint64{
		k.Input, k.Output, 0, k.Weight, k.Bias, k.Mean, k.Deviation,
		uint64(k.Rows), uint64(k.Columns), uint64(team), math.Float64bits(k.Epsilon),
	}
	n := k.Rows * k.Columns
	l.Reads = n*k.Type.Size() + k.ofColumns(k.Weight) + k.ofColumns(k.Bias)
	l.Writes = n*k.Type.Size() + k.ofRows(k.Mean) + k.ofRows(k.Deviation)
	l.FLOPs = 8 * n
	return l
}

// ofColumns returns the size of an operand with one number per column, ofRows with one per row; zero if missing.
func (k Normalize) ofColumns(addr uint64) int64 {
	if addr == 0 || k.Rows == 0 {
		return 0
	}
	return k.Columns * k.Type.Size()
}

func (k Normalize) ofRows(addr uint64) int64 {
	if addr == 0 {
		return 0
	}
	return k.Rows * F32.Size()
}

// NormalizeBackward computes Result, the gradient of a [Normalize]'s input, from the input, the mean and deviation that
// the normalization wrote, and the gradient of its output.
type NormalizeBackward struct {
	Type                    Type
	Input, Gradient, Result uint64
	Weight                  uint64 // 0 for none
	Mean, Deviation         uint64
	Rows, Columns           int64
}

var normalizeBackwardNames = forTypes("normalize_backward")

// Launch returns the kernel launch, which counts fourteen operations per element.
func (k NormalizeBackward) Launch() Launch {
	l, team := rowsLaunch(normalizeBackwardNames[k.Type], k.Type, k.Rows, k.Columns)
	l.Args = []uint64{
		k.Input, k.Result, k.Gradient, k.Weight, 0, k.Mean, k.Deviation,
		uint64(k.Rows), uint64(k.Columns), uint64(team), 0,
	}
	of := Normalize{Type: k.Type, Rows: k.Rows, Columns: k.Columns}
	n := k.Rows * k.Columns
	l.Reads = 2*n*k.Type.Size() + of.ofColumns(k.Weight) + of.ofRows(k.Mean) + of.ofRows(k.Deviation)
	l.Writes, l.FLOPs = n*k.Type.Size(), 14*n
	return l
}

// rowsLaunch returns a launch with a warp per row, or a block per long row, and its number of threads.
func rowsLaunch(name string, t Type, rows, columns int64) (Launch, int64) {
	const warp, longest = 32, 4096 // bytes: eight vectors a lane
	team := int64(warp)
	if columns*t.Size() > longest {
		team = threadsPerBlock
	}
	const shared = 32 * 4 // a float for each warp
	return newLaunch(name, ceil.Div(rows, threadsPerBlock/team), shared, nil), team
}

// The size of the module's memory for partial results: floats, and counters of the blocks that have stored theirs
// (scratch_floats and scratch_tickets of device.cuh).
const (
	scratchFloats  = 2 << 20
	scratchTickets = 4096
)

// maxUsefulBlocks keeps the largest GPU of the catalog busy: several blocks for each of its 170 multiprocessors.
const maxUsefulBlocks = 1024

// ReduceRows sums each row of a dense matrix.
type ReduceRows struct {
	Type          Type
	From, To      uint64
	Rows, Columns int64
}

var reduceRowsNames = forTypes("reduce_rows")

// Launch returns the kernel launch. If a GPU can run more blocks than there are rows, several blocks share a row.
func (k ReduceRows) Launch() Launch {
	const leastShare = 8192 // elements a block, to be worth its start
	splits := int64(1)
	if k.Rows < scratchTickets && k.Rows > 0 {
		splits = max(1, min(ceil.Div(k.Columns, leastShare), maxUsefulBlocks/k.Rows))
	}
	const shared = 33 * 4 // a float for each warp, and a flag
	l := newLaunch(reduceRowsNames[k.Type], k.Rows*splits, shared,
		[]uint64{k.From, k.To, uint64(k.Rows), uint64(k.Columns), uint64(splits)})
	l.Reads, l.Writes = k.Rows*k.Columns*k.Type.Size(), k.Rows*k.Type.Size()
	l.FLOPs = k.Rows * k.Columns
	return l
}

// ReduceColumns sums each column of a matrix.
type ReduceColumns ReduceRows

var reduceColumnsNames = forTypes("reduce_columns")

// Launch returns the kernel launch. A thread sums 16 bytes of each row.
func (k ReduceColumns) Launch() Launch {
	l := newLaunch(reduceColumnsNames[k.Type], blocksFor(k.Columns*k.Type.Size(), 1), 0,
		[]uint64{k.From, k.To, uint64(k.Rows), uint64(k.Columns), 1})
	l.Reads, l.Writes = k.Rows*k.Columns*k.Type.Size(), k.Columns*k.Type.Size()
	l.FLOPs = k.Rows * k.Columns
	return l
}
