/* nvml.c: NVML for the GPUs of the fake driver. It reports the memory of this process's driver. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, NVML_NOT_FOUND = 6 };

static int fails(void)
{
    char text[16];
    return configured("FAKENVML_FAIL", text, sizeof text) ? atoi(text) : 0;
}

/* FAKENVML_LOSE=AFTER:CODE:FAILS makes the GPUs disappear once, after this many memory queries: every call returns
 * CODE until NVML is initialized again, which fails FAILS times first. */
static int memory_queries, taken, refused;

static int lost_code(void)
{
    char value[32];
    int after, code, failures;
    if (taken == 2 || !configured("FAKENVML_LOSE", value, sizeof value) || sscanf(value, "%d:%d:%d", &after, &code, &failures) != 3)
        return 0;
    if (!taken && memory_queries > after) {
        taken = 1;
        refused = failures;
    }
    return taken ? code : 0;
}

/* Returns the factor for the load and the memory of other processes. With FAKENVML_WAVE=QUERIES it rises from 0 to 1
 * and falls again within so many memory queries; else it is 1. */
static double load_factor(void)
{
    char value[16];
    int period = configured("FAKENVML_WAVE", value, sizeof value) ? atoi(value) : 0;
    if (period < 2)
        return 1;
    double at = (double)(memory_queries % period) / period;
    return at < 0.5 ? 2 * at : 2 - 2 * at;
}

void forget_nvml(void) { memory_queries = taken = refused = 0; }

/* Reports whether FAKENVML_LIES names a value that NVML shall report wrongly: sensors, memory, total (0 bytes),
 * process (all memory in use by this process), nothing (0 bytes in use), count or names. */
static int misreports(const char *what)
{
    char value[16];
    return configured("FAKENVML_LIES", value, sizeof value) && !strcmp(value, what);
}

API int nvmlInit_v2(void)
{
    start();
    block_if_hanging(__func__);
    int failure = fails();
    if (taken == 1 && refused-- > 0)
        failure = 9;
    if (failure)
        return failure;
    if (taken == 1)
        taken = 2;
    stats->nvml++;
    return SUCCESS;
}

API int nvmlShutdown(void)
{
    if (!stats->nvml)
        return UNINITIALIZED;
    stats->nvml--;
    return SUCCESS;
}

API const char *nvmlErrorString(int result) { return result == 9 ? "Driver Not Loaded" : "NVML failed"; }

static int text(char *out, unsigned size, const char *s)
{
    if (strlen(s) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(out, s);
    return SUCCESS;
}

API int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    return text(out, size, genuine ? "580.65.06" : "580.65.06 (simulated driver)");
}
API int nvmlSystemGetNVMLVersion(char *out, unsigned size) { return text(out, size, "13.580.65.06"); }

API int nvmlSystemGetCudaDriverVersion(int *version)
{
    char value[16];
    *version = configured("FAKECUDA_VERSION", value, sizeof value) ? atoi(value) : 13000;
    return SUCCESS;
}

API int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size)
{
    for (int i = 0; i < ngpus; i++)
        for (int j = 0; j < gpus[i].nothers; j++)
            if (gpus[i].others[j].pid == pid)
                return text(out, size, gpus[i].others[j].name);
    return NVML_NOT_FOUND;
}

API int nvmlDeviceGetCount_v2(unsigned *n)
{
    block_if_hanging(__func__);
    for (*n = 0; nth_gpu((int)*n, SLICE) >= 0;)
        ++*n;
    if (misreports("count"))
        *n = 4000000000u;
    return SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned i, gpu **b)
{
    int at = nth_gpu((int)i, SLICE);
    if (at < 0)
        return INVALID_ARGUMENT;
    *b = &gpus[at];
    return SUCCESS;
}

static void uuid_of(const gpu *b, char out[64])
{
    snprintf(out, 64, "%s-fa000000-0000-0000-0000-00000000%02x%02x", b->mig == SLICE ? "MIG" : "GPU", (unsigned)b->id & 0xff,
        (unsigned)(b - gpus));
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, gpu **b)
{
    char its_uuid[64];
    block_if_hanging(__func__);
    for (int i = 0; i < ngpus; i++) {
        uuid_of(&gpus[i], its_uuid);
        if (!strcmp(its_uuid, uuid)) {
            *b = &gpus[i];
            return SUCCESS;
        }
    }
    return NVML_NOT_FOUND;
}

API int nvmlDeviceGetName(const gpu *b, char *out, unsigned size) 
{
    return text(out, size, misreports("names") ? "\x1b[31m\xff" : b->name);
}

API int nvmlDeviceGetUUID(const gpu *b, char *out, unsigned size)
{
    char its_uuid[64];
    uuid_of(b, its_uuid);
    return text(out, size, its_uuid);
}

API int nvmlDeviceGetComputeMode(const gpu *b, int *mode)
{
    *mode = b->mode;
    return SUCCESS;
}

API int nvmlDeviceGetMigMode(const gpu *b, unsigned *now, unsigned *next)
{
    *now = *next = b->mig == SLICED;
    return b->mig == SLICED ? SUCCESS : NOT_SUPPORTED;
}

