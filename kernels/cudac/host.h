// CUDA's built-ins on a CPU. Each thread of a block is a fiber that runs until a barrier; blocks run one after the
// other. Device memory is host memory in registered ranges, in which every access is checked and counted.
#pragma once
#include <math.h>
#include <stddef.h>
#include <string.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct Dim3 {
  unsigned x, y, z;
};
extern Dim3 threadIdx, blockIdx, blockDim, gridDim;

#define DEVICE static inline
#define METHOD inline
#define SCRATCH static

namespace host {
// touch records that bytes at p are read or written. An invalid access ends the launch.
void touch(const void *p, size_t bytes, bool write);
void block_barrier();
// exchange passes n words of each lane of a warp to all lanes, and returns the words by lane.
const unsigned (*exchange(const unsigned *words, int n))[16];
char *shared_memory();
// copy_later is one asynchronous copy of 16 bytes: the first bytes from p, then zeros. It is carried out when the
// thread waits for it, as late as possible.
void copy_later(void *to, const void *p, int bytes);
void close_group();
void wait_groups(int pending);

typedef void (*Entry)(const void *args);
// A variable in the module's memory, whose accesses are neither checked nor counted.
struct Module {
  Module(void *p, size_t bytes);
  const char *data;
  size_t bytes;
  Module *next;
};

struct Kernel {
  Kernel(const char *name, int arch, size_t args, int threads, Entry entry);
  const char *name;
  int arch;
  size_t args;
  int threads;
  Entry entry;
  Kernel *next;
};
} // namespace host

#define KERNEL(name, threads, blocks, Args)                                                        \
  static void name(const Args &a);                                                                 \
  static void name##_entry(const void *args) { name(*(const Args *)args); }                        \
  static host::Kernel name##_kernel(#name, ARCH / 10, sizeof(Args), threads, name##_entry);        \
  static void name(const Args &a)

DEVICE char *shared_memory() { return host::shared_memory(); }
DEVICE void sync() { host::block_barrier(); }
DEVICE void fence() {}

DEVICE unsigned f32_bits(float f) {
  unsigned b;
  memcpy(&b, &f, 4);
  return b;
}
DEVICE float bits_f32(unsigned b) {
  float f;
  memcpy(&f, &b, 4);
  return f;
}
DEVICE float shuffle_xor(float x, int mask) {
  unsigned b = f32_bits(x);
  return bits_f32(host::exchange(&b, 1)[(threadIdx.x & 31) ^ mask][0]);
}

template <class T> DEVICE T load(const T *p) {
  host::touch(p, sizeof(T), false);
  return *p;
}
template <class T> DEVICE void store(T *p, T x) {
  host::touch(p, sizeof(T), true);
  *p = x;
}
template <class T> DEVICE T load_input(const T *p) { return load(p); }
DEVICE float load_fresh(const float *p) { return *p; }
template <class T> DEVICE T atomic_sum(T *p, T x) {
  host::touch(p, sizeof(T), true);
  T old = *p;
  *p = old + x;
  return old;
}
DEVICE u32 atomic_add(u32 *p, u32 x) { return atomic_sum(p, x); }
DEVICE u64 atomic_add(u64 *p, u64 x) { return atomic_sum(p, x); }
DEVICE u64 atomic_max(u64 *p, u64 x) {
  host::touch(p, sizeof(u64), true);
  u64 old = *p;
  if (x > old) *p = x;
  return old;
}

unsigned short host_f32_to_f16(float f);
float host_f16_to_f32(unsigned short h);
DEVICE float f16_to_f32(unsigned short h) { return host_f16_to_f32(h); }
DEVICE unsigned short f32_to_f16(float f) { return host_f32_to_f16(f); }
DEVICE unsigned f16_pair(float x, float y) { return host_f32_to_f16(x) | (unsigned)host_f32_to_f16(y) << 16; }
DEVICE float fused(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE float exponential(float x) { return expf(x); }
DEVICE float power_of_two(float x) { return exp2f(x); }
DEVICE float reciprocal_root(float x) { return 1 / sqrtf(x); }
DEVICE unsigned high_product(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
