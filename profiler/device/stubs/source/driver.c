/* driver.c: functions of the CUDA driver that PyTorch and Triton call, besides the runtime. */
#include "runtime.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int context_handle;

API CUresult cuInit(unsigned flags) { return (void)flags, CUDA_SUCCESS; }

API CUresult cuDriverGetVersion(int *version)
{
    *version = (int)spec.driver;
    return CUDA_SUCCESS;
}

/* NVIDIA's libraries request undocumented tables with this function. */
API CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    (void)id;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

/* Returns the newest version of a driver function. Only this library is searched, not others that are loaded. */
static void *entry_point(const char *name)
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

#undef cuGetProcAddress
API CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *result)
{
    (void)version, (void)flags;
    *function = entry_point(name);
    if (result)
        *result = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
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

API CUresult cuGetErrorString(CUresult error, const char **text)
{
    *text = error == CUDA_SUCCESS ? "no error" : error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "error of the simulated GPU";
    return CUDA_SUCCESS;
}

API CUresult cuGetErrorName(CUresult error, const char **name) { return cuGetErrorString(error, name); }

API CUresult cuDeviceGetCount(int *n)
{
    *n = (int)spec.count;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal >= 0 && ordinal < (int)spec.count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

API CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    (void)device;
    strncpy(name, spec.name, (size_t)size - 1);
    name[size - 1] = 0;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = spec.memory;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    *value = device_attribute((int)attribute);
    return CUDA_SUCCESS;
}

/* ---- contexts ------------------------------------------------------------------------------- */

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = has_context(device);
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    open_context(device);
    *context = (CUcontext)&context_handle;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *context) { return cuDevicePrimaryCtxRetain(context, current_device); }
API CUresult cuCtxSetCurrent(CUcontext context) { return (void)context, CUDA_SUCCESS; }

API CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = current_device;
    return CUDA_SUCCESS;
}

/* ---- memory, also virtual memory management -------------------------------------------------- */

typedef struct { uint64_t bytes; int device, references; } handle;

static void release_reference(handle *h)
{
    if (--h->references)
        return;
    discharge(h->device, h->bytes);
    free(h);
}

/* A mapped handle, by address, for cuMemUnmap. */
typedef struct mapping { CUdeviceptr at; handle *of; struct mapping *next; } mapping;
static mapping *mappings;

API CUresult cuMemAddressReserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
    (void)alignment, (void)hint, (void)flags;
    *at = reserve(bytes);
    return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) { return (void)at, (void)bytes, CUDA_SUCCESS; }

API CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags option)
{
    (void)p, (void)option;
    *bytes = GRANULE;
    return CUDA_SUCCESS;
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *p, unsigned long long flags)
{
    (void)flags;
    if (p->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC)
        return CUDA_ERROR_NOT_SUPPORTED;
    open_context(p->location.id);
    if (!charge(p->location.id, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    handle *h = calloc(1, sizeof *h);
    *h = (handle){bytes, p->location.id, 1};
    *out = (uintptr_t)h;
    return CUDA_SUCCESS;
}

API CUresult cuMemRelease(CUmemGenericAllocationHandle h)
{
    lock();
    release_reference((handle *)(uintptr_t)h);
    unlock();
    return CUDA_SUCCESS;
}

API CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags)
{
    (void)offset, (void)flags;
    handle *of = (handle *)(uintptr_t)h;
    mapping *m = calloc(1, sizeof *m);
    lock();
    of->references++;
    *m = (mapping){at, of, mappings};
    mappings = m;
    set_backing(at, bytes, 1);
    add_block(at, bytes, of->device);
    unlock();
    return CUDA_SUCCESS;
}

API CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *a, size_t n)
{
    (void)at, (void)bytes, (void)a, (void)n;
    return CUDA_SUCCESS;
}

static void unmap(mapping **p)
{
    mapping *m = *p;
    block gone;
    if (drop_block(m->at, &gone))
        set_backing(gone.at, gone.bytes, 0);
    release_reference(m->of);
    *p = m->next;
    free(m);
}

API CUresult cuMemUnmap(CUdeviceptr at, size_t bytes)
{
    lock();
    for (mapping **p = &mappings; *p;)
        if ((*p)->at >= at && (*p)->at < at + bytes)
            unmap(p);
        else
            p = &(*p)->next;
    unlock();
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr at)
{
    const block *b = block_of(at);
    if (!b)
        return CUDA_ERROR_INVALID_VALUE;
    if (base)
        *base = b->at;
    if (bytes)
        *bytes = b->bytes;
    return CUDA_SUCCESS;
}

API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType type, unsigned long long flags)
{
    (void)out, (void)h, (void)type, (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}

API CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr at)
{
    const block *b = block_of(at);
    if (!b)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(int *)value = CU_MEMORYTYPE_DEVICE; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = b->device; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)value = at; break;
    default: *(int *)value = 0;
    }
    return CUDA_SUCCESS;
}

/* Multicast objects connect GPUs; there are none to connect. */
API CUresult cuMulticastCreate(CUmemGenericAllocationHandle *h, const CUmulticastObjectProp *p)
{
    (void)h, (void)p;
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- modules -------------------------------------------------------------------------------- */

API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    (void)image;
    *module = malloc(1);
    return CUDA_SUCCESS;
}

API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, CUjit_option *options, void **values)
{
    (void)n, (void)options, (void)values;
    return cuModuleLoadData(module, image);
}

API CUresult cuModuleLoad(CUmodule *module, const char *path) { return cuModuleLoadData(module, path); }

API CUresult cuModuleUnload(CUmodule module)
{
    free(module);
    return CUDA_SUCCESS;
}

/* A function handle is its module's: kernels do nothing. */
API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)name;
    *function = (CUfunction)module;
    return CUDA_SUCCESS;
}

API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    (void)function;
    *value = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction function, int threads, size_t shared)
{
    (void)function;
    *n = blocks_per_sm(threads, shared);
    return CUDA_SUCCESS;
}
