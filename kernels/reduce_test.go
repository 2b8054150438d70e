package kernels_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/vprof/vprof/kernels"
)

func TestReductionsSumRowsAndColumns(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) {
		typ := rapid.SampledFrom(types).Draw(t, "type")
		rows, columns := rapid.Int64Range(0, 9).Draw(t, "rows"), rapid.Int64Range(0, 3000).Draw(t, "columns")
		if rapid.Bool().Draw(t, "tall") {
			rows, columns = columns/4, rows
		}
		x := c.tensorOf(typ, rows*columns, 1)
		byRow, byColumn := c.alloc(rows*typ.Size(), 0), c.alloc(columns*typ.Size(), 0)
		wantRows, wantColumns := make([]float64, rows), make([]float64, columns)
		for i, v := range x.get(typ) {
			wantRows[int64(i)/columns] += v
			wantColumns[int64(i)%columns] += v
		}
		c.run(kernels.ReduceRows{Type: typ, From: x.addr(), To: byRow.addr(), Rows: rows, Columns: columns}.Launch())
		near(t, typ, wantRows, byRow.get(typ), "rows")
		c.run(kernels.ReduceColumns{
			Type: typ, From: x.addr(), To: byColumn.addr(), Rows: rows,
			Columns: columns,
		}.Launch())
		near(t, typ, wantColumns, byColumn.get(typ), "columns")
	})
}

// The blocks that share a row leave partial sums, and their counter as it was: a second launch comes to the same.
func TestLongRowsAreSplitOverBlocks(t *testing.T) {
	onEveryArch(t, func(t *testing.T, c *cpu) {
		const rows, columns = 3, 40_001
		for _, typ := range types {
			x, y := c.tensorOf(typ, rows*columns, 1), c.alloc(rows*typ.Size(), 0)
			l := kernels.ReduceRows{Type: typ, From: x.addr(), To: y.addr(), Rows: rows, Columns: columns}.Launch()
			if l.Grid[0] != rows*5 { // 40001 elements, 8192 at least for a block
				t.Fatalf("%d blocks", l.Grid[0])
			}
			want := make([]float64, rows)
			for i, v := range x.get(typ) {
				want[i/columns] += v
			}
			for range 2 {
				c.run(l)
				near(t, typ, want, y.get(typ), "rows")
			}
		}
	})
}
