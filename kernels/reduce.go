package kernels

import "github.com/vprof/vprof/internal/ceil"

// The module's memory for partial results: floats, and counters of the blocks
// that have left theirs (scratch_floats and scratch_tickets of device.cuh).
const (
	scratchFloats  = 2 << 20
	scratchTickets = 4096
)

// enoughBlocks keeps the multiprocessors of the largest GPU busy: 170 of them,
// several blocks each.
const enoughBlocks = 1024

// ReduceRows sums each row of a matrix whose rows lie one after the other.
type ReduceRows struct {
	Type          Type
	From, To      uint64
	Rows, Columns int64
}

var reduceRowsNames = forTypes("reduce_rows")

// Launch sums. Where there are fewer rows than a GPU has room for, several
// blocks share one.
func (k ReduceRows) Launch() Launch {
	const leastShare = 8192 // elements a block, to be worth its start
	splits := int64(1)
	if k.Rows < scratchTickets && k.Rows > 0 {
		splits = max(1, min(ceil.Div(k.Columns, leastShare), enoughBlocks/k.Rows))
	}
	const shared = 33 * 4 // a float for each warp, and a flag
	l := launch(reduceRowsNames[k.Type], k.Rows*splits, shared,
		[]uint64{k.From, k.To, uint64(k.Rows), uint64(k.Columns), uint64(splits)})
	l.Reads, l.Writes = k.Rows*k.Columns*k.Type.Size(), k.Rows*k.Type.Size()
	l.FLOPs = k.Rows * k.Columns
	return l
}

// ReduceColumns sums each column of such a matrix.
type ReduceColumns ReduceRows

var reduceColumnsNames = forTypes("reduce_columns")

// Launch sums. A thread takes 16 bytes of columns down all rows.
func (k ReduceColumns) Launch() Launch {
	l := launch(reduceColumnsNames[k.Type], over(k.Columns*k.Type.Size(), 1), 0,
		[]uint64{k.From, k.To, uint64(k.Rows), uint64(k.Columns), 1})
	l.Reads, l.Writes = k.Rows*k.Columns*k.Type.Size(), k.Columns*k.Type.Size()
	l.FLOPs = k.Rows * k.Columns
	return l
}
