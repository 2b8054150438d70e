/* core.h: the floor of the stubs: the GPUs, their memory, the log and the questions to vprof.
 *
 * All functions of NVIDIA's libraries that PyTorch imports are in one library, libvprof_gpu.so; under each
 * soname there is an empty one that needs it. A function without a definition of its own is a row of
 * names.inc: it returns 0, writes 0 to its outputs and is logged once. */
#ifndef CORE_H
#define CORE_H

#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define MIB (1024ull * 1024ull)
#define GRANULE (2 * MIB) /* physical memory goes in these */

enum { MAX_GPUS = 16 };

/* The GPU, as the file of VPROF_STUB_GPU describes it: a line is a key, a space and a value. All devices
 * are the same GPU. */
typedef struct {
    char name[96];
    uint64_t memory, context;  /* bytes: what the driver reports, and what a context takes of it */
    uint64_t cc_major, cc_minor, sms, threads_per_sm, warp;
    uint64_t shared_per_block; /* bytes that a block can opt in to */
    uint64_t shared_per_sm, l2, clock_khz, memory_clock_khz, bus_bits;
    uint64_t driver, runtime;  /* versions of CUDA, times 1000 */
    uint64_t cudnn, cublas, nccl; /* versions as the libraries count them */
    uint64_t count;            /* how many devices there are */
    uint64_t rising;           /* whether each range of addresses is above the one before, not below */
    uint64_t uuid, pci;        /* the first device's last eight bytes, and its bus number */
} gpu_spec;
extern gpu_spec spec;

/* Bytes of memory that a device has given out, its context included. */
uint64_t used(int device);
uint64_t available(int device);
void open_context(int device); /* only the first for a device counts */
int has_context(int device);

/* Device memory is reserved addresses of this process, backed lazily: what was never written reads as zeros
 * and takes no memory of the host. Addresses rise and are not used twice, since the caching allocator
 * prefers lower ones and so depends on their order. */
uint64_t reserve(uint64_t bytes);
int charge(int device, uint64_t bytes); /* 0 if the GPU has not that much left */
void discharge(int device, uint64_t bytes);
void set_backing(uint64_t at, uint64_t bytes, int on);
uint64_t allocate(int device, uint64_t bytes); /* 0 if there is not enough */
int deallocate(uint64_t at);                   /* 0 if nothing was allocated there */

typedef struct { uint64_t at, bytes; int device; } block;
const block *block_of(uint64_t address); /* the allocation or mapping that holds an address; NULL */
void add_block(uint64_t at, uint64_t bytes, int device);
int drop_block(uint64_t at, block *dropped);

/* Copies between host and device really happen, as do small ones on the device: counters, flags and
 * what ranks exchange. Larger ones would only move numbers that no kernel computed. */
void copy_bytes(void *to, const void *from, size_t n);
void fill_bytes(void *at, int value, size_t n);

extern __thread int current_device;

/* Milliseconds that slow kernels would have taken, for events: programs take the fastest of several algorithms. */
extern double kernel_time;

void note(const char *format, ...) __attribute__((format(printf, 1, 2))); /* a line of VPROF_STUB_LOG */
void lock(void);
void unlock(void);

/* Asks vprof for a size by a line; 0 where nobody answers. The protocol is in the package's documentation. */
uint64_t ask(const char *question);

#endif
