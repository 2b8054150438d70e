/* blas.c: functions of cuBLAS and cuBLASLt that must return more than zeros. */
#include "core.h"

#include <string.h>

/* cublasLtMatmulHeuristicResult_t; the stub reports one algorithm without a workspace. */
typedef struct { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; } heuristic;

API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d,
                                       void *preference, int wanted, heuristic *results, int *found)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    *found = wanted > 0;
    if (wanted > 0)
        memset(results, 0, sizeof *results);
    return 0;
}

API size_t cublasLtGetVersion(void) { return spec.cublas ? spec.cublas : spec.driver / 1000 * 10000; }

API int cublasGetVersion_v2(void *handle, int *version)
{
    (void)handle;
    *version = (int)cublasLtGetVersion();
    return 0;
}

API const char *cublasGetStatusName(int status) { return status ? "CUBLAS_STATUS" : "CUBLAS_STATUS_SUCCESS"; }
API const char *cublasGetStatusString(int status) { return status ? "error of the simulated GPU" : "success"; }
