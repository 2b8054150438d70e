/* drive.c calls the stubs without PyTorch: drive FOLDER. The GPU has 1 GiB, of which a context takes a quarter. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024ul * 1024)
#define CHECK(condition)                                                          \
    do                                                                            \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);       \
            exit(1);                                                              \
        }                                                                         \
    while (0)

static void *library;

static int (*function(const char *name))()
{
    int (*found)() = (int (*)())dlsym(library, name);
    if (!found)
        fprintf(stderr, "%s: not there\n", name);
    CHECK(found);
    return found;
}
#define CALL(name, ...) function(#name)(__VA_ARGS__)

static void memory(void)
{
    enum { OUT_OF_MEMORY = 2 };
    size_t left, total;
    char *at, *other, text[8] = "", zeros[8] = "12345";
    CHECK(!CALL(cudaSetDevice, 0));
    CHECK(!CALL(cudaMemGetInfo, &left, &total) && total == 1024 * MIB && left == 768 * MIB);
    CHECK(!CALL(cudaMalloc, &at, 512 * MIB));
    CHECK(CALL(cudaMalloc, &other, 257 * MIB) == OUT_OF_MEMORY && !other);
    CHECK(CALL(cudaGetLastError) == OUT_OF_MEMORY && !CALL(cudaGetLastError));
    CHECK(!CALL(cudaMalloc, &other, 256 * MIB));
    CHECK(!CALL(cudaMemcpy, at + 100, "seven!", (size_t)7, 1));
    CHECK(!CALL(cudaMemcpy, other, at + 100, (size_t)7, 3));
    CHECK(!CALL(cudaMemcpy, text, other, (size_t)7, 2) && !strcmp(text, "seven!"));
    CHECK(!CALL(cudaMemcpy, zeros, at + 200 * MIB, (size_t)8, 2) && !memcmp(zeros, "\0\0\0\0\0\0\0", 8));
    function("vprof_tell")(7L);
    CHECK(!CALL(cudaMemcpy, text, at + 100, (size_t)4, 2) && text[0] == 7); /* vprof_tell replaces one copied count */
    function("vprof_tell")(-1L);
    CHECK(!CALL(cudaMemcpy, text, at + 100, (size_t)4, 2) && text[0] == 's');
    CHECK(!CALL(cudaSetDevice, 1)); /* the second device has its own memory */
    CHECK(!CALL(cudaMemGetInfo, &left, &total) && left == 768 * MIB);
    CHECK(!CALL(cudaFree, at) && !CALL(cudaFree, other));
    CHECK(CALL(cudaFree, at)); /* freed twice */
    CHECK(!CALL(cudaSetDevice, 0) && !CALL(cudaMemGetInfo, &left, &total) && left == 768 * MIB);
}

/* Two ranks in one process, as in DataParallel: only the root gets a sum, all get its broadcast. */
static void ranks(void)
{
    enum { CHARACTERS = 0, SUM = 0 };
    void *ranks[2];
    char one[4] = "one", two[4] = "two", sum[4] = "";
    CHECK(!CALL(ncclCommInitAll, ranks, 2, NULL));
    CHECK(!CALL(ncclReduce, one, sum, (size_t)4, CHARACTERS, SUM, 0, ranks[0], NULL) && !strcmp(sum, "one"));
    CHECK(!CALL(ncclReduce, two, NULL, (size_t)4, CHARACTERS, SUM, 0, ranks[1], NULL));
    CHECK(!CALL(ncclBcast, one, (size_t)4, CHARACTERS, 0, ranks[0], NULL));
    CHECK(!CALL(ncclBcast, two, (size_t)4, CHARACTERS, 0, ranks[1], NULL) && !strcmp(two, "one"));
}

/* An exchange with other ranks, which are assumed to send the same data: parts of unequal sizes, and of one size. */
static void exchange(void)
{
    enum { CHARACTERS = 0 };
    void *rank;
    char sent[] = "abcd", pieces[] = "....", all[] = "....";
    CHECK(!CALL(ncclCommInitRank, &rank, 2, (struct { char bytes[128]; }){{0}}, 1));
    CHECK(!CALL(ncclGroupStart));
    for (int peer = 0; peer < 2; peer++) {
        CHECK(!CALL(ncclSend, sent + 2 * peer, (size_t)2, CHARACTERS, peer, rank, NULL));
        CHECK(!CALL(ncclRecv, pieces + 2 * peer, (size_t)2, CHARACTERS, peer, rank, NULL));
    }
    CHECK(!CALL(ncclGroupEnd) && !strcmp(pieces, "cdcd"));
    CHECK(!CALL(ncclAlltoAll, sent, all, (size_t)2, CHARACTERS, rank, NULL) && !strcmp(all, "cdcd"));
}

