// Tiles for tensor cores: 4 warps compute 64 by 64 elements each. A stage has a depth of 64 bytes, multiplied in two
// steps.
#pragma once
#include "mma.cuh"
#include "tile.cuh"

namespace tensor {

const int block = 128, steps = 2;
template <class T> constexpr int depth = 4 * T::lanes;
#if ARCH >= 800
const int stages = 3;
#else
const int stages = 2;
#endif
const int stage_bytes = 2 * tile * 64;

// offset returns the position of chunk c of a line in a tile of shared memory. Chunks are swizzled so that the lines
// read together lie in different banks: eight lines of halves in a matrix load, or four lines of F32 in a warp.
template <class T, bool AlongDepth> constexpr int line_bytes = AlongDepth ? 64 : tile * 16 / T::lanes;
template <class T, bool AlongDepth> DEVICE int offset(int line, int c) {
  int turned = AlongDepth ? line >> 1 & 3 : T::lanes == 8 ? line & 7 : (line & 3) * 2;
  return line * line_bytes<T, AlongDepth> + ((c ^ turned) << 4);
}

#if ARCH >= 750
// Reads fragments of 64 indices of a tile, 16 at a time: the four registers of one fragment of A, or of two of B with 8
// columns each. For one thread, the swizzle does not depend on the index (AlongDepth) or not on the depth, so that a
// few offsets suffice.
template <class T, bool AlongDepth, bool IsA> struct Reader {
  int at[AlongDepth ? steps : 4];

  METHOD Reader(int first) {
    int l = lane() & 7, low = lane() >> 3 & 1, high = lane() >> 4;
    int di = IsA ? low : high, dk = IsA ? high : low;
    if (AlongDepth) {
#pragma unroll
      for (int step = 0; step < steps; step++) at[step] = offset<T, true>(first + 8 * di + l, 2 * step + dk);
    } else {
#pragma unroll
      for (int i = 0; i < 4; i++) at[i] = offset<T, false>(8 * dk + l, first / 8 + 2 * i + di);
    }
  }
  METHOD void get(u32 (*r)[4], Shared from, int step) const {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (AlongDepth)
        load_matrices(r[i], from + at[step] + i * 16 * 64);
      else
        load_matrices_transposed(r[i], from + at[i] + step * 16 * 256);
    }
  }
};

#if ARCH >= 800
// Matrix loads cannot transpose F32 numbers. If chunks run along the index, lane 4g+t loads single numbers of index g
// or g+8 and depth t or t+4.
template <bool IsA> struct Reader<tf32, false, IsA> {
  int base, turned;

  METHOD Reader(int first) {
    int g = lane() / 4, t = lane() % 4;
    base = t * 512 + first * 4 + g % 4 * 4;
    turned = (g / 4 ^ 2 * t) << 4;
  }
  METHOD void get(u32 (*r)[4], Shared from, int step) const {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        Shared p = from + base + (turned ^ (4 * i + 2 * half) << 4) + step * 8 * 512;
        r[i][IsA ? half : 2 * half] = load_shared(p);
        r[i][IsA ? 2 + half : 2 * half + 1] = load_shared(p + 4 * 512);
      }
  }
};
#endif

struct Fragments {
  u32 a[4][4], b[4][4];
};

template <class T> DEVICE void multiply(float *acc, const Fragments &f) {
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 8; j++) {
      // In alternating directions, so that a fragment of B is used twice in a row.
      int n = i & 1 ? 7 - j : j;
      multiply_fragments(T(), acc + (i * 8 + n) * 4, f.a[i], f.b[n / 2][n % 2 * 2], f.b[n / 2][n % 2 * 2 + 1]);
    }
}

DEVICE int pair_row(int p) { return warp() / 2 * 64 + p / 16 * 16 + p % 2 * 8 + lane() / 4; }
DEVICE int pair_column(int p) { return warp() % 2 * 64 + p / 2 % 8 * 8 + lane() % 4 * 2; }

#else
// sm_70: each quarter of a warp computes 8x8 of a 16x16 tile. The assignment of rows is free; with this one, eight
// consecutive lanes read eight consecutive lines.
DEVICE int quarter_row() { return (lane() >> 2 & 1) * 4 + (lane() & 3) + lane() / 16 * 8; }
DEVICE int quarter_column() { return (lane() >> 3 & 1) * 4 + (lane() & 3) + lane() / 16 * 8; }

