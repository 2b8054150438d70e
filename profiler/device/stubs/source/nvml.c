/* nvml.c: functions of NVML that PyTorch calls, mostly for the text of out-of-memory errors. */
#include "core.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

/* nvmlProcessInfo_t and nvmlMemory_t. */
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;
typedef struct { unsigned long long total, free, used; } memory;

/* A device handle is the device's index plus one. */
static int number(const void *device) { return (int)(uintptr_t)device - 1; }

API int nvmlInit_v2(void) { return SUCCESS; }
API int nvmlInit(void) { return SUCCESS; }
API int nvmlInitWithFlags(unsigned flags) { return (void)flags, SUCCESS; }
API int nvmlShutdown(void) { return SUCCESS; }
API const char *nvmlErrorString(int error) { return error ? "not supported by the simulated GPU" : "Success"; }

API int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = (int)spec.driver;
    return SUCCESS;
}

API int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    snprintf(version, size, "580.00");
    return SUCCESS;
}

API int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = (unsigned)spec.count;
    return SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)(uintptr_t)(index + 1);
    return index < spec.count ? SUCCESS : INVALID_ARGUMENT;
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device)
{
    unsigned domain, bus;
    if (sscanf(id, "%x:%x:", &domain, &bus) != 2)
        return INVALID_ARGUMENT;
    return nvmlDeviceGetHandleByIndex_v2(bus - (unsigned)spec.pci, device);
}

API int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    (void)device;
    snprintf(name, size, "%s", spec.name);
    return SUCCESS;
}

API int nvmlDeviceGetMemoryInfo(void *device, memory *m)
{
    int n = number(device);
    *m = (memory){spec.memory, available(n), used(n)};
    return SUCCESS;
}

static int processes(void *device, unsigned *n, process *list)
{
    int present = has_context(number(device));
    if ((int)*n < present)
        return *n = (unsigned)present, INSUFFICIENT_SIZE;
    if (present && list)
        *list = (process){(unsigned)getpid(), used(number(device)), ~0u, ~0u};
    *n = (unsigned)present;
    return SUCCESS;
}

API int nvmlDeviceGetComputeRunningProcesses(void *d, unsigned *n, process *list) { return processes(d, n, list); }
API int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, process *list) { return processes(d, n, list); }
API int nvmlDeviceGetGpuFabricInfoV(void *device, void *info) { return (void)device, (void)info, NOT_SUPPORTED; }
API int nvmlDeviceGetNvLinkRemoteDeviceType(void *d, unsigned link, int *type) { return (void)d, (void)link, (void)type, NOT_SUPPORTED; }
API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *d, unsigned link, void *pci) { return (void)d, (void)link, (void)pci, NOT_SUPPORTED; }
