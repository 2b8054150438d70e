// Types and functions that all kernels use. With NVRTC they are CUDA and PTX. With a C++ compiler host.h replaces them,
// so that the same kernels run on a CPU, one thread after the other.
//
// Kernels access device memory only through these functions. So the CPU version can record which bytes were read and
// written, and stop at an invalid access.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// Sixteen bytes, the largest access of a thread.
struct alignas(16) Vector {
  u32 w[4];
};

#ifdef __CUDACC_RTC__

#define ARCH __CUDA_ARCH__
#define DEVICE static __device__ __forceinline__
#define METHOD __device__ __forceinline__
// SCRATCH declares a variable in the module's device memory.
#define SCRATCH static __device__
// KERNEL defines a kernel, whose argument a is one structure of 8-byte fields.
#define KERNEL(name, threads, blocks, Args) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Args a)

extern __shared__ Vector shared_vectors[];
DEVICE char *shared_memory() { return (char *)shared_vectors; }
DEVICE void sync() { __syncthreads(); }
DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(~0u, x, mask); }
DEVICE u32 atomic_add(u32 *p, u32 x) { return atomicAdd(p, x); }
DEVICE u64 atomic_add(u64 *p, u64 x) { return atomicAdd(p, x); }
DEVICE u64 atomic_max(u64 *p, u64 x) { return atomicMax(p, x); }
DEVICE void fence() { __threadfence(); }

