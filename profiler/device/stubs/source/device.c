/* device.c: errors, versions and devices of the CUDA runtime. */
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __thread cudaError_t last_error;

cudaError_t fail(cudaError_t error) { return last_error = error; }

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

/* CUDA_VISIBLE_DEVICES only changes the number of devices, since all are the same GPU. */
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

int device_attribute(int attribute) /* attributes have the same numbers in the runtime and the driver */
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
