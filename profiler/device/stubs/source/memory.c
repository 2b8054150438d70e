/* memory.c: allocations and copies of the CUDA runtime. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

API cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    open_context(current_device);
    *free_bytes = available(current_device);
    *total = spec.memory;
    return cudaSuccess;
}

API cudaError_t cudaMalloc(void **at, size_t bytes)
{
    open_context(current_device);
    *at = NULL;
    if (bytes && !(*at = (void *)(uintptr_t)allocate(current_device, bytes)))
        return fail(cudaErrorMemoryAllocation);
    return cudaSuccess;
}

API cudaError_t cudaFree(void *at)
{
    open_context(current_device); /* programs call cudaFree(0) to create a context */
    return !at || deallocate((uintptr_t)at) ? cudaSuccess : fail(cudaErrorInvalidValue);
}

API cudaError_t cudaMallocAsync(void **at, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    return cudaMalloc(at, bytes);
}

API cudaError_t cudaFreeAsync(void *at, cudaStream_t stream)
{
    (void)stream;
    return cudaFree(at);
}

API cudaError_t cudaMallocManaged(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    return cudaMalloc(at, bytes);
}

enum { PAGE = 4096 };

/* Pinned allocations, which are ordinary host memory. cudaPointerGetAttributes searches this list. */
typedef struct pinned { char *at; size_t bytes; struct pinned *next; } pinned;
static pinned *pins;

static void pin(void *at, size_t bytes)
{
    pinned *p = calloc(1, sizeof *p);
    lock();
    *p = (pinned){at, bytes, pins};
    pins = p;
    unlock();
}

static void unpin(const void *at)
{
    lock();
    for (pinned **p = &pins; *p; p = &(*p)->next)
        if ((*p)->at == at) {
            pinned *removed = *p;
            *p = removed->next;
            free(removed);
            break;
        }
    unlock();
}

static int is_pinned(const char *at)
{
    int found = 0;
    lock();
    for (pinned *p = pins; p && !found; p = p->next)
        found = at >= p->at && at < p->at + p->bytes;
    unlock();
    return found;
}

API cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    if (posix_memalign(at, PAGE, bytes ? bytes : 1))
        return fail(cudaErrorMemoryAllocation);
    pin(*at, bytes);
    return cudaSuccess;
}

API cudaError_t cudaMallocHost(void **at, size_t bytes) { return cudaHostAlloc(at, bytes, 0); }

API cudaError_t cudaFreeHost(void *at)
{
    unpin(at);
    free(at);
    return cudaSuccess;
}

API cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags)
{
    (void)flags;
    pin(at, bytes);
    return cudaSuccess;
}

API cudaError_t cudaHostUnregister(void *at)
{
    unpin(at);
    return cudaSuccess;
}

API cudaError_t cudaHostGetDevicePointer(void **at, void *host, unsigned flags)
{
    (void)flags;
    *at = host;
    return cudaSuccess;
}

API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *at)
{
    const block *b = block_of((uintptr_t)at);
    memset(a, 0, sizeof *a);
    if (b) {
        a->type = cudaMemoryTypeDevice;
        a->device = b->device;
        a->devicePointer = (void *)(uintptr_t)at;
    } else {
        a->type = is_pinned(at) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
        a->device = a->type == cudaMemoryTypeHost ? 0 : -2;
        a->devicePointer = a->type == cudaMemoryTypeHost ? (void *)(uintptr_t)at : NULL;
        a->hostPointer = (void *)(uintptr_t)at;
    }
    return cudaSuccess;
}

/* A count that the running operator's kernel would compute. cudaMemcpy to the host returns it to this thread; -1 for
 * none. */
static __thread int64_t told_count = -1;
API void vprof_tell(int64_t number) { told_count = number; }

API cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind)
{
    if (kind == cudaMemcpyDeviceToHost && told_count >= 0 && (n == sizeof(int) || n == sizeof told_count))
        memcpy(to, &told_count, n);
    else
        copy_bytes(to, from, n);
    return cudaSuccess;
}

API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)stream;
    return cudaMemcpy(to, from, n, kind);
}

API cudaError_t cudaMemcpyPeerAsync(void *to, int device, const void *from, int source, size_t n, cudaStream_t stream)
{
    (void)device, (void)source;
    return cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice, stream);
}

API cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                  size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind, (void)stream;
    for (size_t row = 0; row < height; row++)
        copy_bytes((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    return cudaSuccess;
}

API cudaError_t cudaMemset(void *at, int value, size_t n)
{
    fill_bytes(at, value, n);
    return cudaSuccess;
}

API cudaError_t cudaMemsetAsync(void *at, int value, size_t n, cudaStream_t stream)
{
    (void)stream;
    return cudaMemset(at, value, n);
}

/* Variables of kernels have no memory. */
API cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t n, size_t offset, enum cudaMemcpyKind kind)
{
    (void)symbol, (void)from, (void)n, (void)offset, (void)kind;
    return cudaSuccess;
}

#define REFUSED(name, ...) \
    API cudaError_t name(__VA_ARGS__) { return fail(cudaErrorNotSupported); }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
REFUSED(cudaIpcGetMemHandle, cudaIpcMemHandle_t *handle, void *at)
REFUSED(cudaIpcOpenMemHandle, void **at, cudaIpcMemHandle_t handle, unsigned flags)
REFUSED(cudaIpcGetEventHandle, cudaIpcEventHandle_t *handle, cudaEvent_t event)
REFUSED(cudaIpcOpenEventHandle, cudaEvent_t *event, cudaIpcEventHandle_t handle)
#pragma GCC diagnostic pop