DEVICE void multiply_tile(float *acc, const char *a, const char *b) {
  int m = warp() / 2 * 64 + quarter_row(), n = warp() % 2 * 64 + quarter_column();
#pragma unroll
  for (int c = 0; c < 4; c++) {
    Vector x[4], y[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      x[i] = *(const Vector *)(a + offset<f16, true>(m + 16 * i, c));
      y[i] = *(const Vector *)(b + offset<f16, true>(n + 16 * i, c));
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) mma_8x8x4(acc + (i * 4 + j) * 8, x[i].w + 2 * h, y[j].w + 2 * h);
  }
}

DEVICE int pair_row(int p) {
  return warp() / 2 * 64 + p / 16 * 16 + (lane() >> 2 & 1) * 4 + lane() / 16 * 8 + (lane() & 1) + p % 2 * 2;
}
DEVICE int pair_column(int p) {
  return warp() % 2 * 64 + p / 4 % 4 * 16 + (lane() >> 3 & 1) * 4 + p / 2 % 2 * 8 + (lane() & 2);
}
#endif

#if ARCH >= 800

// bring copies half a stage (one operand); line 0 of the thread is written to offset at.
template <class L> DEVICE void bring(Shared to, const L &from, int k) {
#pragma unroll
  for (int i = 0; i < L::chunks; i++) {
    int valid;
    const u8 *p = from.at(i, k, valid);
    copy_async(to + i * L::step * line_bytes<typename L::type, L::along_depth>, p, valid);
  }
}

// While a stage is multiplied, the next stages are being copied. While a step is multiplied, the fragments of the next
// step are loaded.
template <class T, class A, class B> DEVICE void accumulate(float *acc, const A &a, const B &b, int m0, int n0, const Share &s) {
  typedef Loader<A, T, depth<T>, block> LA;
  typedef Loader<B, T, depth<T>, block> LB;
  LA la(a, m0);
  LB lb(b, n0);
  Reader<T, A::along_depth, true> ra(warp() / 2 * 64);
  Reader<T, B::along_depth, false> rb(warp() % 2 * 64);
  int to_a = offset<T, A::along_depth>(LA::line(0), LA::chunk());
  int to_b = offset<T, B::along_depth>(LB::line(0), LB::chunk()) + stage_bytes / 2;
  Shared memory = shared_at(shared_memory());
  int k = s.begin; // the depth of the next stage to copy
#pragma unroll
  for (int i = 0; i < stages - 1; i++, k += depth<T>) {
    if (k < s.end) {
      bring(memory + i * stage_bytes + to_a, la, k);
      bring(memory + i * stage_bytes + to_b, lb, k);
    }
    close_group();
  }
  wait_groups<stages - 2>();
  sync();
  Fragments f[2];
  int now = 0, free = (stages - 1) * stage_bytes;
  ra.get(f[0].a, memory, 0);
  rb.get(f[0].b, memory + stage_bytes / 2, 0);
#pragma unroll 1
  for (int left = (s.end - s.begin + depth<T> - 1) / depth<T>; left > 0; left--, k += depth<T>) {
    ra.get(f[1].a, memory + now, 1);
    rb.get(f[1].b, memory + now + stage_bytes / 2, 1);
    if (k < s.end) {
      bring(memory + free + to_a, la, k);
      bring(memory + free + to_b, lb, k);
    }
    close_group();
    multiply<T>(acc, f[0]);
    free = now;
    now = now == (stages - 1) * stage_bytes ? 0 : now + stage_bytes;
    wait_groups<stages - 2>();
    sync();
    // After the last stage these are not used.
    ra.get(f[0].a, memory + now, 0);
    rb.get(f[0].b, memory + now + stage_bytes / 2, 0);
    multiply<T>(acc, f[1]);
  }
  wait_groups<0>();
  sync();
}

#else

