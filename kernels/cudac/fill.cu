// Test patterns: each byte follows from its position and a seed, so that an invalid write is detected anywhere. As
// numbers of any type, patterns are random with magnitudes between 2^-15 and 1, so that they can be used as data.
#include "device.cuh"

const int unroll = 4; // vectors in flight for each thread and operand

struct FillArgs {
  Range to;
  u64 seed;
};

DEVICE u32 pattern_word(u64 seed, u64 i) {
  u32 x = (u32)i * 0x9e3779b1u ^ (u32)(i >> 32) ^ (u32)seed;
  x = (x ^ x >> 15) * 0x85ebca6bu;
  return ((x ^ x >> 13) & f16::fraction) | f16::half;
}

DEVICE Vector pattern(u64 seed, i64 i) {
  Vector v;
#pragma unroll
  for (int j = 0; j < 4; j++) v.w[j] = pattern_word(seed, 4 * i + j);
  return v;
}

KERNEL(fill, 256, 4, FillArgs) {
  i64 n = vectors(a.to.bytes), base = (i64)blockIdx.x * (256 * unroll) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < unroll; u++) {
    i64 i = base + u * 256;
    if (i < n) store_vector(a.to, i, pattern(a.seed, i));
  }
}

struct VerifyArgs {
  Range of;
  u64 seed;
  // Two words, initially zero: the number of vectors that differ, and the bitwise complement of the first one's index.
  u64 *result;
};

KERNEL(verify, 256, 4, VerifyArgs) {
  i64 n = vectors(a.of.bytes), base = (i64)blockIdx.x * (256 * unroll) + threadIdx.x;
  Vector v[unroll];
#pragma unroll
  for (int u = 0; u < unroll; u++) {
    i64 i = base + u * 256;
    if (i < n) v[u] = load_vector(a.of, i);
  }
#pragma unroll
  for (int u = 0; u < unroll; u++) {
    i64 i = base + u * 256, left = a.of.bytes - 16 * i;
    if (i >= n) continue;
    Vector want = pattern(a.seed, i);
    u32 wrong = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      u32 difference = v[u].w[j] ^ want.w[j];
      int bytes = (int)smaller<i64>(left - 4 * j, 4);
      if (bytes < 4) difference &= bytes <= 0 ? 0 : (1u << 8 * bytes) - 1;
      wrong |= difference;
    }
    if (wrong) {
      atomic_add(a.result, (u64)1);
      atomic_max(a.result + 1, ~(u64)i);
    }
  }
}
