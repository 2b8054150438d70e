package kernels

// Index moves rows out of a table or into one.
type Index struct {
	// Rows is the address of the rows outside of the table.
	Rows, Table uint64
	// Index is the address of the row of the table for each of the others, as
	// integers of 8 bytes; those outside of the table are passed over. If it is
	// 0, row i belongs to row Step*i of the table, modulo its rows.
	Index     uint64
	Step      int64
	Count     int64 // of Rows
	TableRows int64
	RowBytes  int64
}

// Gather copies rows of the table out of it. Reads counts distinct bytes for
// the case of no Index and a Step without common divisors with TableRows; an
// Index may name a row twice.
func (k Index) Gather() Launch { return k.launch("gather", k.Table, k.Rows, 0) }

// Scatter copies rows into the table. Of rows that go to the same place, one
// stays.
func (k Index) Scatter() Launch { return k.launch("scatter", k.Rows, k.Table, 0) }

// ScatterAdd adds rows of F32 to those of the table.
func (k Index) ScatterAdd() Launch {
	return k.launch("scatter_add", k.Rows, k.Table, k.Count*divUp(k.RowBytes, F32.Size()))
}

func (k Index) launch(name string, from, to uint64, flops int64) Launch {
	l := launch(name, divUp(k.Count*divUp(k.RowBytes, vectorBytes), threads), 0, []uint64{
		from, to, k.Index, uint64(k.Step), uint64(k.Count), uint64(k.TableRows), uint64(k.RowBytes),
	})
	outside, table := k.Count*k.RowBytes, min(k.Count, k.TableRows)*k.RowBytes
	l.Reads, l.Writes = outside, table
	if name == "gather" {
		l.Reads, l.Writes = table, outside
	}
	if k.Index != 0 && k.RowBytes > 0 {
		l.Reads += k.Count * 8
	}
	l.FLOPs = flops
	return l
}
