/* runtime.c: the CUDA runtime: devices, memory, kernels. Kernels do nothing. */
#include "core.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __thread cudaError_t last_error;

static cudaError_t fail(cudaError_t error) { return last_error = error; }

#define DEVICE(n)                              \
    if ((n) < 0 || (n) >= (int)spec.count)     \
    return fail(cudaErrorInvalidDevice)

/* ---- errors and versions -------------------------------------------------------------------- */

API cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

API cudaError_t cudaPeekAtLastError(void) { return last_error; }

static const struct { cudaError_t error; const char *name, *text; } errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported by the simulated GPU"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
};

API const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "cudaErrorUnknown";
}

API const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "unknown error";
}

API cudaError_t cudaDriverGetVersion(int *version)
{
    *version = (int)spec.driver;
    return cudaSuccess;
}

API cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = spec.runtime ? (int)spec.runtime : CUDART_VERSION;
    return cudaSuccess;
}

/* ---- devices -------------------------------------------------------------------------------- */

/* CUDA_VISIBLE_DEVICES only limits how many there are: all are the same board. */
API cudaError_t cudaGetDeviceCount(int *n)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    *n = (int)spec.count;
    if (visible) {
        int listed = *visible && strcmp(visible, "-1") != 0;
        for (const char *p = visible; listed && (p = strchr(p, ',')); p++)
            listed++;
        if (listed < *n)
            *n = listed;
    }
    return *n ? cudaSuccess : fail(cudaErrorNoDevice);
}

API cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

API cudaError_t cudaSetDevice(int device)
{
    DEVICE(device);
    current_device = device;
    open_context(device);
    return cudaSuccess;
}

API cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
API cudaError_t cudaDeviceReset(void) { return cudaSuccess; }

API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    DEVICE(device);
    *p = (struct cudaDeviceProp){
        .totalGlobalMem = spec.memory, .sharedMemPerBlock = 48 << 10, .regsPerBlock = 65536,
        .warpSize = (int)spec.warp, .memPitch = 0x7fffffff, .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64}, .maxGridSize = {0x7fffffff, 65535, 65535}, .totalConstMem = 65536,
        .major = (int)spec.cc_major, .minor = (int)spec.cc_minor, .textureAlignment = 512, .texturePitchAlignment = 32,
        .multiProcessorCount = (int)spec.sms, .unifiedAddressing = 1, .memoryBusWidth = (int)spec.bus_bits,
        .l2CacheSize = (int)spec.l2, .maxThreadsPerMultiProcessor = (int)spec.threads_per_sm,
        .streamPrioritiesSupported = 1, .globalL1CacheSupported = 1, .localL1CacheSupported = 1,
        .sharedMemPerMultiprocessor = spec.shared_per_sm, .regsPerMultiprocessor = 65536, .managedMemory = 1,
        .concurrentKernels = 1, .asyncEngineCount = 2, .concurrentManagedAccess = 1, .cooperativeLaunch = 1,
        .sharedMemPerBlockOptin = spec.shared_per_block, .pciBusID = (int)spec.pci + device, .canMapHostMemory = 1,
        .maxBlocksPerMultiProcessor = spec.threads_per_sm == 2048 ? 32 : 16, .reservedSharedMemPerBlock = 1024,
    };
    snprintf(p->name, sizeof p->name, "%s", spec.name);
    uint64_t id = spec.uuid + (uint64_t)device;
    p->uuid.bytes[0] = (char)0xfa;
    memcpy(p->uuid.bytes + 8, &id, sizeof id);
#if CUDART_VERSION < 13000
    p->clockRate = (int)spec.clock_khz;
    p->memoryClockRate = (int)spec.memory_clock_khz;
#endif
    return cudaSuccess;
}

#if CUDART_VERSION < 13000
#undef cudaGetDeviceProperties
API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    return cudaGetDeviceProperties_v2(p, device);
}
#endif

