/* driver.c: start-up, devices, the primary context, streams and events. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int initialized;
extern uint64_t context_number;
extern __thread uint64_t my_context;
static int references; /* retains of the primary context */
int eager;

/* Returns the index in gpus of visible device n. CUDA_VISIBLE_DEVICES lists the indices of visible GPUs; all are
 * visible without it. Returns -1 if there is no such device. */
static int visible_gpu(int n)
{
    char list[64], *left = NULL;
    if (n < 0 || !configured("CUDA_VISIBLE_DEVICES", list, sizeof list))
        return nth_gpu(n, SLICED);
    for (char *one = strtok_r(list, ",", &left); one; one = strtok_r(NULL, ",", &left))
        if (!n--)
            return nth_gpu(atoi(one), SLICED);
    return -1;
}

API int cuInit(unsigned flags)
{
    CALL(cuInit, NOTHING);
    if (flags)
        return violation(INVALID_VALUE, "flags %u", flags);
    if (visible_gpu(0) < 0)
        return NO_DEVICE;
    char loading[16];
    eager = configured("CUDA_MODULE_LOADING", loading, sizeof loading) && !strcmp(loading, "EAGER");
    initialized = 1;
    return SUCCESS;
}

API int cuDriverGetVersion(int *version)
{
    char text[16];
    CALL(cuDriverGetVersion, NOTHING);
    *version = configured("FAKECUDA_VERSION", text, sizeof text) ? atoi(text) : 13000;
    return SUCCESS;
}

/* ---- devices -------------------------------------------------------------------------------- */

#define CHECK_GPU(device)                        \
    if ((device) < 0 || (device) >= ngpus) \
    return violation(INVALID_DEVICE, "device %d", device)

API int cuDeviceGetCount(int *n)
{
    CALL(cuDeviceGetCount, DRIVER);
    for (*n = 0; visible_gpu(*n) >= 0;)
        ++*n;
    return SUCCESS;
}

API int cuDeviceGet(int *device, int ordinal)
{
    CALL(cuDeviceGet, DRIVER);
    *device = visible_gpu(ordinal);
    CHECK_GPU(*device);
    return SUCCESS;
}

API int cuDeviceGetName(char *name, int size, int device)
{
    CALL(cuDeviceGetName, DRIVER);
    CHECK_GPU(device);
    snprintf(name, (size_t)size, "%s", gpus[device].name);
    return SUCCESS;
}

API int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    CALL(cuDeviceTotalMem, DRIVER);
    CHECK_GPU(device);
    *bytes = gpus[device].memory;
    return SUCCESS;
}

static void uuid_of(unsigned char *uuid, int device)
{
    memset(uuid, 0, 16);
    uuid[0] = 0xfa;
    uuid[14] = (unsigned char)gpus[device].id;
    uuid[15] = (unsigned char)device;
}

/* This older function does not know MIG instances: it returns the GPU's UUID. */
API int cuDeviceGetUuid(unsigned char *uuid, int device)
{
    CALL(cuDeviceGetUuid, DRIVER);
    CHECK_GPU(device);
    while (device > 0 && gpus[device].mig == SLICE)
        device--;
    uuid_of(uuid, device);
    return SUCCESS;
}

API int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    CALL(cuDeviceGetUuid_v2, DRIVER);
    CHECK_GPU(device);
    uuid_of(uuid, device);
    return SUCCESS;
}

/* attribute is a value of the public enum CUdevice_attribute. */
API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    CALL(cuDeviceGetAttribute, DRIVER);
    CHECK_GPU(device);
    const gpu *b = &gpus[device];
    switch (attribute) {
    case 13: *value = 1000 * b->mhz; break; /* kHz */
    case 16: *value = b->sms; break;
    case 17: *value = b->display; break; /* kernels have a time limit */
    case 18: *value = b->integrated; break;
    case 20: *value = b->mode; break;
    case 39: *value = b->threads; break;
    case 75: *value = b->major; break;
    case 76: *value = b->minor; break;
    case 102: *value = !b->unpaged; break; /* virtual memory management */
    case 133: *value = b->mps; break; /* contexts share the GPU through MPS */
    default: return violation(INVALID_VALUE, "attribute %d", attribute);
    }
    return SUCCESS;
}

/* ---- the primary context -------------------------------------------------------------------- */

static int handle; /* its address is the context's handle */

