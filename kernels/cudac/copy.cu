// Copies, with and without a cast.
#include "device.cuh"

struct CopyArgs {
  Range from, to;
};

KERNEL(copy, 256, 4, CopyArgs) {
  const int unroll = 4;
  i64 base = (i64)blockIdx.x * (256 * unroll) + threadIdx.x;
  Vector v[unroll];
  load_vectors<unroll>(v, a.from, base);
  store_vectors<unroll>(a.to, base, v);
}

// A thread casts eight elements: one vector of the narrow type to two of the wide type.
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
