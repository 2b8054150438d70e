// Rows picked out of a table.
#include "device.cuh"

struct GatherArgs {
  u64 from, to;
  i64 step; // row i comes from row step*i of the table, past its last going on from its first
  i64 rows, table_rows, row_bytes;
};

// A thread moves 16 bytes of a row.
KERNEL(gather, 256, 4, GatherArgs) {
  i64 across = vectors(a.row_bytes), i = (i64)blockIdx.x * 256 + threadIdx.x;
  if (i >= a.rows * across) return;
  i64 row = i / across, at = (i - row * across) * 16;
  i64 place = (i64)((u64)row * (u64)a.step % (u64)a.table_rows), left = a.row_bytes - at;
  store_some((u8 *)a.to + row * a.row_bytes + at, left, load_some((const u8 *)a.from + place * a.row_bytes + at, left));
}