// put transposes chunks that run along the index on their way to shared memory.
template <class L> DEVICE void put(char *to, const Vector *v) {
#pragma unroll
  for (int i = 0; i < L::chunks; i++) {
    if (L::along_depth) {
      *(Vector *)(to + offset<typename L::type, true>(L::line(i), L::chunk())) = v[i];
    } else {
#pragma unroll
      for (int j = 0; j < 8; j++)
        *(u16 *)(to + offset<typename L::type, true>(L::chunk() * 8 + j, L::line(i) / 8) + L::line(i) % 8 * 2) = (u16)(v[i].w[j / 2] >> (16 * (j & 1)));
    }
  }
}

template <class T, class A, class B> DEVICE void accumulate(float *acc, const A &a, const B &b, int m0, int n0, const Share &s) {
  typedef Loader<A, T, depth<T>, block> LA;
  typedef Loader<B, T, depth<T>, block> LB;
  char *memory = shared_memory();
  LA la(a, m0);
  LB lb(b, n0);
#if ARCH >= 750
  Reader<T, true, true> ra(warp() / 2 * 64);
  Reader<T, true, false> rb(warp() % 2 * 64);
#endif
  Vector va[LA::chunks], vb[LB::chunks];
#pragma unroll 1
  for (int k = s.begin - depth<T>, stage = 1; k < s.end; k += depth<T>, stage ^= 1) {
    bool more = k + depth<T> < s.end;
    if (more) {
#pragma unroll
      for (int i = 0; i < LA::chunks; i++) va[i] = la.get(i, k + depth<T>);
#pragma unroll
      for (int i = 0; i < LB::chunks; i++) vb[i] = lb.get(i, k + depth<T>);
    }
    if (k >= s.begin) {
      char *now = memory + stage * stage_bytes;
#if ARCH >= 750
      Fragments f;
#pragma unroll
      for (int step = 0; step < steps; step++) {
        ra.get(f.a, shared_at(now), step);
        rb.get(f.b, shared_at(now) + stage_bytes / 2, step);
        multiply<T>(acc, f);
      }
#else
      multiply_tile(acc, now, now + stage_bytes / 2);
#endif
    }
    if (more) {
      char *next = memory + (stage ^ 1) * stage_bytes;
      put<LA>(next, va);
      put<LB>(next + stage_bytes / 2, vb);
    }
    sync();
  }
}

#endif

// Halves are stored through shared memory, so that each thread writes 16 bytes.
template <class T> DEVICE void write_halves(const float *acc, const Output &c, int m0, int n0) {
  char *memory = shared_memory();
#pragma unroll
  for (int p = 0; p < 64; p++) {
    int row = pair_row(p), column = pair_column(p);
    *(u32 *)(memory + row * 256 + ((column / 8 ^ (row & 7)) << 4) + column % 8 * 2) = T::pair(acc[2 * p], acc[2 * p + 1]);
  }
  sync();
  write_tile<T, block>(memory, c, m0, n0);
}

// F32 needs no shared memory: four lanes write 32 contiguous bytes.
DEVICE void write_floats(const float *acc, const Output &c, int m0, int n0) {
#pragma unroll
  for (int p = 0; p < 64; p++) {
    int row = m0 + pair_row(p), column = n0 + pair_column(p);
    if (row >= c.rows || column >= c.columns) continue;
    u32 *to = (u32 *)c.address + row * c.row + column;
    u32 x = f32_bits(acc[2 * p]), y = f32_bits(acc[2 * p + 1]);
    if (column + 1 < c.columns && ((u64)to & 7) == 0) {
      store((u64 *)to, x | (u64)y << 32);
    } else {
      store(to, x);
      if (column + 1 < c.columns) store(to + 1, y);
    }
  }
}

template <class T, class A, class B> DEVICE void product(const A &a, const B &b, const Output &c, int m0, int n0, const Share &s) {
  float acc[128];
#pragma unroll
  for (int i = 0; i < 128; i++) acc[i] = 0;
  accumulate<T>(acc, a, b, m0, n0, s);
  if (!combine<128, block>(acc, s)) return;
#pragma unroll
  for (int i = 0; i < 128; i++) acc[i] *= s.scale;
  if constexpr (T::lanes == 8)
    write_halves<T>(acc, c, m0, n0);
  else
    write_floats(acc, c, m0, n0);
}

} // namespace tensor