API int cuDevicePrimaryCtxRetain(void **context, int device)
{
    enum { PROHIBITED = 2, EXCLUSIVE = 3 };
    CALL(cuDevicePrimaryCtxRetain, DRIVER);
    CHECK_GPU(device);
    gpu *b = &gpus[device];
    if (b->mode == PROHIBITED || (b->mode == EXCLUSIVE && b->nothers))
        return DEVICE_UNAVAILABLE;
    if (current_gpu >= 0 && current_gpu != device)
        return violation(INVALID_DEVICE, "a context on a second GPU");
    if (!references) {
        if (!charge(b, b->context))
            return OUT_OF_MEMORY;
        stats->contexts++;
    }
    if (!references++)
        context_number++;
    current_gpu = device;
    *context = &handle;
    return SUCCESS;
}

static void reclaim_queue(void);

void end_context(void)
{
    reclaim_memory();
    reclaim_modules();
    reclaim_queue();
    gpus[current_gpu].used -= gpus[current_gpu].context;
    stats->used -= gpus[current_gpu].context;
    stats->contexts--;
    references = 0;
    context_number++;
    current_gpu = -1;
    lost = 0;
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
    CALL(cuDevicePrimaryCtxRelease, DRIVER);
    CHECK_GPU(device);
    if (!references)
        return violation(INVALID_CONTEXT, "released once too often");
    if (references == 1)
        end_context();
    else
        references--;
    return SUCCESS;
}

API int cuCtxSetCurrent(void *context)
{
    CALL(cuCtxSetCurrent, DRIVER);
    if (context && (context != &handle || !references))
        return violation(INVALID_CONTEXT, "no such context");
    my_context = context ? context_number : 0;
    return SUCCESS;
}

/* ---- streams and events --------------------------------------------------------------------- */

enum { STREAM = 0x57, EVENT = 0xe7, DEAD = 0xdd };
typedef struct thing {
    int kind, recorded;
    uint64_t at;
    struct thing *next;
} thing;
static thing *things; /* every stream and event ever created, to detect stale handles */

static thing *make(int kind)
{
    thing *t = calloc(1, sizeof *t);
    t->kind = kind;
    t->next = things;
    things = t;
    return t;
}

static int is(const thing *t, int kind) { return t && t->kind == kind; }

static void reclaim_queue(void)
{
    for (thing *t = things; t; t = t->next) {
        if (t->kind != DEAD)
            stats->reclaimed++;
        t->kind = DEAD;
    }
    stats->streams = stats->events = 0;
}

#define STREAM_OR_RETURN(s)     \
    if ((s) && !is(s, STREAM))  \
    return violation(INVALID_HANDLE, "not a stream")
#define EVENT_OR_RETURN(e) \
    if (!is(e, EVENT))     \
    return violation(INVALID_HANDLE, "not an event")

API int cuStreamCreate(thing **stream, unsigned flags)
{
    CALL(cuStreamCreate, CONTEXT);
    (void)flags;
    *stream = make(STREAM);
    stats->streams++;
    return SUCCESS;
}

API int cuStreamDestroy_v2(thing *stream)
{
    CALL(cuStreamDestroy, CONTEXT);
    if (!is(stream, STREAM))
        return violation(INVALID_HANDLE, "not a stream");
    stream->kind = DEAD;
    stats->streams--;
    return SUCCESS;
}

API int cuStreamSynchronize(thing *stream)
{
    CALL(cuStreamSynchronize, CONTEXT);
    STREAM_OR_RETURN(stream);
    return SUCCESS;
}

API int cuEventCreate(thing **event, unsigned flags)
{
    CALL(cuEventCreate, CONTEXT);
    (void)flags;
    *event = make(EVENT);
    stats->events++;
    return SUCCESS;
}

API int cuEventDestroy_v2(thing *event)
{
    CALL(cuEventDestroy, CONTEXT);
    EVENT_OR_RETURN(event);
    event->kind = DEAD;
    stats->events--;
    return SUCCESS;
}

API int cuEventRecord(thing *event, thing *stream)
{
    CALL(cuEventRecord, CONTEXT);
    EVENT_OR_RETURN(event);
    STREAM_OR_RETURN(stream);
    event->recorded = 1;
    event->at = stats->seconds_e9;
    return SUCCESS;
}

API int cuEventSynchronize(thing *event)
{
    CALL(cuEventSynchronize, CONTEXT);
    EVENT_OR_RETURN(event);
    return SUCCESS;
}

API int cuEventElapsedTime(float *ms, thing *from, thing *to)
{
    CALL(cuEventElapsedTime, CONTEXT);
    EVENT_OR_RETURN(from);
    EVENT_OR_RETURN(to);
    if (!from->recorded || !to->recorded)
        return violation(INVALID_HANDLE, "an event was not recorded");
    *ms = (float)((double)(int64_t)(to->at - from->at) / 1e6);
    return SUCCESS;
}
