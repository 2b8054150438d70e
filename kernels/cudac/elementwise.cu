// Elementwise operations on any number of operands.
#include "device.cuh"

const int most_operands = 8; // inputs and outputs each

struct ElementwiseArgs {
  i64 reads, writes, rounds, settled;
  double scale, shift;
  Range read[most_operands], write[most_operands];
};

// Operands are ranges of elements, zero past their ends. Every output is the sum of the inputs, to which scale and
// shift are applied rounds times.
template <class T> DEVICE void elementwise(const ElementwiseArgs &a) {
  const int unroll = T::lanes == 8 ? 2 : 4;
  i64 base = (i64)blockIdx.x * (256 * unroll) + threadIdx.x;
  float sum[unroll][T::lanes];
#pragma unroll
  for (int u = 0; u < unroll; u++)
#pragma unroll
    for (int l = 0; l < T::lanes; l++) sum[u][l] = 0;
#pragma unroll 1
  for (int r = 0; r < (int)a.reads; r++) {
    Vector v[unroll];
    load_vectors<unroll>(v, a.read[r], base);
#pragma unroll
    for (int u = 0; u < unroll; u++)
#pragma unroll
      for (int l = 0; l < T::lanes; l++) sum[u][l] += T::get(v[u], l);
  }
  float scale = (float)a.scale, shift = (float)a.shift;
#pragma unroll 1
  for (i64 r = 0; r < a.rounds; r++)
#pragma unroll
    for (int u = 0; u < unroll; u++)
#pragma unroll
      for (int l = 0; l < T::lanes; l++) sum[u][l] = fused(sum[u][l], scale, shift);
  Vector v[unroll];
#pragma unroll
  for (int u = 0; u < unroll; u++)
#pragma unroll
    for (int l = 0; l < T::lanes; l++) T::set(v[u], l, sum[u][l]);
  if (a.settled)
#pragma unroll
    for (int u = 0; u < unroll; u++) settle<T>(v[u]);
#pragma unroll 1
  for (int w = 0; w < (int)a.writes; w++) store_vectors<unroll>(a.write[w], base, v);
  if (a.writes == 0)
#pragma unroll
    for (int u = 0; u < unroll; u++) keep(v[u].w[0] ^ v[u].w[1] ^ v[u].w[2] ^ v[u].w[3]);
}

KERNEL(elementwise_f32, 256, 4, ElementwiseArgs) { elementwise<f32>(a); }
KERNEL(elementwise_f16, 256, 4, ElementwiseArgs) { elementwise<f16>(a); }
KERNEL(elementwise_bf16, 256, 4, ElementwiseArgs) { elementwise<bf16>(a); }
