package kernels_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/kernels"
)

func TestGatherAndScatterMoveRows(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) {
		k := kernels.Index{
			TableRows: rapid.Int64Range(1, 40).Draw(t, "table"), RowBytes: rapid.Int64Range(0, 100).Draw(t, "bytes"),
		}
		// A permutation of the table's rows, or the beginning of one.
		places := rapid.Permutation(seq(k.TableRows)).Draw(t, "places")
		k.Count = rapid.Int64Range(0, k.TableRows).Draw(t, "rows")
		index := c.alloc(8*k.Count, 0)
		for i := range k.Count {
			binary.LittleEndian.PutUint64(index.data()[8*i:], uint64(places[i]))
		}
		k.Index = index.addr()
		if rapid.Bool().Draw(t, "steps") {
			k.Index, k.Step = 0, 41 // prime, and larger than any table
			for i := range places {
				places[i] = int64(i) * 41 % k.TableRows
			}
		}
		table, rows := c.alloc(k.TableRows*k.RowBytes, 0), c.alloc(k.Count*k.RowBytes, 0)
		for i := range table.data() {
			table.data()[i] = byte(i*31 + i>>8)
		}
		k.Table, k.Rows = table.addr(), rows.addr()
		row := func(x tensor, i int64) []byte { return x.data()[i*k.RowBytes : (i+1)*k.RowBytes] }

		c.run(k.Gather())
		for i := range k.Count {
			require.Equal(t, row(table, places[i]), row(rows, i))
		}
		want := append([]byte{}, table.data()...)
		for i := range rows.data() {
			rows.data()[i] ^= 0x55
		}
		for i := range k.Count {
			copy(want[places[i]*k.RowBytes:], row(rows, i))
		}
		c.run(k.Scatter())
		require.Equal(t, want, table.data())
	})
}

func seq(n int64) []int64 {
	s := make([]int64, n)
	for i := range s {
		s[i] = int64(i)
	}
	return s
}

func TestScatterAddAddsRowsOfTheSamePlace(t *testing.T) {
	onEveryArch(t, func(t *testing.T, c *cpu) {
		const rows, tableRows, columns = 50, 4, 6
		x, table, index := c.tensorOf(kernels.F32, rows*columns, 1), c.tensorOf(kernels.F32, tableRows*columns, 2), c.alloc(8*rows, 0)
		want := table.get(kernels.F32)
		for i, v := range x.get(kernels.F32) {
			place := (i / columns) % 5 // one of which is outside of the table
			binary.LittleEndian.PutUint64(index.data()[8*(i/columns):], uint64(place))
			if place < tableRows {
				want[place*columns+i%columns] += v
			}
		}
		k := kernels.Index{Rows: x.addr(), Table: table.addr(), Index: index.addr(), Count: rows, TableRows: tableRows, RowBytes: 4 * columns}
		l := k.ScatterAdd()
		l.Reads -= rows / 5 * 4 * columns // rows for no place are not read
		c.run(l)
		near(t, kernels.F32, want, table.get(kernels.F32), "table")
	})
}
