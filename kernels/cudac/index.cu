// Rows picked out of a table, and put back into one.
#include "device.cuh"

struct IndexArgs {
  u64 from, to;
  u64 index;    // a row of the table for each of the others, 8 bytes; or none:
  i64 step;     // then row i is step*i of the table's, past the last going on from the first
  i64 rows, table_rows, row_bytes;
};

// A thread moves 16 bytes of a row.
template <class Move> DEVICE void each_vector(const IndexArgs &a, Move move) {
  i64 across = vectors(a.row_bytes), i = (i64)blockIdx.x * 256 + threadIdx.x;
  if (i >= a.rows * across) return;
  i64 row = i / across, at = (i - row * across) * 16;
  i64 place = a.index ? load((const i64 *)a.index + row) : (i64)((u64)row * (u64)a.step % (u64)a.table_rows);
  if (place < 0 || place >= a.table_rows) return;
  move(row * a.row_bytes + at, place * a.row_bytes + at, a.row_bytes - at);
}

KERNEL(gather, 256, 4, IndexArgs) {
  each_vector(a, [&](i64 row, i64 place, i64 left) { store_some((u8 *)a.to + row, left, load_some((const u8 *)a.from + place, left)); });
}

// Where rows go to the same place, one of them stays.
KERNEL(scatter, 256, 4, IndexArgs) {
  each_vector(a, [&](i64 row, i64 place, i64 left) { store_some((u8 *)a.to + place, left, load_some((const u8 *)a.from + row, left)); });
}

// F32: where rows go to the same place, they are added to what was there.
KERNEL(scatter_add, 256, 4, IndexArgs) {
  each_vector(a, [&](i64 row, i64 place, i64 left) {
    const float *from = (const float *)(a.from + row);
    float *to = (float *)(a.to + place);
#pragma unroll
    for (int l = 0; l < 4; l++)
      if (4 * l < left) atomic_add(to + l, load(from + l));
  });
}
