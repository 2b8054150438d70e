/* fake.h: what the parts of the fake driver know of each other.
 *
 * The types of CUDA's and NVML's interfaces are written out by hand where they are needed. */
#ifndef FAKE_H
#define FAKE_H

#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define MIB (1024ull * 1024ull)
#define GRANULE (2 * MIB) /* physical memory goes in these */

/* The results that the fake gives of its own accord. */
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

/* A GPU, as FAKECUDA describes it. */
enum { MAX_GPUS = 16, MAX_OTHERS = 8 };
enum { WHOLE, SLICE, SLICED };
typedef struct {
    char name[96];
    int major, minor, sms, threads, mode;
    int mhz;          /* the highest clock of its multiprocessors                 */
    int id;           /* a number that no GPU of another machine has; zero is the first's */
    int integrated;   /* its memory is the host's                                 */
    int mps;          /* contexts share it through the Multi-Process Service      */
    int display;      /* it drives one, so kernels have a time limit             */
    int unlisted;     /* NVML lists no other processes, as in a container         */
    int unpaged;      /* it cannot map page by page                               */
    int spills;       /* allocations go on in host memory once the GPU is full  */
    int mig;          /* SLICED: cut into the SLICEs that follow it, which CUDA sees in its place */
    uint64_t memory;  /* what the driver reports as total                         */
    uint64_t context; /* what a context takes                                     */
    uint64_t adds;    /* what the driver adds to a segment                        */
    uint64_t module;  /* what loading a module takes                              */
    struct { unsigned pid; char name[32]; uint64_t bytes; } others[MAX_OTHERS]; /* other processes */
    int nothers;
    uint64_t used;    /* physical memory that this process holds, context included */
} gpu;
extern gpu gpus[MAX_GPUS];
extern int ngpus;
int nth_gpu(int n, int other_than); /* the index of the nth GPU that is not SLICE or not SLICED; -1 */
uint64_t used_by_others(const gpu *b);
int charge(gpu *b, uint64_t bytes); /* 0 if there is not enough */

/* What tests read, through the file that FAKECUDA_STATS names: it is mapped, so that it is up to date
 * however the process ends. The Go side has the same structure. */
typedef struct {
    uint64_t calls;      /* of the driver, failed ones included              */
    uint64_t injected;   /* failures that FAKECUDA_FAIL asked for            */
    uint64_t violations; /* of the interface's rules; the log has the call   */
    uint64_t used, peak; /* bytes of all GPUs that this process holds      */
    uint64_t contexts, segments, ranges, mappings, handles, modules, streams, events; /* alive now */
    uint64_t reclaimed;  /* things that a context took with it when it ended */
    uint64_t launches, seconds_e9; /* device time in nanoseconds             */
    uint64_t nvml;       /* nvmlInit without its nvmlShutdown                */
} statistics;
extern statistics *stats;

/* Every entry point begins with CALL: the call is counted and logged, fails if it is told to or if what
 * it needs is not there, and holds the lock until it returns. */
enum needs { NOTHING, DRIVER, CONTEXT };
int enter(const char *name, enum needs needs);
void leave(int *unused);
#define CALL(name, needs)                                  \
    __attribute__((cleanup(leave), unused)) int guard = 0; \
    int entered = enter(#name, needs);                     \
    if (entered)                                           \
    return entered

/* violation notes that the caller broke a rule, and returns the result to answer with. */
int violation(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));

void start(void);          /* reads the environment, once                          */
extern int current_gpu;  /* of the context of this process; -1 without           */
extern int lost;           /* the failure that took the context; 0 while it works  */
extern int eager;          /* modules take their memory when they are loaded, not when they are used: so
                              said CUDA_MODULE_LOADING to cuInit                         */
extern int backed;         /* device memory is host memory, and kernels run        */
extern int genuine;        /* so it is until a context has had PROOF launches: enough to pass for a GPU */
extern int fast;           /* launches take 10 us even so                           */
extern char sick[32];      /* kernels whose names begin so come out wrong          */
enum { PROOF = 9 };
void believe(void);        /* memory was freed                                   */
int backs(void);           /* whether memory is there now                          */
int configured(const char *name, char *value, size_t size); /* an environment variable */

void end_context(void);     /* releases everything  */
void reclaim_memory(void);  /* what memory.c holds */
void reclaim_modules(void); /* what module.c holds */
void forget_nvml(void);     /* what happened to it */
void stall(const char *name); /* does not return if the call of NVML is the one that hangs */
int in_memory(uint64_t at, uint64_t bytes);

/* The device's clock only moves with work, so that times are the same on every run. */
void spend(uint64_t nanoseconds);

#endif
