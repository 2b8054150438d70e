/* fake.h: functions and data that the files of the fake driver share.
 * Types of CUDA's and NVML's interfaces are declared by hand in the files that need them. */
#ifndef FAKE_H
#define FAKE_H

#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define MIB (1024ull * 1024ull)
#define GRANULE (2 * MIB) /* granularity of physical memory */

/* CUresult values that the driver returns. */
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    UNSUPPORTED_PTX_VERSION = 222,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
};

/* A GPU as FAKECUDA describes it. A GPU in MIG mode is SLICED; its instances, each a SLICE, follow it. */
enum { MAX_GPUS = 16, MAX_OTHERS = 8 };
enum { WHOLE, SLICE, SLICED };
typedef struct {
    char name[96];
    int major, minor, sms, threads, mode;
    int mhz;          /* highest SM clock */
    int id;           /* index over all machines, from which the UUID is made; 0 for the first */
    int integrated;   /* shares memory with the host */
    int mps;          /* contexts share it through MPS */
    int display;      /* drives a display, so kernels have a time limit */
    int unlisted;     /* NVML lists no other processes, as in a container */
    int unpaged;      /* no virtual memory management */
    int spills;       /* allocations beyond its memory use host memory (WSL2) */
    int mig;          /* WHOLE, SLICE or SLICED; CUDA sees instances instead of a SLICED GPU */
    uint64_t memory;  /* total bytes as the driver reports them */
    uint64_t context; /* bytes of a context */
    uint64_t segment_extra;    /* bytes the driver adds to a segment */
    uint64_t module;  /* bytes of a loaded module */
    struct { unsigned pid; char name[32]; uint64_t bytes; } others[MAX_OTHERS]; /* other processes on the GPU */
    int nothers;
    uint64_t used;    /* bytes in use by this process, with its context */
} gpu;
extern gpu gpus[MAX_GPUS];
extern int ngpus;
int nth_gpu(int n, int other_than); /* index of the nth GPU whose mig differs from other_than; -1 if there is none */
uint64_t used_by_others(const gpu *b);
int charge(gpu *b, uint64_t bytes); /* adds to the bytes in use; 0 if the GPU has too little left */

/* Counts for tests. The file FAKECUDA_STATS is mapped to this structure, so that it is current however the process
 * ends. Stats in Go has the same layout. */
typedef struct {
    uint64_t calls;      /* driver calls, failed ones included */
    uint64_t injected;   /* failures injected by FAKECUDA_FAIL */
    uint64_t violations; /* calls that broke a rule of the interface; the log names them */
    uint64_t used, peak; /* bytes in use by this process on all GPUs */
    uint64_t contexts, segments, ranges, mappings, handles, modules, streams, events; /* live objects */
    uint64_t reclaimed;  /* objects destroyed with their context */
    uint64_t launches, seconds_e9; /* kernel launches; device time in ns */
    uint64_t nvml;       /* calls of nvmlInit minus nvmlShutdown */
} statistics;
extern statistics *stats;

/* Begins every driver function. Counts and logs the call, and holds the lock until the function returns. Returns an
 * injected failure, or an error if what the call needs (initialization, a context) is missing. */
enum needs { NOTHING, DRIVER, CONTEXT };
int enter(const char *name, enum needs needs);
void leave(int *unused);
#define CALL(name, needs)                                  \
    __attribute__((cleanup(leave), unused)) int guard = 0; \
    int entered = enter(#name, needs);                     \
    if (entered)                                           \
    return entered

/* Records that the caller broke a rule; returns result. */
int violation(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));

void start(void);          /* reads the environment on the first call */
extern int current_gpu;  /* GPU of this process's context; -1 if none */
extern int lost;           /* error that destroyed the context; 0 if none */
extern int eager;          /* CUDA_MODULE_LOADING=EAGER: modules allocate memory at load, not at first use */
extern int backed;         /* device memory has host memory behind it and kernels run */
extern int genuine;        /* backed until PROOF launches and a free, like a real GPU under test; launches take 100 ms */
extern int fast;           /* launches of a genuine driver take 10 us */
extern char wrong_kernels[32];      /* kernels whose names begin so write wrong results */
enum { PROOF = 9 };
void note_free(void);        /* called when memory is freed: ends the backed phase of genuine */
int is_backed(void);           /* reports whether memory is backed now */
int configured(const char *name, char *value, size_t size); /* reads an environment variable; 0 if unset */

void end_context(void);     /* destroys all objects of the context */
void reclaim_memory(void);  /* frees the blocks of memory.c */
void reclaim_modules(void); /* unloads the modules of module.c */
void forget_nvml(void);     /* resets NVML's counters */
void block_if_hanging(const char *name); /* blocks if FAKECUDA_HANG names this NVML call */
int in_memory(uint64_t at, uint64_t bytes);

/* Advances the device clock, which moves only with work, so that measured times are the same in every run. */
void advance_clock(uint64_t nanoseconds);

#endif
