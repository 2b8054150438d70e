// Rows gathered from a table.
#include "device.cuh"

struct GatherArgs {
  u64 from, to;
  i64 step; // row i is row step*i of the table, modulo its number of rows
  i64 rows, table_rows, row_bytes;
  i64 unit; // bytes that a thread copies: 16, or a divisor of row size and addresses
};

KERNEL(gather, 256, 4, GatherArgs) {
  i64 across = (a.row_bytes + a.unit - 1) / a.unit, i = (i64)blockIdx.x * 256 + threadIdx.x;
  if (i >= a.rows * across) return;
  i64 row = i / across, at = (i - row * across) * a.unit;
  i64 place = (i64)((u64)row * (u64)a.step % (u64)a.table_rows), left = a.row_bytes - at;
  u8 *to = (u8 *)a.to + row * a.row_bytes + at;
  const u8 *from = (const u8 *)a.from + place * a.row_bytes + at;
  if (a.unit == 4)
    store((u32 *)to, load((const u32 *)from));
  else if (a.unit == 2)
    store((u16 *)to, load((const u16 *)from));
  else
    store_some(to, left, load_some(from, left));
}
