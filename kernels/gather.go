package kernels

import "github.com/vprof/vprof/internal/ceil"

// Gather copies rows of a table to a matrix whose rows lie one after the other:
// row i of the matrix is row Step*i of the table, modulo the table's rows.
type Gather struct {
	// From is the address of the table, To that of the matrix.
	From, To uint64
	Step     int64
	// Rows is the number of rows copied, at most TableRows. Step and TableRows must
	// have no common divisor, so that every row is read once.
	Rows, TableRows int64
	RowBytes        int64
}

// Launch copies. A thread moves 16 bytes.
func (k Gather) Launch() Launch {
	l := launch("gather", ceil.Div(k.Rows*ceil.Div(k.RowBytes, vectorBytes), threads), 0, []uint64{
		k.From, k.To, uint64(k.Step), uint64(k.Rows), uint64(k.TableRows), uint64(k.RowBytes),
	})
	l.Reads, l.Writes = k.Rows*k.RowBytes, k.Rows*k.RowBytes
	return l
}
