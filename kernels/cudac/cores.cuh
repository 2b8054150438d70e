// Tiles for f32 cores: 256 threads compute 8 by 8 elements each, over a depth of 8, or 16 for 16-bit operands, at a
// time.
#pragma once
#include "tile.cuh"

namespace cores {

const int block = 256;
// Depth of a stage: one chunk of each operand per thread. A larger depth would take registers that the addresses of
// convolutions need.
template <class T> constexpr int depth = 2 * T::lanes;
const int line = tile + 4; // floats; lines start one bank group apart

// A warp's threads form two by two groups of 4 by 8 squares of 4 by 4 elements, so that they read whole lines of 128
// bytes.
DEVICE int thread_row() { return warp() / 2 * 32 + lane() / 8 * 4; }
DEVICE int thread_column() { return warp() % 2 * 64 + lane() % 8 * 4; }

template <class T> DEVICE void multiply(float *acc, const float *a, const float *b) {
  a += thread_row(), b += thread_column();
#pragma unroll
  for (int k = 0; k < depth<T>; k++) {
    Vector x[2], y[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      x[h] = *(const Vector *)(a + k * line + 16 * h);
      y[h] = *(const Vector *)(b + k * line + 32 * h);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
      for (int j = 0; j < 8; j++)
        acc[i * 8 + j] = fused(bits_f32(x[i / 4].w[i % 4]), bits_f32(y[j / 4].w[j % 4]), acc[i * 8 + j]);
  }
}

// Copies tiles to shared memory in chunks of 16 bytes: the next tile is loaded while the current one is multiplied.
template <class View, class T> struct Chunks {
  typedef Loader<View, T, depth<T>, block> L;
  L loader;
  Vector v[L::chunks];
  METHOD Chunks(const View &view, int first) : loader(view, first) {}
  METHOD void get(int k) {
#pragma unroll
    for (int i = 0; i < L::chunks; i++) v[i] = loader.get(i, k);
  }
  METHOD void put(float *to) const {
#pragma unroll
    for (int i = 0; i < L::chunks; i++)
#pragma unroll
      for (int j = 0; j < T::lanes; j++) {
        int k = View::along_depth ? L::chunk() * T::lanes + j : L::line(i);
        int m = View::along_depth ? L::line(i) : L::chunk() * T::lanes + j;
        to[k * line + m] = T::get(v[i], j);
      }
  }
};

// write stores a thread's results, four columns at a time if they are aligned.
template <class T> DEVICE void write(const float *acc, const Output &c, int m0, int n0) {
  typedef typename T::bits bits;
  const int size = sizeof(bits);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int row = m0 + thread_row() + i % 4 + i / 4 * 16;
    if (row >= c.rows) continue;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int column = n0 + thread_column() + 32 * h;
      u8 *to = c.address + (row * c.row + column) * size;
      const float *x = acc + i * 8 + h * 4;
      if (T::lanes == 4 && column + 4 <= c.columns && aligned((u64)to)) {
        store((Vector *)to, Vector{{f32_bits(x[0]), f32_bits(x[1]), f32_bits(x[2]), f32_bits(x[3])}});
        continue;
      }
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (column + j < c.columns) store((bits *)to + j, T::narrow(x[j]));
    }
  }
}

template <class T, class A, class B>
DEVICE void product(const A &a, const B &b, const Output &c, int m0, int n0, const Share &s) {
  float *memory = (float *)shared_memory();
  const int stage = 2 * depth<T> * line;
  float acc[64];
#pragma unroll
  for (int i = 0; i < 64; i++) acc[i] = 0;
  Chunks<A, T> ba(a, m0);
  Chunks<B, T> bb(b, n0);
#pragma unroll 1
  for (int k = s.begin - depth<T>, at = stage; k < s.end; k += depth<T>, at = stage - at) {
    bool more = k + depth<T> < s.end;
    if (more) {
      ba.get(k + depth<T>);
      bb.get(k + depth<T>);
    }
    if (k >= s.begin) multiply<T>(acc, memory + at, memory + at + depth<T> * line);
    if (more) {
      ba.put(memory + stage - at);
      bb.put(memory + stage - at + depth<T> * line);
    }
    sync();
  }
  if (!combine<64, block>(acc, s)) return;
#pragma unroll
  for (int i = 0; i < 64; i++) acc[i] *= s.scale;
  write<T>(acc, c, m0, n0);
}

} // namespace cores
