// Instructions of tensor cores and asynchronous copies, and their emulation on a CPU. Fragments are laid out as in the
// PTX manual, "Matrix Fragments for mma".
#pragma once
#include "device.cuh"

// multiply_fragments computes D += A B for 16 rows, 8 columns and a depth of 32 bytes: 16 halves (two instructions on
// sm_75), or 8 F32 numbers, of which tf32 uses the upper 19 bits. mma_8x8x4 computes four products on sm_70, one in
// each quarter of the warp.
struct tf32 : f32 {};

#ifdef __CUDACC_RTC__

// An address in shared memory, in a single 32-bit register.
typedef u32 Shared;
DEVICE Shared shared_at(const void *p) { return (u32)__cvta_generic_to_shared(p); }

#if ARCH >= 800
DEVICE void copy_async(Shared to, const void *p, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(p), "r"(bytes) : "memory");
}
DEVICE void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void wait_groups() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

DEVICE void multiply_fragments(f16, float *d, const u32 *a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void multiply_fragments(bf16, float *d, const u32 *a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void multiply_fragments(tf32, float *d, const u32 *a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE u32 load_shared(Shared p) {
  u32 x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(p) : "memory");
  return x;
}
#elif ARCH >= 750
DEVICE void mma_16x8x8(float *d, u32 a0, u32 a1, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(b));
}
DEVICE void multiply_fragments(f16, float *d, const u32 *a, u32 b0, u32 b1) {
  mma_16x8x8(d, a[0], a[1], b0);
  mma_16x8x8(d, a[2], a[3], b1);
}
#else
DEVICE void mma_8x8x4(float *d, const u32 *a, const u32 *b) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9}, {%10,%11}, {%0,%1,%2,%3,%4,%5,%6,%7};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
               : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]));
}
#endif

#if ARCH >= 750
DEVICE void load_matrices(u32 *r, Shared p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(p)
               : "memory");
}
DEVICE void load_matrices_transposed(u32 *r, Shared p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(p)
               : "memory");
}
#endif

#else // emulation on a CPU

typedef char *Shared;
DEVICE Shared shared_at(void *p) { return (char *)p; }
DEVICE void copy_async(Shared to, const void *p, int bytes) { host::copy_later(to, p, bytes); }
DEVICE void close_group() { host::close_group(); }
template <int N> DEVICE void wait_groups() { host::wait_groups(N); }

// widen_words converts the 16-bit numbers in n words to floats.
template <class T> DEVICE void widen_words(u32 *to, const u32 *words, int n) {
  for (int i = 0; i < 2 * n; i++) to[i] = f32_bits(T::widen((u16)(words[i / 2] >> (16 * (i & 1)))));
}

template <class T> DEVICE void multiply_fragments(T, float *d, const u32 *a, u32 b0, u32 b1) {
  u32 words[6] = {a[0], a[1], a[2], a[3], b0, b1}, mine[12];
  widen_words<T>(mine, words, 6);
  const u32(*all)[16] = host::exchange(mine, 12);
  for (int i = 0; i < 4; i++) {
    int row = lane() / 4 + 8 * (i / 2), column = lane() % 4 * 2 + i % 2;
    for (int k = 0; k < 16; k++) {
      float x = bits_f32(all[row % 8 * 4 + k % 8 / 2][2 * (row / 8 + k / 8 * 2) + k % 2]);
      float y = bits_f32(all[column * 4 + k % 8 / 2][2 * (4 + k / 8) + k % 2]);
      d[i] += x * y;
    }
  }
}

DEVICE void multiply_fragments(tf32, float *d, const u32 *a, u32 b0, u32 b1) {
  u32 mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const u32(*all)[16] = host::exchange(mine, 6);
  for (int i = 0; i < 4; i++) {
    int row = lane() / 4 + 8 * (i / 2), column = lane() % 4 * 2 + i % 2;
    for (int k = 0; k < 8; k++) {
      float x = bits_f32(all[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2] & ~0x1fffu);
      float y = bits_f32(all[column * 4 + k % 4][4 + k / 4] & ~0x1fffu);
      d[i] += x * y;
    }
  }
}
DEVICE u32 load_shared(Shared p) { return *(u32 *)p; }

DEVICE void mma_8x8x4(float *d, const u32 *a, const u32 *b) {
  u32 words[4] = {a[0], a[1], b[0], b[1]}, mine[8];
  widen_words<f16>(mine, words, 4);
  const u32(*all)[16] = host::exchange(mine, 8);
  int quarter = lane() % 16 / 4 * 4; // its first lane; its other four lanes are 16 further
  for (int i = 0; i < 8; i++) {
    int row = (lane() & 1) + (i & 2) + lane() / 16 * 4, column = (i & 4) + (lane() & 2) + (i & 1);
    for (int k = 0; k < 4; k++) {
      float x = bits_f32(all[quarter + row % 4 + row / 4 * 16][k]);
      float y = bits_f32(all[quarter + column % 4 + column / 4 * 16][4 + k]);
      d[i] += x * y;
    }
  }
}

// Lane 8j+i passes the address of row i of matrix j.
DEVICE void matrices(u32 *r, Shared p, bool transposed) {
  u64 at = (u64)p;
  u32 mine[2] = {(u32)at, (u32)(at >> 32)};
  const u32(*all)[16] = host::exchange(mine, 2);
  for (int j = 0; j < 4; j++) {
    u16 pair[2];
    for (int i = 0; i < 2; i++) {
      int row = lane() / 4, column = lane() % 4 * 2 + i;
      if (transposed) {
        int t = row;
        row = column, column = t;
      }
      const u32 *w = all[8 * j + row];
      pair[i] = ((const u16 *)(w[0] | (u64)w[1] << 32))[column];
    }
    r[j] = pair[0] | (u32)pair[1] << 16;
  }
}
DEVICE void load_matrices(u32 *r, Shared p) { matrices(r, p, false); }
DEVICE void load_matrices_transposed(u32 *r, Shared p) { matrices(r, p, true); }

#endif