// Loads and stores of global memory. PTX states the address space, which the compiler cannot always derive and would
// have the hardware test. Volatile keeps them in order.
DEVICE u8 load(const u8 *p) {
  u32 x;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(x) : "l"(p));
  return (u8)x;
}
DEVICE u16 load(const u16 *p) {
  u16 x;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(x) : "l"(p));
  return x;
}
DEVICE u32 load(const u32 *p) {
  u32 x;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(p));
  return x;
}
DEVICE Vector load(const Vector *p) {
  Vector v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p));
  return v;
}
DEVICE void store(u8 *p, u8 x) { asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "r"((u32)x)); }
DEVICE void store(u16 *p, u16 x) { asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "h"(x)); }
DEVICE void store(u32 *p, u32 x) { asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(x)); }
DEVICE void store(u64 *p, u64 x) { asm volatile("st.global.u64 [%0], %1;" ::"l"(p), "l"(x)); }
DEVICE void store(Vector *p, Vector x) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(x.w[0]), "r"(x.w[1]), "r"(x.w[2]), "r"(x.w[3]));
}
// Loads of memory that the launch does not write.
DEVICE u16 load_input(const u16 *p) {
  u16 x;
  asm("ld.global.u16 %0, [%1];" : "=h"(x) : "l"(p));
  return x;
}
DEVICE u32 load_input(const u32 *p) {
  u32 x;
  asm("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(p));
  return x;
}
DEVICE Vector load_input(const Vector *p) {
  Vector v;
  asm("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p));
  return v;
}
// Loads a value that another block has written, bypassing this multiprocessor's cache.
DEVICE float load_fresh(const float *p) { return __ldcg(p); }

DEVICE float f16_to_f32(u16 h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
DEVICE u16 f32_to_f16(float f) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
// Packs two numbers into one word, the first in the lower half.
DEVICE u32 f16_pair(float x, float y) {
#if ARCH >= 800
  u32 p;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(y), "f"(x));
  return p;
#else
  return f32_to_f16(x) | (u32)f32_to_f16(y) << 16;
#endif
}
DEVICE float bits_f32(u32 b) { return __uint_as_float(b); }
DEVICE u32 f32_bits(float f) { return __float_as_uint(f); }
DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE float exponential(float x) { return __expf(x); }
DEVICE float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float reciprocal_root(float x) { return rsqrtf(x); }
DEVICE u32 high_product(u32 a, u32 b) { return __umulhi(a, b); }

#else
#include "host.h"
#endif

DEVICE int lane() { return threadIdx.x & 31; }
DEVICE int warp() { return threadIdx.x >> 5; }
template <class T> DEVICE T smaller(T a, T b) { return a < b ? a : b; }
template <class T> DEVICE T larger(T a, T b) { return a > b ? a : b; }
DEVICE bool aligned(u64 address) { return (address & 15) == 0; }

// The element types. Arithmetic is in f32, as in PyTorch.
struct f32 {
  typedef u32 bits;
  static constexpr int type = 0; // the number in load_number
  static const int lanes = 4; // elements per Vector
  static const u32 fraction = 0x807fffff, half = 0x3f000000; // masks of a word, see settle
  DEVICE float get(const Vector &v, int i) { return bits_f32(v.w[i]); }
  DEVICE void set(Vector &v, int i, float x) { v.w[i] = f32_bits(x); }
  DEVICE float widen(bits b) { return bits_f32(b); }
  DEVICE bits narrow(float x) { return f32_bits(x); }
};

template <class T> struct half_width {
  typedef u16 bits;
  static const int lanes = 8;
  DEVICE float get(const Vector &v, int i) { return T::widen((u16)(v.w[i / 2] >> (16 * (i & 1)))); }
  // set must be called in ascending order of i: an even lane clears the odd one after it.
  DEVICE void set(Vector &v, int i, float x) {
    u32 b = T::narrow(x);
    v.w[i / 2] = i & 1 ? (v.w[i / 2] & 0xffff) | b << 16 : b;
  }
};

struct f16 : half_width<f16> {
  static constexpr int type = 1;
  static const u32 fraction = 0x83ff83ff, half = 0x38003800;
  DEVICE float widen(bits b) { return f16_to_f32(b); }
  DEVICE bits narrow(float x) { return f32_to_f16(x); }
  DEVICE u32 pair(float x, float y) { return f16_pair(x, y); }
};

struct bf16 : half_width<bf16> {
  static constexpr int type = 2;
  static const u32 fraction = 0x807f807f, half = 0x3f003f00;
  DEVICE float widen(bits b) { return bits_f32((u32)b << 16); }
  // Rounds to nearest, ties to even; NaN stays NaN.
  DEVICE bits narrow(float x) {
    u32 b = f32_bits(x);
    if ((b & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (bits)((b + 0x7fff + (b >> 16 & 1)) >> 16);
  }
  DEVICE u32 pair(float x, float y) {
#if defined __CUDACC_RTC__ && ARCH >= 800
    u32 p;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(y), "f"(x));
    return p;
#else
    return narrow(x) | (u32)narrow(y) << 16;
#endif
  }
};

// settle keeps sign and fraction of each number and sets its magnitude to between a half and one. So repeated work
// neither vanishes nor overflows, and the bits stay as random as in real data, which power and clocks depend on.
template <class T> DEVICE void settle(Vector &v) {
#pragma unroll
  for (int j = 0; j < 4; j++) v.w[j] = (v.w[j] & T::fraction) | T::half;
}

// load_number loads a number of a type that is known only at run time; type is its index in Go's list.
DEVICE float load_number(const u8 *p, int type) {
  if (type == 0) return bits_f32(load((const u32 *)p));
  u16 b = load((const u16 *)p);
  return type == 1 ? f16::widen(b) : bf16::widen(b);
}
DEVICE void store_number(u8 *p, int type, float x) {
  if (type == 0) return store((u32 *)p, f32_bits(x));
  store((u16 *)p, type == 1 ? f16::narrow(x) : bf16::narrow(x));
}
DEVICE int number_size(int type) { return type == 0 ? 4 : 2; }

// load_some loads n bytes at p, at most 16, at any alignment; the other bytes are zero. n is negative past the end of
// the memory, possibly below the range of int.
DEVICE Vector load_some(const u8 *p, i64 n) {
  if (n >= 16 && aligned((u64)p)) return load((const Vector *)p);
  u64 low = 0, high = 0; // not an array, whose index would not be constant
#pragma unroll 1
  for (int i = (int)larger<i64>(smaller<i64>(n, 16), 0) - 1; i >= 0; i--) {
    high = high << 8 | low >> 56;
    low = low << 8 | load(p + i);
  }
  return Vector{{(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)}};
}

// load_lanes loads whole elements in n bytes from an aligned address, without a loop.
template <class T> DEVICE Vector load_lanes(const u8 *p, int n) {
  typedef typename T::bits bits;
  const int size = sizeof(bits);
  if (n >= 16) return load_input((const Vector *)p);
  Vector v = {{0, 0, 0, 0}};
#pragma unroll
  for (int l = 0; l < T::lanes; l++)
    if (l * size < n) v.w[l * size / 4] |= (u32)load_input((const bits *)p + l) << (l * size % 4 * 8);
  return v;
}

// store_some stores the first n bytes of v, at most 16.
DEVICE void store_some(u8 *p, i64 n, Vector v) {
  if (n >= 16 && aligned((u64)p)) return store((Vector *)p, v);
  u64 low = v.w[0] | (u64)v.w[1] << 32, high = v.w[2] | (u64)v.w[3] << 32;
#pragma unroll 1
  for (int i = 0; i < 16 && i < n; i++) {
    store(p + i, (u8)low);
    low = low >> 8 | high << 56;
    high >>= 8;
  }
}

// A range of device memory.
struct Range {
  u64 address;
  i64 bytes;
};

DEVICE i64 vectors(i64 bytes) { return (bytes + 15) >> 4; }
DEVICE Vector load_vector(const Range &r, i64 i) { return load_some((const u8 *)r.address + 16 * i, r.bytes - 16 * i); }
DEVICE void store_vector(const Range &r, i64 i, Vector v) { store_some((u8 *)r.address + 16 * i, r.bytes - 16 * i, v); }

// load_vectors loads Count vectors with a stride of 256. If all are complete, a single test suffices and the loads are
// in flight together.
template <int Count> DEVICE void load_vectors(Vector *v, const Range &r, i64 base) {
  const Vector *p = (const Vector *)r.address + base;
  if (aligned(r.address) && 16 * (base + 256 * (Count - 1)) + 16 <= r.bytes) {
#pragma unroll
    for (int u = 0; u < Count; u++) v[u] = load(p + u * 256);
  } else {
#pragma unroll
    for (int u = 0; u < Count; u++) v[u] = load_vector(r, base + u * 256);
  }
}
template <int Count> DEVICE void store_vectors(const Range &r, i64 base, const Vector *v) {
  Vector *p = (Vector *)r.address + base;
  if (aligned(r.address) && 16 * (base + 256 * (Count - 1)) + 16 <= r.bytes) {
#pragma unroll
    for (int u = 0; u < Count; u++) store(p + u * 256, v[u]);
  } else {
#pragma unroll
    for (int u = 0; u < Count; u++) store_vector(r, base + u * 256, v[u]);
  }
}

// aligned_off removes the bytes before the first aligned vector from r, and returns them as a range.
DEVICE Range aligned_off(Range &r) {
  i64 n = smaller<i64>((16 - (r.address & 15)) & 15, r.bytes);
  Range head = {r.address, n};
  r.address += n;
  r.bytes -= n;
  return head;
}

// Memory in the module through which the blocks of a launch pass results to the last one. Only one launch at a time may
// use it. Tickets count arrivals and return to zero.
const int scratch_floats = 2 << 20;
const int scratch_tickets = 4096;
SCRATCH float scratch[scratch_floats];
SCRATCH u32 tickets[scratch_tickets];
#ifndef __CUDACC_RTC__
static host::Module scratch_memory(scratch, sizeof scratch), tickets_memory(tickets, sizeof tickets);
#endif

// last_to_arrive returns true to all threads of the block that arrives last of n blocks with the ticket. It may then
// read with load_fresh what the other blocks stored to scratch. flag is a word of shared memory that nothing else uses.
DEVICE bool last_to_arrive(u32 ticket, u32 n, u32 *flag) {
  fence();
  sync();
  if (threadIdx.x == 0) {
    bool last = atomic_add(&tickets[ticket], 1) == n - 1;
    if (last) tickets[ticket] = 0;
    *flag = last;
  }
  sync();
  bool last = *flag;
  if (last) fence();
  return last;
}

// keep makes the compiler treat x as used, so that loads of a kernel that only reads are not removed.
DEVICE void keep(u32 x) {
  if (x == 0x7ec0de57u) scratch[0] = bits_f32(x);
}

DEVICE float warp_sum(float x) {
#pragma unroll
  for (int m = 16; m; m >>= 1) x += shuffle_xor(x, m);
  return x;
}

DEVICE float warp_max(float x) {
#pragma unroll
  for (int m = 16; m; m >>= 1) x = larger(x, shuffle_xor(x, m));
  return x;
}

// block_sum returns the sum of x over the block to all threads. partial is shared memory of 32 floats, which may be
// reused after the next sync.
DEVICE float block_sum(float x, float *partial) {
  x = warp_sum(x);
  sync();
  if (lane() == 0) partial[warp()] = x;
  sync();
  x = lane() < (int)blockDim.x / 32 ? partial[lane()] : 0;
  return warp_sum(x);
}

DEVICE float block_max(float x, float *partial) {
  x = warp_max(x);
  sync();
  if (lane() == 0) partial[warp()] = x;
  sync();
  x = partial[lane() < (int)blockDim.x / 32 ? lane() : 0];
  return warp_max(x);
}