API int nvmlDeviceGetMaxMigDeviceCount(const gpu *b, unsigned *n)
{
    enum { MOST = 7 };
    *n = b->mig == SLICED ? MOST : 0;
    return SUCCESS;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(const gpu *b, unsigned i, gpu **slice)
{
    const gpu *at = b + 1 + i;
    for (const gpu *before = b + 1; before <= at; before++)
        if (before >= gpus + ngpus || before->mig != SLICE)
            return NVML_NOT_FOUND;
    *slice = &gpus[at - gpus];
    return SUCCESS;
}

typedef struct { unsigned version; unsigned long long total, reserved, available, used; } memory;

/* Returns the memory of a GPU as NVML reports it: 400 MiB more than CUDA programs can use, which are reserved. */
static int query_memory(const gpu *b, memory *m)
{
    enum { RESERVED = 400 };
    if (b->integrated)
        return NOT_SUPPORTED; /* as on GB10 */
    if (b == gpus)
        memory_queries++;
    if (lost_code())
        return lost_code();
    m->total = b->memory + RESERVED * MIB;
    m->reserved = RESERVED * MIB;
    m->used = b->used + (uint64_t)(load_factor() * (double)used_by_others(b));
    if (misreports("memory"))
        m->used = m->total * 3;
    if (misreports("nothing"))
        m->used = 0;
    if (misreports("total"))
        m->total = m->reserved = m->used = 0;
    m->available = b->memory - m->used;
    return SUCCESS;
}

/* With FAKENVML_OLD=1 only the older function exists, which counts reserved memory as used. */
API int nvmlDeviceGetMemoryInfo_v2(const gpu *b, memory *m)
{
    enum { FUNCTION_NOT_FOUND = 13 };
    char old[8];
    block_if_hanging(__func__);
    return configured("FAKENVML_OLD", old, sizeof old) ? FUNCTION_NOT_FOUND : query_memory(b, m);
}

API int nvmlDeviceGetMemoryInfo(const gpu *b, unsigned long long total_free_used[3])
{
    memory m = {0};
    int failure = query_memory(b, &m);
    total_free_used[0] = m.total;
    total_free_used[1] = m.available;
    total_free_used[2] = m.used + m.reserved;
    return failure;
}

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;

API int nvmlDeviceGetComputeRunningProcesses_v3(const gpu *b, unsigned *n, process *out)
{
    block_if_hanging(__func__);
    unsigned room = *n, others = b->unlisted ? 0 : (unsigned)b->nothers, have = others + (b->used > 0);
    *n = have;
    if (have > room)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < others; i++)
        out[i] = (process){b->others[i].pid, (uint64_t)(load_factor() * (double)b->others[i].bytes), ~0u, ~0u};
    if (b->used)
        out[others] = (process){(unsigned)getpid(), misreports("memory") ? 1ull << 60 : misreports("process") ? b->memory : misreports("nothing") ? 0 : b->used, ~0u, ~0u};
    return SUCCESS;
}

API int nvmlDeviceGetGraphicsRunningProcesses_v3(const gpu *b, unsigned *n, process *out)
{
    (void)b, (void)out;
    *n = 0;
    return SUCCESS;
}

API int nvmlDeviceGetUtilizationRates(const gpu *b, unsigned percent[2])
{
    if (b->mig == SLICE)
        return INVALID_ARGUMENT; /* a MIG instance has no value of its own */
    percent[0] = b->nothers ? (unsigned)(99 * load_factor()) : 0;
    if (misreports("sensors"))
        percent[0] = 4000000000u;
    percent[1] = percent[0] / 2;
    return SUCCESS;
}

API int nvmlDeviceGetTemperature(const gpu *b, int sensor, unsigned *celsius)
{
    block_if_hanging(__func__);
    if (b->mig == SLICE)
        return INVALID_ARGUMENT; /* a MIG instance has no value of its own */
    (void)sensor;
    *celsius = misreports("sensors") ? (unsigned)-5 : 40 + (b->nothers ? (unsigned)(30 * load_factor()) : 0);
    return SUCCESS;
}

API int nvmlDeviceGetPowerUsage(const gpu *b, unsigned *milliwatts)
{
    if (b->mig == SLICE)
        return INVALID_ARGUMENT; /* a MIG instance has no value of its own */
    *milliwatts = misreports("sensors") ? ~0u : 30000 + (b->nothers ? (unsigned)(240000 * load_factor()) : 0);
    return SUCCESS;
}

API int nvmlDeviceGetEnforcedPowerLimit(const gpu *b, unsigned *milliwatts)
{
    if (b->mig == SLICE)
        return INVALID_ARGUMENT; /* a MIG instance has no value of its own */
    *milliwatts = 300000;
    return SUCCESS;
}

API int nvmlDeviceGetClockInfo(const gpu *b, int kind, unsigned *mhz)
{
    if (b->mig == SLICE)
        return INVALID_ARGUMENT; /* a MIG instance has no value of its own */
    *mhz = misreports("sensors") ? ~0u : kind == 2 ? 9000 : 1500;
    return SUCCESS;
}

API int nvmlDeviceGetCurrentClocksThrottleReasons(const gpu *b, unsigned long long *reasons)
{
    if (b->mig == SLICE)
        return INVALID_ARGUMENT; /* a MIG instance has no value of its own */
    *reasons = 1; /* idle */
    return SUCCESS;
}
