//go:build cgo && linux

// Emulates the GPU for kernels that run on a CPU in tests; see host.h.
#undef _FORTIFY_SOURCE // it would report a switch to another fiber as an error
#include "host.h"
#include "run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <vector>

Dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace {

enum State { READY, AT_WARP, AT_BLOCK, DONE };

struct Copy {
  void *to;
  const void *from;
  int bytes, group;
};

struct Fiber {
  ucontext_t start;
  jmp_buf at;
  bool begun = false;
  State state = DONE;
  std::vector<Copy> copies;
  int group = 0;
  Fiber() {}
  Fiber(const Fiber &) {}
};

const size_t stack_bytes = 256 << 10;
const size_t guard_bytes = 256;
const unsigned char guard = 0xA5, poison = 0xFF; // poison is NaN in every type

// Linked lists instead of vectors: static constructors add to them.
host::Kernel *kernels;
host::Module *modules;
std::vector<host_range *> ranges;
host_range *last_range;
std::vector<Fiber> fibers;
std::vector<std::vector<unsigned char>> stacks;
std::vector<unsigned char> shared;
struct Slots {
  unsigned words[2][32][16];
};
std::vector<Slots> slots;
std::vector<int> turn; // which half of its warp's slots a thread uses next
jmp_buf scheduler;
ucontext_t home;
int current;
bool checked, failed;
char message[512];
host::Entry entry;
const void *arguments;

void fail(const char *format, ...) {
  if (failed) return;
  failed = true;
  int n = snprintf(message, sizeof message, "block (%u,%u,%u) thread %u: ", blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x);
  va_list args;
  va_start(args, format);
  vsnprintf(message + n, sizeof message - n, format, args);
  va_end(args);
}

// leave returns to the scheduler, which resumes the thread later, or never if the launch has failed.
void leave(State s) {
  Fiber &f = fibers[current];
  f.state = s;
  if (_setjmp(f.at) == 0) _longjmp(scheduler, 1);
}

void life() {
  for (;;) {
    entry(arguments);
    host::wait_groups(0);
    leave(DONE);
  }
}

void resume(int t) {
  current = t;
  threadIdx.x = t;
  if (_setjmp(scheduler)) return;
  Fiber &f = fibers[t];
  if (f.begun) _longjmp(f.at, 1);
  f.begun = true;
  getcontext(&f.start);
  f.start.uc_stack.ss_sp = stacks[t].data();
  f.start.uc_stack.ss_size = stack_bytes;
  f.start.uc_link = &home;
  makecontext(&f.start, life, 0);
  setcontext(&f.start);
}

// run_warp runs the lanes of a warp until all of them wait for the block or have finished.
void run_warp(int w, bool backward) {
  for (;;) {
    int waiting = 0, done = 0;
    for (int i = 0; i < 32; i++) {
      int t = 32 * w + (backward ? 31 - i : i);
      if (fibers[t].state == READY) resume(t);
      if (failed) return;
      waiting += fibers[t].state == AT_WARP;
      done += fibers[t].state == DONE;
    }
    if (waiting == 0) return;
    if (waiting < 32) return fail("%d lanes of warp %d wait for the others, %d of which are done", waiting, w, done);
    for (int t = 32 * w; t < 32 * w + 32; t++) fibers[t].state = READY;
  }
}

void run_block(int threads, size_t bytes, bool backward) {
  shared.assign(bytes + guard_bytes + 128, guard);
  memset(host::shared_memory(), poison, bytes);
  for (int t = 0; t < threads; t++) {
    fibers[t].state = READY;
    fibers[t].copies.clear();
    fibers[t].group = 0;
    turn[t] = 0;
  }
  for (;;) {
    for (int i = 0; i < threads / 32; i++) {
      run_warp(backward ? threads / 32 - 1 - i : i, backward);
      if (failed) return;
    }
    int done = 0;
    for (int t = 0; t < threads; t++) done += fibers[t].state == DONE;
    if (done == threads) break;
    if (done > 0) return fail("%d of %d threads are done while the others wait at a barrier", done, threads);
    for (int t = 0; t < threads; t++) fibers[t].state = READY;
  }
  for (size_t i = 0; i < guard_bytes; i++)
    if ((unsigned char)host::shared_memory()[bytes + i] != guard) return fail("wrote past %zu bytes of shared memory", bytes);
}

host::Kernel *find(int arch, const char *name) {
  for (host::Kernel *k = kernels; k; k = k->next)
    if (k->arch == arch && strcmp(k->name, name) == 0) return k;
  return nullptr;
}

} // namespace

