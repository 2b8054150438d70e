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

// Launch copies. A thread moves 16 bytes, or a single element of short rows.
func (k Gather) Launch() Launch {
	unit := int64(vectorBytes)
	for _, element := range []int64{4, 2} {
		if k.RowBytes < vectorBytes && (uint64(k.RowBytes)|k.From|k.To)%uint64(element) == 0 {
			unit = element
			break
		}
	}
	l := launch("gather", ceil.Div(k.Rows*ceil.Div(k.RowBytes, unit), threads), 0, []uint64{
		k.From, k.To, uint64(k.Step), uint64(k.Rows), uint64(k.TableRows), uint64(k.RowBytes), uint64(unit),
	})
	l.Reads, l.Writes = k.Rows*k.RowBytes, k.Rows*k.RowBytes
	return l
}