int device_attribute(int attribute) /* the numbers of CUDA's runtime and driver are the same */
{
    struct cudaDeviceProp p;
    cudaGetDeviceProperties(&p, 0);
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: return p.maxThreadsPerBlock;
    case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: return 0x7fffffff;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 48 << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return (int)spec.shared_per_block;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return (int)spec.shared_per_sm;
    case cudaDevAttrReservedSharedMemoryPerBlock: return 1024;
    case cudaDevAttrTotalConstantMemory: return 65536;
    case cudaDevAttrWarpSize: return (int)spec.warp;
    case cudaDevAttrMaxPitch: return 0x7fffffff;
    case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
    case cudaDevAttrClockRate: return (int)spec.clock_khz;
    case cudaDevAttrMemoryClockRate: return (int)spec.memory_clock_khz;
    case cudaDevAttrGlobalMemoryBusWidth: return (int)spec.bus_bits;
    case cudaDevAttrMultiProcessorCount: return (int)spec.sms;
    case cudaDevAttrL2CacheSize: return (int)spec.l2;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return (int)spec.threads_per_sm;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return p.maxBlocksPerMultiProcessor;
    case cudaDevAttrComputeCapabilityMajor: return (int)spec.cc_major;
    case cudaDevAttrComputeCapabilityMinor: return (int)spec.cc_minor;
    case cudaDevAttrPciBusId: return p.pciBusID;
    case cudaDevAttrTextureAlignment: return 512;
    case cudaDevAttrAsyncEngineCount: return 2;
    case cudaDevAttrUnifiedAddressing: case cudaDevAttrConcurrentKernels: case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrStreamPrioritiesSupported: case cudaDevAttrManagedMemory: case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrCooperativeLaunch: case cudaDevAttrMemoryPoolsSupported: return 1;
    case 102: return 1; /* CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
    default: return 0;
    }
}

API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    DEVICE(device);
    *value = device_attribute((int)attribute);
    return cudaSuccess;
}

API cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device)
{
    DEVICE(device);
    snprintf(id, (size_t)size, "0000:%02x:00.0", (int)spec.pci + device);
    return cudaSuccess;
}

API cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer;
    return cudaSuccess;
}

API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return cudaSuccess;
}

/* ---- memory --------------------------------------------------------------------------------- */

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
    open_context(current_device); /* cudaFree(0) is how programs make one */
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

/* Pinned memory is ordinary memory of the host, found again by cudaPointerGetAttributes. */
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
            pinned *gone = *p;
            *p = gone->next;
            free(gone);
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

API cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind)
{
    (void)kind;
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

/* Variables of kernels have nothing to be in. */
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

/* ---- kernels -------------------------------------------------------------------------------- */

/* The architectures that builds of PyTorch have kernels for: a board runs those of the nearest older one. */
static int compiled_for(void)
{
    static const int built[] = {120, 100, 90, 86, 80, 75, 70, 60, 50};
    int own = (int)(10 * spec.cc_major + spec.cc_minor);
    for (size_t i = 0; i < sizeof built / sizeof *built; i++)
        if (built[i] <= own)
            return built[i];
    return own;
}

API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *function)
{
    (void)function;
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->numRegs = 32;
    a->ptxVersion = a->binaryVersion = compiled_for();
    a->maxDynamicSharedSizeBytes = 48 << 10;
    return cudaSuccess;
}

int blocks_per_sm(int threads, size_t shared)
{
    int n = threads > 0 ? (int)spec.threads_per_sm / threads : 0, most = device_attribute(cudaDevAttrMaxBlocksPerMultiprocessor);
    if (shared && spec.shared_per_sm / shared < (uint64_t)n)
        n = (int)(spec.shared_per_sm / shared);
    return n < most ? n : most;
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *function, int threads, size_t shared)
{
    (void)function;
    *n = blocks_per_sm(threads, shared);
    return cudaSuccess;
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *function, int threads,
                                                                      size_t shared, unsigned flags)
{
    (void)flags;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, function, threads, shared);
}

/* What nvcc's output calls. The launch configuration travels from <<<>>> to the kernel's stub. */
static __thread struct { dim3 grid, threads; size_t shared; void *stream; } configuration;

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 threads, size_t shared, void *stream)
{
    configuration.grid = grid;
    configuration.threads = threads;
    configuration.shared = shared;
    configuration.stream = stream;
    return 0;
}

API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *threads, size_t *shared, void *stream)
{
    *grid = configuration.grid;
    *threads = configuration.threads;
    *shared = configuration.shared;
    *(void **)stream = configuration.stream;
    return cudaSuccess;
}

API cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 threads, void **arguments, size_t shared,
                                 cudaStream_t stream)
{
    (void)function, (void)grid, (void)threads, (void)arguments, (void)shared, (void)stream;
    open_context(current_device);
    return cudaSuccess;
}

API void **__cudaRegisterFatBinary(void *image)
{
    (void)image;
    static void *registered[1];
    return registered;
}

/* The functions that register something answer nothing. */
#define SILENT(name) \
    API void name(void) {}
SILENT(__cudaRegisterFatBinaryEnd)
SILENT(__cudaUnregisterFatBinary)
SILENT(__cudaRegisterFunction)
SILENT(__cudaRegisterVar)

API int __cudaLaunchKernel(void) { return 0; }

API cudaError_t __cudaGetKernel(void **kernel, const void *function)
{
    *kernel = (void *)(uintptr_t)function;
    return cudaSuccess;
}

API cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *symbol)
{
    *function = (cudaFunction_t)(uintptr_t)symbol;
    return cudaSuccess;
}

/* ---- the driver's functions ----------------------------------------------------------------- */

/* A name stands for its newest version. Only this library is searched, whatever else is loaded. */
void *entry_point(const char *name)
{
    static void *self;
    Dl_info here;
    char newer[128];
    if (!self && dladdr((void *)(uintptr_t)entry_point, &here))
        self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    snprintf(newer, sizeof newer, "%s_v2", name);
    void *found = dlsym(self, newer);
    return found ? found : dlsym(self, name);
}

API cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                                 unsigned long long flags, enum cudaDriverEntryPointQueryResult *result)
{
    (void)version, (void)flags;
    *function = entry_point(name);
    if (result)
        *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

#if CUDART_VERSION < 13000
#undef cudaGetDriverEntryPoint
API cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                        enum cudaDriverEntryPointQueryResult *result)
{
    return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, result);
}
#endif
