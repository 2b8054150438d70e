// All kernels, in one module.
#include "fill.cu"
#include "elementwise.cu"
#include "copy.cu"
#include "reduce.cu"
#include "gemm.cu"
#include "conv.cu"
