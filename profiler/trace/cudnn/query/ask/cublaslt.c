/* A stub of cuBLASLt that accepts every matrix product without a workspace. cuDNN asks cuBLASLt whether it has a
 * kernel before it proposes matrix-product, Winograd and FFT engines, and the real cuBLASLt requires a GPU. So
 * cuBLASLt's own workspaces are missing from the answers (split products of one sample, or of channels-last
 * tensors). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { block = 256 }; /* size of any descriptor in bytes */

typedef struct {
    uint64_t algo[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} result;

static int make(void **p) { return (*p = calloc(1, block)) == NULL; }
static int drop(void *p) { free(p); return 0; }
static int clear(void *p, size_t n) { memset(p, 0, n); return 0; }
static int get(void *out, size_t n, size_t *written)
{
    memset(out, 0, n);
    if (written)
        *written = n;
    return 0;
}

size_t cublasLtGetVersion(void) { return 130100; }
size_t cublasLtGetCudartVersion(void) { return 13000; }
int cublasLtGetProperty(int type, int *value) { *value = type == 0 ? 13 : type == 1; return 0; }
int cublasLtCreate(void **h) { return make(h); }
int cublasLtDestroy(void *h) { return drop(h); }

int cublasLtMatmulDescCreate(void **d, int compute, int scale) { (void)compute, (void)scale; return make(d); }
int cublasLtMatmulDescDestroy(void *d) { return drop(d); }
int cublasLtMatmulDescInit_internal(void *d, size_t n, int compute, int scale) { (void)compute, (void)scale; return clear(d, n); }
int cublasLtMatmulDescSetAttribute(void) { return 0; }
int cublasLtMatmulDescGetAttribute(void *d, int a, void *out, size_t n, size_t *w) { (void)d, (void)a; return get(out, n, w); }

int cublasLtMatmulPreferenceCreate(void **p) { return make(p); }
int cublasLtMatmulPreferenceDestroy(void *p) { return drop(p); }
int cublasLtMatmulPreferenceInit_internal(void *p, size_t n) { return clear(p, n); }
int cublasLtMatmulPreferenceSetAttribute(void) { return 0; }

int cublasLtMatrixLayoutCreate(void **l, int t, uint64_t r, uint64_t c, int64_t ld) { (void)t, (void)r, (void)c, (void)ld; return make(l); }
int cublasLtMatrixLayoutDestroy(void *l) { return drop(l); }
int cublasLtMatrixLayoutInit_internal(void *l, size_t n, int t, uint64_t r, uint64_t c, int64_t ld) { (void)t, (void)r, (void)c, (void)ld; return clear(l, n); }
int cublasLtMatrixLayoutSetAttribute(void) { return 0; }
int cublasLtMatrixLayoutGetAttribute(void *l, int a, void *out, size_t n, size_t *w) { (void)l, (void)a; return get(out, n, w); }

int cublasLtMatrixTransform(void) { return 0; }
int cublasLtMatrixTransformDescCreate(void **d, int t) { (void)t; return make(d); }
int cublasLtMatrixTransformDescDestroy(void *d) { return drop(d); }
int cublasLtMatrixTransformDescInit_internal(void *d, size_t n, int t) { (void)t; return clear(d, n); }
int cublasLtMatrixTransformDescSetAttribute(void) { return 0; }
int cublasLtMatrixTransformDescGetAttribute(void) { return 0; }

int cublasLtMatmul(void) { return 0; }
int cublasLtMatmulAlgoGetHeuristic(void *h, void *op, void *a, void *b, void *c, void *d, void *p, int n, result *r, int *got)
{
    (void)h, (void)op, (void)a, (void)b, (void)c, (void)d, (void)p;
    memset(r, 0, (size_t)n * sizeof *r);
    r[0].waves = 1;
    *got = 1;
    return 0;
}
