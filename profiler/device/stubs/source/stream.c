/* stream.c: streams, events and graphs of the CUDA runtime. Work is complete as soon as it is queued. */
#include "core.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A stream created by the program. The default streams are NULL, 1 and 2; they cannot be captured. */
typedef struct stream {
    int priority, device;
    unsigned long long capture; /* number of the graph being captured; 0 if none */
    struct stream *next;
} stream;

typedef struct { double ms; unsigned long long capture; } event;
typedef struct { unsigned long long number; } graph;

static stream *streams;
static unsigned long long captures;
static graph *capturing;

static stream *created_stream(cudaStream_t s) { return (uintptr_t)s > 2 ? (stream *)s : NULL; }

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6 + kernel_time;
}

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority)
{
    (void)flags;
    stream *made = calloc(1, sizeof *made);
    open_context(current_device);
    lock();
    *made = (stream){priority, current_device, 0, streams};
    streams = made;
    unlock();
    *s = (cudaStream_t)made;
    return cudaSuccess;
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { return cudaStreamCreateWithPriority(s, flags, 0); }
API cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithPriority(s, 0, 0); }

API cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    lock();
    for (stream **p = &streams; *p; p = &(*p)->next)
        if (*p == created_stream(s)) {
            stream *removed = *p;
            *p = removed->next;
            free(removed);
            break;
        }
    unlock();
    return cudaSuccess;
}

API cudaError_t cudaStreamGetPriority(cudaStream_t s, int *priority)
{
    *priority = created_stream(s) ? created_stream(s)->priority : 0;
    return cudaSuccess;
}

API cudaError_t cudaStreamGetDevice(cudaStream_t s, int *device)
{
    *device = created_stream(s) ? created_stream(s)->device : current_device;
    return cudaSuccess;
}

API cudaError_t cudaStreamSynchronize(cudaStream_t s) { return (void)s, cudaSuccess; }
API cudaError_t cudaStreamQuery(cudaStream_t s) { return (void)s, cudaSuccess; }

/* Waiting for an event of a captured stream adds the stream to that capture. */
API cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    (void)flags;
    if (created_stream(s) && e && ((event *)e)->capture)
        created_stream(s)->capture = ((event *)e)->capture;
    return cudaSuccess;
}

API cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *data)
{
    if (!created_stream(s) || !created_stream(s)->capture)
        f(data);
    return cudaSuccess;
}

API cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void *data, unsigned flags)
{
    (void)flags;
    f(s, cudaSuccess, data);
    return cudaSuccess;
}

/* ---- events --------------------------------------------------------------------------------- */

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    (void)flags;
    *e = calloc(1, sizeof(event));
    return cudaSuccess;
}

API cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }

API cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    free(e);
    return cudaSuccess;
}

API cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    *(event *)e = (event){now(), created_stream(s) ? created_stream(s)->capture : 0};
    return cudaSuccess;
}

API cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags)
{
    (void)flags;
    return cudaEventRecord(e, s);
}

API cudaError_t cudaEventQuery(cudaEvent_t e) { return (void)e, cudaSuccess; }
API cudaError_t cudaEventSynchronize(cudaEvent_t e) { return (void)e, cudaSuccess; }

API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)(((event *)to)->ms - ((event *)from)->ms);
    return cudaSuccess;
}

/* ---- graphs --------------------------------------------------------------------------------- */

static void set_captured(unsigned long long from, unsigned long long to)
{
    lock();
    for (stream *s = streams; s; s = s->next)
        if (s->capture == from && from)
            s->capture = to;
    unlock();
}

API cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    if (!created_stream(s) || created_stream(s)->capture)
        return cudaErrorStreamCaptureUnsupported;
    capturing = calloc(1, sizeof *capturing);
    created_stream(s)->capture = capturing->number = ++captures;
    return cudaSuccess;
}

API cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
    if (!created_stream(s) || !created_stream(s)->capture)
        return cudaErrorIllegalState;
    *g = (cudaGraph_t)capturing;
    set_captured(created_stream(s)->capture, 0);
    return cudaSuccess;
}

API cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
    *status = created_stream(s) && created_stream(s)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

static cudaError_t capture_info(cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                cudaGraph_t *g, const cudaGraphNode_t **nodes, size_t *n)
{
    cudaStreamIsCapturing(s, status);
    if (id)
        *id = created_stream(s) ? created_stream(s)->capture : 0;
    if (g)
        *g = *status == cudaStreamCaptureStatusActive ? (cudaGraph_t)capturing : NULL;
    if (nodes)
        *nodes = NULL;
    if (n)
        *n = 0;
    return cudaSuccess;
}

#if CUDART_VERSION < 13000
API cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                            cudaGraph_t *g, const cudaGraphNode_t **nodes, size_t *n)
{
    return capture_info(s, status, id, g, nodes, n);
}
#else
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                         cudaGraph_t *g, const cudaGraphNode_t **nodes,
                                         const cudaGraphEdgeData **edges, size_t *n)
{
    if (edges)
        *edges = NULL;
    return capture_info(s, status, id, g, nodes, n);
}
#endif

API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *run, cudaGraph_t g, unsigned long long flags)
{
    (void)g, (void)flags;
    *run = calloc(1, sizeof(graph));
    return cudaSuccess;
}

API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *run, cudaGraph_t g, unsigned long long flags)
{
    return cudaGraphInstantiate(run, g, flags);
}

API cudaError_t cudaGraphLaunch(cudaGraphExec_t run, cudaStream_t s) { return (void)run, (void)s, cudaSuccess; }

API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t run)
{
    free(run);
    return cudaSuccess;
}

API cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    free(g);
    return cudaSuccess;
}

API cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n)
{
    (void)g, (void)nodes;
    *n = 0;
    return cudaSuccess;
}

API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    static __thread enum cudaStreamCaptureMode current;
    enum cudaStreamCaptureMode before = current;
    current = *mode;
    *mode = before;
    return cudaSuccess;
}
