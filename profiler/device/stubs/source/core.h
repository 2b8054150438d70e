/* core.h: the base of the stub libraries: the GPUs, their memory, the log, and questions to vprof.
 * All functions of NVIDIA's libraries that PyTorch imports are in one library, libvprof_gpu.so. An empty library
 * under each soname depends on it. A function that no file defines is a row of names.inc: it returns 0, writes 0 to
 * its outputs, and its first call is logged. */
#ifndef CORE_H
#define CORE_H

#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define MIB (1024ull * 1024ull)
#define GRANULE (2 * MIB) /* granularity of physical memory */

enum { MAX_GPUS = 16 };

/* The GPU as the file VPROF_STUB_GPU describes it, one "key value" per line. All devices are this GPU. */
typedef struct {
    char name[96];
    uint64_t memory, context;  /* bytes: total as the driver reports it; used by a context */
    uint64_t cc_major, cc_minor, sms, threads_per_sm, warp;
    uint64_t shared_per_block; /* bytes a block may opt in to */
    uint64_t shared_per_sm, l2, clock_khz, memory_clock_khz, bus_bits;
    uint64_t driver, runtime;  /* CUDA versions, times 1000 */
    uint64_t cudnn, cublas, nccl; /* version numbers as the libraries report them */
    uint64_t count;            /* number of devices */
    uint64_t rising;           /* whether addresses of new ranges ascend; else they descend */
    uint64_t uuid, pci;        /* last eight bytes of the first device's UUID; its PCI bus number */
} gpu_spec;
extern gpu_spec spec;

/* Returns the bytes in use on a device, with its context. */
uint64_t used(int device);
uint64_t available(int device);
void open_context(int device); /* later calls for a device have no effect */
int has_context(int device);

/* Reserves a range of this process's addresses as device memory, 0 on failure. Memory is backed lazily: it reads as
 * zeros and takes no host memory until it is written. Addresses ascend or descend (spec.rising) and are never
 * reused, since the caching allocator prefers lower addresses, and its results depend on the order. */
uint64_t reserve(uint64_t bytes);
int charge(int device, uint64_t bytes); /* adds to the bytes in use; 0 if the GPU has too little left */
void discharge(int device, uint64_t bytes);
void set_backing(uint64_t at, uint64_t bytes, int on);
uint64_t allocate(int device, uint64_t bytes); /* returns the address; 0 if memory is exhausted */
int deallocate(uint64_t at);                   /* 0 if no block begins at the address */

typedef struct { uint64_t at, bytes; int device; } block;
const block *block_of(uint64_t address); /* the allocation or mapping that contains an address; NULL if none */
void add_block(uint64_t at, uint64_t bytes, int device);
int drop_block(uint64_t at, block *dropped);

/* Copies bytes. Copies from or to the host are carried out, and copies up to 1 MiB on the device (counters, flags,
 * data of collectives). Larger ones on the device are skipped: no kernel has computed their values. */
void copy_bytes(void *to, const void *from, size_t n);
void fill_bytes(void *at, int value, size_t n);

extern __thread int current_device;

/* Milliseconds added to the time of events for slow algorithms: PyTorch selects the fastest one. */
extern double kernel_time;

void note(const char *format, ...) __attribute__((format(printf, 1, 2))); /* appends a line to VPROF_STUB_LOG */
void lock(void);
void unlock(void);

/* Sends a question to vprof and returns its answer, a size; 0 without an answer. See the package documentation for
 * the protocol. */
uint64_t ask(const char *question);

#endif
