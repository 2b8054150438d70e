package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/kernels"
)

func TestGatherCopiesRowsOfATable(t *testing.T) {
	const step = 41 // prime, and larger than any table
	forAll(t, func(t *rapid.T, c *cpu) {
		k := kernels.Gather{
			Step: step, TableRows: rapid.Int64Range(1, 40).Draw(t, "table"),
			RowBytes: rapid.Int64Range(0, 100).Draw(t, "bytes"),
		}
		k.Rows = rapid.Int64Range(0, k.TableRows).Draw(t, "rows")
		table, rows := c.alloc(k.TableRows*k.RowBytes, 0), c.alloc(k.Rows*k.RowBytes, 0)
		for i := range table.data() {
			table.data()[i] = byte(i*31 + i>>8)
		}
		k.From, k.To = table.addr(), rows.addr()
		row := func(x tensor, i int64) []byte { return x.data()[i*k.RowBytes : (i+1)*k.RowBytes] }
		c.run(k.Launch())
		for i := range k.Rows {
			require.Equal(t, row(table, i*step%k.TableRows), row(rows, i))
		}
	})
}
