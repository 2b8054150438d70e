/* runtime.h: what the files of the CUDA runtime and of the driver know of each other. */
#ifndef RUNTIME_H
#define RUNTIME_H

#include "core.h"

#include <cuda_runtime_api.h>

cudaError_t fail(cudaError_t error);  /* keeps it for cudaGetLastError */
int device_attribute(int attribute);  /* numbers are the same for the runtime and the driver */
int blocks_per_sm(int threads, size_t shared);

#endif
