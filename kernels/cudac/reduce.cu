// Sums over the rows or the columns of a matrix.
#include "device.cuh"

struct ReduceArgs {
  u64 from, to; // a matrix with contiguous rows; the sums
  i64 rows, columns;
  i64 splits; // blocks per row (reduce_rows)
};

// Each block sums its share of a row. The last block of a row to finish adds the shares.
template <class T> DEVICE void reduce_rows(const ReduceArgs &a) {
  typedef typename T::bits bits;
  float *partial = (float *)shared_memory();
  i64 split = blockIdx.x % a.splits, row = blockIdx.x / a.splits;
  if (row >= a.rows) return;
  i64 share = (a.columns + a.splits - 1) / a.splits;
  // If rows start at aligned vectors, so do shares.
  share = (share + T::lanes - 1) / T::lanes * T::lanes;
  i64 begin = smaller(split * share, a.columns), count = smaller(share, a.columns - begin);
  Range part = {a.from + (row * a.columns + begin) * (i64)sizeof(bits), count * (i64)sizeof(bits)};
  Range head = aligned_off(part);
  const int unroll = 4;
  i64 n = vectors(part.bytes);
  float sum = 0;
  if (threadIdx.x == 0) {
    Vector v = load_vector(head, 0);
#pragma unroll
    for (int l = 0; l < T::lanes; l++) sum += T::get(v, l);
  }
  // Complete rounds have their loads in flight together.
  i64 base = threadIdx.x, whole = part.bytes >> 4;
#pragma unroll 1
  for (; base + 256 * (unroll - 1) < whole; base += 256 * unroll) {
    Vector v[unroll];
#pragma unroll
    for (int u = 0; u < unroll; u++) v[u] = load((const Vector *)part.address + base + u * 256);
#pragma unroll
    for (int u = 0; u < unroll; u++)
#pragma unroll
      for (int l = 0; l < T::lanes; l++) sum += T::get(v[u], l);
  }
#pragma unroll 1
  for (; base < n; base += 256 * unroll) {
    Vector v[unroll];
#pragma unroll
    for (int u = 0; u < unroll; u++) v[u] = load_vector(part, base + u * 256);
#pragma unroll
    for (int u = 0; u < unroll; u++)
#pragma unroll
      for (int l = 0; l < T::lanes; l++) sum += T::get(v[u], l);
  }
  sum = block_sum(sum, partial);
  if (a.splits > 1) {
    if (threadIdx.x == 0) scratch[row * a.splits + split] = sum;
    if (!last_to_arrive((u32)row, (u32)a.splits, (u32 *)partial + 32)) return;
    sum = 0;
    for (i64 i = threadIdx.x; i < a.splits; i += 256) sum += load_fresh(&scratch[row * a.splits + i]);
    sum = block_sum(sum, partial);
  }
  if (threadIdx.x == 0) store((bits *)a.to + row, T::narrow(sum));
}

KERNEL(reduce_rows_f32, 256, 4, ReduceArgs) { reduce_rows<f32>(a); }
KERNEL(reduce_rows_f16, 256, 4, ReduceArgs) { reduce_rows<f16>(a); }
KERNEL(reduce_rows_bf16, 256, 4, ReduceArgs) { reduce_rows<bf16>(a); }

// Sums over the rows: each thread sums one vector of columns.
template <class T> DEVICE void reduce_columns(const ReduceArgs &a) {
  const i64 size = sizeof(typename T::bits);
  i64 i = (i64)blockIdx.x * 256 + threadIdx.x, at = 16 * i, left = a.columns * size - at;
  if (left <= 0) return;
  float sum[T::lanes];
#pragma unroll
  for (int l = 0; l < T::lanes; l++) sum[l] = 0;
  const u8 *from = (const u8 *)a.from + at;
  const int unroll = 4;
  i64 r = 0, pitch = a.columns * size;
  if (left >= 16 && aligned((u64)from) && (pitch & 15) == 0)
#pragma unroll 1
    for (; r + unroll <= a.rows; r += unroll) {
      Vector v[unroll];
#pragma unroll
      for (int u = 0; u < unroll; u++) v[u] = load((const Vector *)(from + (r + u) * pitch));
#pragma unroll
      for (int u = 0; u < unroll; u++)
#pragma unroll
        for (int l = 0; l < T::lanes; l++) sum[l] += T::get(v[u], l);
    }
#pragma unroll 1
  for (; r < a.rows; r++) {
    Vector v = load_some(from + r * pitch, left);
#pragma unroll
    for (int l = 0; l < T::lanes; l++) sum[l] += T::get(v, l);
  }
  Vector v;
#pragma unroll
  for (int l = 0; l < T::lanes; l++) T::set(v, l, sum[l]);
  store_some((u8 *)a.to + at, left, v);
}

KERNEL(reduce_columns_f32, 256, 4, ReduceArgs) { reduce_columns<f32>(a); }
KERNEL(reduce_columns_f16, 256, 4, ReduceArgs) { reduce_columns<f16>(a); }
KERNEL(reduce_columns_bf16, 256, 4, ReduceArgs) { reduce_columns<bf16>(a); }