namespace host {

Kernel::Kernel(const char *name, int arch, size_t args, int threads, Entry entry)
    : name(name), arch(arch), args(args), threads(threads), entry(entry), next(kernels) {
  kernels = this;
}

Module::Module(void *p, size_t bytes) : data((const char *)p), bytes(bytes), next(modules) { modules = this; }

char *shared_memory() { return (char *)(((size_t)shared.data() + 127) & ~(size_t)127); }

void block_barrier() { leave(AT_BLOCK); }

const unsigned (*exchange(const unsigned *words, int n))[16] {
  Slots &s = slots[current / 32];
  // Two halves are used in turn: a fast lane must not overwrite words that a slow lane has not read. No lane can be two
  // exchanges ahead.
  unsigned(*mine)[16] = s.words[turn[current]];
  turn[current] ^= 1;
  memcpy(mine[current & 31], words, 4 * n);
  leave(AT_WARP);
  return mine;
}

void copy_later(void *to, const void *p, int bytes) {
  if ((size_t)to % 16) fail("asynchronous copy to shared memory at an odd place");
  fibers[current].copies.push_back(Copy{to, p, bytes, fibers[current].group});
}

void close_group() { fibers[current].group++; }

void wait_groups(int pending) {
  Fiber &f = fibers[current];
  size_t kept = 0;
  for (size_t i = 0; i < f.copies.size(); i++) {
    Copy c = f.copies[i];
    if (c.group >= f.group - pending) {
      f.copies[kept++] = c;
      continue;
    }
    if (c.bytes > 0) touch(c.from, c.bytes, false);
    memcpy(c.to, c.from, c.bytes);
    memset((char *)c.to + c.bytes, 0, 16 - c.bytes);
  }
  f.copies.resize(kept);
}

void touch(const void *p, size_t bytes, bool write) {
  if (!checked) return;
  const char *at = (const char *)p;
  auto inside = [&](const auto &r) { return at >= r.data && at + bytes <= r.data + r.bytes; };
  if ((size_t)at % bytes && (bytes & (bytes - 1)) == 0 && bytes <= 16) fail("%zu bytes at an address that is no multiple of it", bytes);
  if (!last_range || !inside(*last_range)) {
    last_range = nullptr;
    for (host_range *r : ranges)
      if (inside(*r)) last_range = r;
    if (!last_range) {
      for (Module *m = modules; m; m = m->next)
        if (inside(*m)) return;
      fail("%s of %zu bytes at %p, which is outside of all memory", write ? "write" : "read", bytes, p);
      leave(DONE); // does not return
    }
  }
  if (!last_range->marks) return;
  unsigned char *marks = last_range->marks + (at - last_range->data);
  for (size_t i = 0; i < bytes; i++) {
    unsigned char &m = marks[i];
    unsigned one = write ? 16 : 1, field = write ? m >> 4 : m & 15;
    if (field < 15) m += one;
  }
}

} // namespace host

unsigned short host_f32_to_f16(float f) {
  unsigned b = f32_bits(f), sign = b >> 16 & 0x8000;
  b &= 0x7fffffff;
  if (b > 0x7f800000) return sign | 0x7fff;
  if (b >= 0x477ff000) return sign | 0x7c00; // rounds up to infinity
  if (b < 0x38800000) { // subnormal: the addition rounds
    float g = bits_f32(b) + bits_f32(0x3f000000);
    return sign | (f32_bits(g) - 0x3f000000);
  }
  b += 0xfff + (b >> 13 & 1);
  return sign | (b - 0x38000000) >> 13;
}

float host_f16_to_f32(unsigned short h) {
  unsigned sign = (unsigned)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
  if (e == 31) return bits_f32(sign | 0x7f800000 | m << 13);
  if (e == 0) return bits_f32(sign | f32_bits(ldexpf(m, -24)));
  return bits_f32(sign | (e + 112) << 23 | m << 13);
}

extern "C" void host_register(host_range *r) { ranges.push_back(r); }

extern "C" void host_forget(host_range *r) {
  for (size_t i = 0; i < ranges.size(); i++)
    if (ranges[i] == r) ranges.erase(ranges.begin() + i--);
  last_range = nullptr;
}

extern "C" int host_arguments(int arch, const char *name) {
  host::Kernel *k = find(arch, name);
  return k ? (int)k->args : -1;
}

extern "C" const char *host_launch(int arch, const char *name, const unsigned *grid, const unsigned *block, unsigned bytes,
                                   const void *args, unsigned long long first, int flags) {
  host::Kernel *k = find(arch, name);
  failed = false;
  if (!k) return "no such kernel";
  int threads = block[0];
  if (block[1] != 1 || block[2] != 1 || threads % 32 || threads < 32 || threads > k->threads) return "a block of a shape that the kernel was not made for";
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[1] > 65535 || grid[2] > 65535 || grid[0] > 0x7fffffff) return "a grid that no device takes";
  if ((int)fibers.size() < threads) {
    fibers.resize(threads);
    stacks.resize(threads);
    for (auto &s : stacks) s.resize(stack_bytes);
    for (auto &f : fibers) f.begun = false;
    slots.resize((threads + 31) / 32);
    turn.resize(threads);
  }
  entry = k->entry;
  arguments = args;
  checked = flags & HOST_CHECKED;
  bool backward = flags & HOST_BACKWARD;
  blockDim = Dim3{(unsigned)threads, 1, 1};
  gridDim = Dim3{grid[0], grid[1], grid[2]};
  threadIdx = Dim3{0, 0, 0};
  u64 blocks = (u64)grid[0] * grid[1] * grid[2];
  for (u64 i = first; i < blocks && !failed; i++) {
    u64 b = backward ? blocks - 1 - (i - first) : i;
    blockIdx = Dim3{(unsigned)(b % grid[0]), (unsigned)(b / grid[0] % grid[1]), (unsigned)(b / grid[0] / grid[1])};
    run_block(threads, bytes, backward);
  }
  if (!failed) return nullptr;
  for (auto &f : fibers) f.begun = false; // abandons fibers of an earlier launch
  return message;
}
