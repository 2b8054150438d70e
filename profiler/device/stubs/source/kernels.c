/* kernels.c: launches of kernels with the CUDA runtime. Kernels do nothing. */
#include "runtime.h"

#include <string.h>

/* Returns the architecture of the kernel that would run: the newest one in PyTorch's builds that is not newer than
 * the GPU. */
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

/* Functions that nvcc's host code calls. <<<>>> stores the launch configuration, and the kernel's host stub
 * retrieves it. */
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

/* Registration functions, which do nothing. */
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