static void graph(void)
{
    void *stream, *second, *event, *recorded, *run;
    int capturing;
    CHECK(!CALL(cudaStreamCreateWithFlags, &stream, 1u) && !CALL(cudaStreamCreateWithFlags, &second, 1u));
    CHECK(!CALL(cudaEventCreateWithFlags, &event, 2u));
    CHECK(CALL(cudaStreamBeginCapture, NULL, 0)); /* a default stream cannot be captured */
    CHECK(!CALL(cudaStreamBeginCapture, stream, 0));
    CHECK(!CALL(cudaEventRecord, event, stream) && !CALL(cudaStreamWaitEvent, second, event, 0u));
    CHECK(!CALL(cudaStreamIsCapturing, second, &capturing) && capturing);
    CHECK(!CALL(cudaStreamEndCapture, stream, &recorded));
    CHECK(!CALL(cudaStreamIsCapturing, second, &capturing) && !capturing);
    CHECK(!CALL(cudaGraphInstantiateWithFlags, &run, recorded, 0ull) && !CALL(cudaGraphLaunch, run, stream));
    CHECK(!CALL(cudaGraphExecDestroy, run) && !CALL(cudaGraphDestroy, recorded));
}

static void refused(void)
{
    void *table = &table, *handle = &handle;
    CHECK(CALL(cuGetExportTable, &table, NULL) && !table);
    for (int i = 0; i < 2; i++)
        CHECK(!CALL(cusparseCreate, &handle) && handle);
}

/* cuDNN's proposals for a graph of one operation: many for a convolution, one for others, and never more than the
 * caller has descriptors for, since callers take the returned count for the number copied. */
static void proposals(void)
{
    enum { CONVOLUTION = 1, ENGINECFG = 3, ENGINEHEUR = 4, FORWARD = 10, GRAPH = 15 };
    enum { HEUR_GRAPH = 201, HEUR_RESULTS = 202, CONV = 702, OPERATIONS = 801, DESCRIPTOR = 15 };
    void *convolution, *operation, *graph, *heuristics, *configs[2];
    long n, one = 1, two = 2, none = 0;
    CHECK(!CALL(cudnnBackendCreateDescriptor, CONVOLUTION, &convolution));
    CHECK(!CALL(cudnnBackendCreateDescriptor, FORWARD, &operation));
    CHECK(!CALL(cudnnBackendCreateDescriptor, GRAPH, &graph));
    CHECK(!CALL(cudnnBackendCreateDescriptor, ENGINEHEUR, &heuristics));
    for (int i = 0; i < 2; i++)
        CHECK(!CALL(cudnnBackendCreateDescriptor, ENGINECFG, &configs[i]));
    CHECK(!CALL(cudnnBackendSetAttribute, graph, OPERATIONS, DESCRIPTOR, one, &operation));
    CHECK(!CALL(cudnnBackendSetAttribute, heuristics, HEUR_GRAPH, DESCRIPTOR, one, &graph));
    CHECK(!CALL(cudnnBackendGetAttribute, heuristics, HEUR_RESULTS, DESCRIPTOR, none, &n, NULL) && n == 1);
    CHECK(!CALL(cudnnBackendSetAttribute, operation, CONV, DESCRIPTOR, one, &convolution));
    CHECK(!CALL(cudnnBackendGetAttribute, heuristics, HEUR_RESULTS, DESCRIPTOR, none, &n, NULL) && n > 2);
    CHECK(!CALL(cudnnBackendGetAttribute, heuristics, HEUR_RESULTS, DESCRIPTOR, two, &n, configs) && n == 2);
    for (int i = 0; i < 2; i++)
        CHECK(!CALL(cudnnBackendDestroyDescriptor, configs[i]));
    CHECK(!CALL(cudnnBackendDestroyDescriptor, heuristics) && !CALL(cudnnBackendDestroyDescriptor, graph));
    CHECK(!CALL(cudnnBackendDestroyDescriptor, operation) && !CALL(cudnnBackendDestroyDescriptor, convolution));
}

int main(int argc, char **argv)
{
    char path[4096];
    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/vprof-cudart.so.13", argv[1]);
    library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    CHECK(library);
    memory();
    ranks();
    exchange();
    graph();
    refused();
    proposals();
    return 0;
}
