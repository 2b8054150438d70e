/* runtime.h: functions that the files of the CUDA runtime and driver share. */
#ifndef RUNTIME_H
#define RUNTIME_H

#include "core.h"

#include <cuda_runtime_api.h>

cudaError_t fail(cudaError_t error);  /* stores the error for cudaGetLastError and returns it */
int device_attribute(int attribute);  /* attributes have the same numbers in the runtime and the driver */
int blocks_per_sm(int threads, size_t shared);

#endif
