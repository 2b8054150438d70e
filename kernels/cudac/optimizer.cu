// Optimizer updates of many tensors in one launch. There are parallel lists of weights, of gradients, and of optimizer
// states.
#include "device.cuh"

const int table_words = 480;
const i64 chunk_vectors = 2048; // 32 KiB: the part of each list that a block processes

struct UpdateArgs {
  i64 tensors, lists;
  u64 read, written; // bit l: whether list l is read, or written
  i64 rounds, settled;
  double scale, shift;
  // For each tensor: the number of chunks of earlier tensors, its bytes, and its address in each list.
  u64 table[table_words];
};

// owner returns the row of the table for the tensor that contains a chunk.
DEVICE const u64 *owner(const UpdateArgs &a, i64 chunk) {
  int width = (int)a.lists + 2, low = 0, high = (int)a.tensors - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if ((i64)a.table[middle * width] <= chunk)
      low = middle;
    else
      high = middle - 1;
  }
  return a.table + low * width;
}

// Like elementwise, for each tensor: written lists get the sum of the read lists, to which scale and shift are applied
// rounds times.
template <class T> DEVICE void update(const UpdateArgs &a) {
  const u64 *tensor = owner(a, blockIdx.x);
  i64 bytes = tensor[1], base = ((i64)blockIdx.x - (i64)tensor[0]) * chunk_vectors;
  float scale = (float)a.scale, shift = (float)a.shift;
#pragma unroll 2
  for (i64 i = base + threadIdx.x; i < base + chunk_vectors && i < vectors(bytes); i += 256) {
    float sum[T::lanes];
#pragma unroll
    for (int l = 0; l < T::lanes; l++) sum[l] = 0;
#pragma unroll 1
    for (int list = 0; list < (int)a.lists; list++) {
      if (!(a.read >> list & 1)) continue;
      Vector v = load_vector(Range{tensor[2 + list], bytes}, i);
#pragma unroll
      for (int l = 0; l < T::lanes; l++) sum[l] += T::get(v, l);
    }
#pragma unroll 1
    for (i64 r = 0; r < a.rounds; r++)
#pragma unroll
      for (int l = 0; l < T::lanes; l++) sum[l] = fused(sum[l], scale, shift);
    Vector v;
#pragma unroll
    for (int l = 0; l < T::lanes; l++) T::set(v, l, sum[l]);
    if (a.settled) settle<T>(v);
#pragma unroll 1
    for (int list = 0; list < (int)a.lists; list++)
      if (a.written >> list & 1) store_vector(Range{tensor[2 + list], bytes}, i, v);
    if (!a.written) keep(v.w[0] ^ v.w[1] ^ v.w[2] ^ v.w[3]);
  }
}

KERNEL(update_f32, 256, 4, UpdateArgs) { update<f32>(a); }
KERNEL(update_f16, 256, 4, UpdateArgs) { update<f16>(a); }
KERNEL(update_bf16, 256, 4, UpdateArgs) { update<bf16>(a); }
