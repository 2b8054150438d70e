/* nccl.c: collectives of one rank without the others. They return at once; small results hold this rank's data in
 * the place of every rank. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Element sizes of ncclDataType_t in bytes: int8, uint8, int32, uint32, int64, uint64, half, float, double,
 * bfloat16, fp8 (two types). */
static const size_t bytes_of[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

static size_t size_of(size_t n, int type) { return type >= 0 && type < 12 ? n * bytes_of[type] : n; }

typedef struct { int size, rank, device; } communicator;

API int ncclGetVersion(int *version)
{
    *version = spec.nccl ? (int)spec.nccl : 22700;
    return 0;
}

API const char *ncclGetErrorString(int error) { return error ? "error of the simulated GPU" : "no error"; }
API const char *ncclGetLastError(void *c) { return (void)c, ""; }

typedef struct { char bytes[128]; } unique_id;

API int ncclGetUniqueId(unique_id *id)
{
    memset(id, 0, sizeof *id);
    return 0;
}

static int make(communicator **c, int size, int rank)
{
    *c = malloc(sizeof **c);
    **c = (communicator){size, rank, current_device};
    return 0;
}

API int ncclCommInitRank(communicator **c, int size, unique_id id, int rank) { return (void)id, make(c, size, rank); }

API int ncclCommInitRankConfig(communicator **c, int size, unique_id id, int rank, void *config)
{
    return (void)id, (void)config, make(c, size, rank);
}

API int ncclCommInitRankScalable(communicator **c, int size, int rank, int n, unique_id *ids, void *config)
{
    return (void)n, (void)ids, (void)config, make(c, size, rank);
}

API int ncclCommInitAll(communicator **c, int n, const int *devices)
{
    (void)devices;
    for (int i = 0; i < n; i++)
        make(&c[i], n, i);
    return 0;
}

API int ncclCommSplit(communicator *c, int color, int key, communicator **out, void *config)
{
    (void)color, (void)key, (void)config;
    return make(out, c->size, c->rank);
}

API int ncclCommDestroy(communicator *c)
{
    free(c);
    return 0;
}

API int ncclCommAbort(communicator *c) { return ncclCommDestroy(c); }

API int ncclCommCount(communicator *c, int *n)
{
    *n = c->size;
    return 0;
}

API int ncclCommUserRank(communicator *c, int *rank)
{
    *rank = c->rank;
    return 0;
}

static void copy(void *to, const void *from, size_t n)
{
    if (to != from)
        copy_bytes(to, from, n);
}

API int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, communicator *c, void *stream)
{
    (void)op, (void)c, (void)stream;
    copy(to, from, size_of(n, type));
    return 0;
}

API int ncclReduce(const void *from, void *to, size_t n, int type, int op, int root, communicator *c, void *stream)
{
    return root == c->rank ? ncclAllReduce(from, to, n, type, op, c, stream) : 0; /* only the root has a result buffer */
}

/* Among several ranks in one process (DataParallel), the root calls first. */
API int ncclBcast(void *at, size_t n, int type, int root, communicator *c, void *stream)
{
    static __thread const void *sent;
    (void)stream;
    if (root == c->rank)
        sent = at;
    else if (sent)
        copy(at, sent, size_of(n, type));
    return 0;
}

/* The current group of calls. PyTorch gathers parts of unequal sizes by a group of broadcasts, one from each rank,
 * and exchanges them by sends to and receives from all ranks. Every received part is filled with the data that this
 * rank broadcasts, or sends to itself. */
enum { PIECES = 1024 };
static __thread struct {
    int depth, n;
    const void *own;
    size_t own_bytes;
    struct { void *to; size_t bytes; } piece[PIECES];
} group;

static void gather(void)
{
    for (int i = 0; i < group.n && group.own; i++)
        copy(group.piece[i].to, group.own, group.piece[i].bytes < group.own_bytes ? group.piece[i].bytes : group.own_bytes);
    group.n = 0, group.own = NULL;
}

static void arrives(void *to, size_t bytes)
{
    if (group.depth && group.n < PIECES) {
        group.piece[group.n].to = to;
        group.piece[group.n++].bytes = bytes;
    }
}

static void leaves(const void *from, size_t bytes)
{
    if (group.depth)
        group.own = from, group.own_bytes = bytes;
}

API int ncclGroupStart(void) { return group.depth++, 0; }

API int ncclGroupEnd(void)
{
    if (--group.depth == 0)
        gather();
    return 0;
}

API int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, communicator *c, void *stream)
{
    size_t bytes = size_of(n, type);
    if (group.depth && (root == 0 || group.n == PIECES))
        gather(); /* the first broadcast for the next tensor */
    arrives(to, bytes);
    if (root == c->rank)
        leaves(from, bytes);
    return ncclAllReduce(from, to, n, type, 0, c, stream);
}

API int ncclSend(const void *from, size_t n, int type, int peer, communicator *c, void *stream)
{
    (void)stream;
    if (peer == c->rank)
        leaves(from, size_of(n, type));
    return 0;
}

API int ncclRecv(void *to, size_t n, int type, int peer, communicator *c, void *stream)
{
    (void)peer, (void)c, (void)stream;
    arrives(to, size_of(n, type));
    return 0;
}

API int ncclAllGather(const void *from, void *to, size_t n, int type, communicator *c, void *stream)
{
    (void)stream;
    size_t bytes = size_of(n, type);
    for (int rank = 0; rank < c->size; rank++)
        copy((char *)to + (size_t)rank * bytes, from, bytes);
    return 0;
}

API int ncclAlltoAll(const void *from, void *to, size_t n, int type, communicator *c, void *stream)
{
    return ncclAllGather((const char *)from + (size_t)c->rank * size_of(n, type), to, n, type, c, stream);
}

API int ncclReduceScatter(const void *from, void *to, size_t n, int type, int op, communicator *c, void *stream)
{
    (void)op, (void)stream;
    size_t bytes = size_of(n, type);
    copy(to, (const char *)from + (size_t)c->rank * bytes, bytes);
    return 0;
}

API int ncclMemAlloc(void **at, size_t bytes)
{
    *at = (void *)(uintptr_t)allocate(current_device, bytes);
    return *at ? 0 : 1;
}

API int ncclMemFree(void *at) { return deallocate((uintptr_t)at) ? 0 : 4; }
