// Copies: as they are, with a cast, transposed.
#include "device.cuh"

struct CopyArgs {
  Range from, to;
};

KERNEL(copy, 256, 4, CopyArgs) {
  const int unroll = 4;
  i64 base = (i64)blockIdx.x * (256 * unroll) + threadIdx.x;
  Vector v[unroll];
#pragma unroll
  for (int u = 0; u < unroll; u++) v[u] = load_vector(a.from, base + u * 256);
#pragma unroll
  for (int u = 0; u < unroll; u++) store_vector(a.to, base + u * 256, v[u]);
}

// Eight elements a thread: one vector of the narrow type, two of the wide.
template <class T> DEVICE void widen(const CopyArgs &a) {
  i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
  Vector in = load_vector(a.from, i), out[2];
#pragma unroll
  for (int l = 0; l < 8; l++) f32::set(out[l / 4], l & 3, T::get(in, l));
  store_vector(a.to, 2 * i, out[0]);
  store_vector(a.to, 2 * i + 1, out[1]);
}

template <class T> DEVICE void narrow(const CopyArgs &a) {
  i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
  Vector in[2] = {load_vector(a.from, 2 * i), load_vector(a.from, 2 * i + 1)}, out;
#pragma unroll
  for (int l = 0; l < 8; l++) T::set(out, l, f32::get(in[l / 4], l & 3));
  store_vector(a.to, i, out);
}

KERNEL(cast_f16_f32, 256, 4, CopyArgs) { widen<f16>(a); }
KERNEL(cast_bf16_f32, 256, 4, CopyArgs) { widen<bf16>(a); }
KERNEL(cast_f32_f16, 256, 4, CopyArgs) { narrow<f16>(a); }
KERNEL(cast_f32_bf16, 256, 4, CopyArgs) { narrow<bf16>(a); }

// Strides count elements; a row's elements lie one after the other.
struct TransposeArgs {
  u64 from, to;
  i64 rows, columns, batch;
  i64 from_row, from_batch, to_row, to_batch;
};

// A tile of 32 by 32 goes through shared memory, padded against bank conflicts.
template <class E> DEVICE void transpose(const TransposeArgs &a) {
  if (a.columns == 0) return;
  E *tile = (E *)shared_memory();
  int x = threadIdx.x & 31, y = threadIdx.x >> 5;
  i64 across = (a.columns + 31) / 32, column = blockIdx.x % across * 32, row = blockIdx.x / across * 32;
#pragma unroll 1
  for (i64 b = blockIdx.y; b < a.batch; b += gridDim.y) {
    const E *from = (const E *)a.from + b * a.from_batch;
    E *to = (E *)a.to + b * a.to_batch;
    sync();
#pragma unroll
    for (int j = y; j < 32; j += 8)
      if (row + j < a.rows && column + x < a.columns) tile[j * 33 + x] = load(from + (row + j) * a.from_row + column + x);
    sync();
#pragma unroll
    for (int j = y; j < 32; j += 8)
      if (column + j < a.columns && row + x < a.rows) store(to + (column + j) * a.to_row + row + x, tile[x * 33 + j]);
  }
}

KERNEL(transpose_16, 256, 4, TransposeArgs) { transpose<u16>(a); }
KERNEL(transpose_32, 256, 4, TransposeArgs) { transpose<u32>(a); }
