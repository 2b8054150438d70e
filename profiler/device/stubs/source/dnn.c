/* dnn.c: cuDNN's backend interface (operation graphs). It stores attributes, proposes engines for every graph, and
 * asks vprof for a plan's workspace. */
#include "question.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3000 };

/* Values of cudnnBackendDescriptorType_t, cudnnBackendAttributeName_t and cudnnBackendAttributeType_t. */
enum { ENGINE = 2, PLAN = 5 };
enum {
    CONV_COMPUTE = 100, CONV_DILATIONS = 102, CONV_STRIDES = 103, CONV_PADDINGS = 105,
    HEUR_MODE = 200, HEUR_GRAPH = 201, HEUR_RESULTS = 202, CONFIG_ENGINE = 300, CONFIG_SHARED = 304,
    PLAN_CONFIG = 401, PLAN_WORKSPACE = 402, GRAPH_OPERATIONS = 801,
    TENSOR_TYPE = 901, TENSOR_DIMENSIONS = 902, TENSOR_STRIDES = 903,
    ENGINE_GRAPH = 1300, ENGINE_INDEX = 1301, ENGINE_NOTES = 1303,
};
enum { HANDLE = 0, BOOLEAN = 2, POINTER = 6, CHARACTER = 24, DESCRIPTOR = 15 };

API size_t cudnnGetVersion(void) { return spec.cudnn ? spec.cudnn : 92600; }
API size_t cudnnGetCudartVersion(void) { return spec.runtime ? spec.runtime : spec.driver; }
API const char *cudnnGetErrorString(int error) { return error ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_SUCCESS"; }
API void cudnnGetLastErrorString(char *text, size_t size) { snprintf(text, size, "not supported by the simulated GPU"); }

/* part is a value of libraryPropertyType: 0 major, 1 minor, 2 patch. */
API int cudnnGetProperty(int part, int *value)
{
    static const int units[] = {10000, 100, 1};
    *value = part < 0 || part > 2 ? 0 : (int)cudnnGetVersion() / units[part] % (part ? 100 : 1000);
    return SUCCESS;
}

/* ---- descriptors ---------------------------------------------------------------------------- */

typedef struct attribute {
    int name, type;
    int64_t count;
    struct attribute *next;
    _Alignas(8) char values[];
} attribute;
/* references counts the creator and the attributes that refer to the descriptor. */
typedef struct { int kind, references; attribute *attributes; } descriptor;

static size_t size_of(int type)
{
    switch (type) {
    case HANDLE: case 3: case 5: case POINTER: case DESCRIPTOR: case 26: return 8;
    case BOOLEAN: case CHARACTER: return 1;
    default: return 4;
    }
}

static attribute *find(const descriptor *d, int name)
{
    attribute *a = d ? d->attributes : NULL;
    while (a && a->name != name)
        a = a->next;
    return a;
}

API int cudnnBackendCreateDescriptor(int kind, descriptor **d)
{
    *d = calloc(1, sizeof **d);
    (*d)->kind = kind;
    (*d)->references = 1;
    return SUCCESS;
}

API int cudnnBackendDestroyDescriptor(descriptor *d)
{
    if (!d || --d->references)
        return SUCCESS;
    for (attribute *a = d->attributes, *next; a; a = next) {
        next = a->next;
        for (int64_t i = 0; a->type == DESCRIPTOR && i < a->count; i++)
            cudnnBackendDestroyDescriptor(((descriptor **)a->values)[i]);
        free(a);
    }
    free(d);
    return SUCCESS;
}

/* Prepends the attribute: find() returns the last value set. */
API int cudnnBackendSetAttribute(descriptor *d, int name, int type, int64_t count, const void *values)
{
    size_t bytes = size_of(type) * (size_t)count;
    attribute *a = calloc(1, sizeof *a + bytes);
    a->name = name;
    a->type = type;
    a->count = count;
    a->next = d->attributes;
    if (bytes && values)
        memcpy(a->values, values, bytes);
    for (int64_t i = 0; type == DESCRIPTOR && i < count; i++)
        if (((descriptor **)a->values)[i])
            ((descriptor **)a->values)[i]->references++;
    d->attributes = a;
    return SUCCESS;
}

/* Returns the descriptor at index i of an attribute; NULL if it is missing. */
static descriptor *referenced(const descriptor *d, int name, int i)
{
    const attribute *a = find(d, name);
    return a && i < a->count ? ((descriptor *const *)a->values)[i] : NULL;
}

/* ---- questions to vprof --------------------------------------------------------------------- */

static void put_list(question *q, const char *key, const attribute *a)
{
    put(q, "%s", key);
    for (int64_t i = 0; a && i < a->count; i++)
        put(q, "%s%lld", i ? "," : "", (long long)((const int64_t *)a->values)[i]);
}

static int scalar(const descriptor *d, int name)
{
    const attribute *a = find(d, name);
    return a ? *(const int *)a->values : -1;
}

static void put_tensor(question *q, const char *key, const descriptor *tensor)
{
    put_list(q, key, find(tensor, TENSOR_DIMENSIONS));
    put_list(q, ";s=", find(tensor, TENSOR_STRIDES));
}

/* Convolution operations: the attributes with their parameters (convolution) and their tensors x, w, y. */
static const struct { const char *name; int convolution, x, w, y; } convolutions[] = {
    {"fprop", 702, 704, 703, 705},
    {"dgrad", 708, 710, 709, 711},
    {"wgrad", 714, 716, 715, 717},
};

static int is_convolution(const descriptor *graph)
{
    const descriptor *operation = referenced(graph, GRAPH_OPERATIONS, 0);
    for (size_t i = 0; i < sizeof convolutions / sizeof *convolutions; i++)
        if (referenced(operation, convolutions[i].convolution, 0))
            return 1;
    return 0;
}

static void put_convolution(question *q, const descriptor *operation)
{
    for (size_t i = 0; i < sizeof convolutions / sizeof *convolutions; i++) {
        const descriptor *c = referenced(operation, convolutions[i].convolution, 0);
        if (!c)
            continue;
        const descriptor *x = referenced(operation, convolutions[i].x, 0);
        put(q, "conv %s dtype=%s compute=%s", convolutions[i].name, type_name(scalar(x, TENSOR_TYPE)),
            type_name(scalar(c, CONV_COMPUTE)));
        put_tensor(q, " x=", x);
        put_tensor(q, " w=", referenced(operation, convolutions[i].w, 0));
        put_tensor(q, " y=", referenced(operation, convolutions[i].y, 0));
        put_list(q, " pad=", find(c, CONV_PADDINGS));
        put_list(q, " stride=", find(c, CONV_STRIDES));
        put_list(q, " dilation=", find(c, CONV_DILATIONS));
        return;
    }
}

/* The descriptors that a question contains, in the order of their words. A descriptor refers to earlier ones by
 * index. */
typedef struct { const descriptor *all[1024]; int n; } named;

static int index_in(const named *names, const descriptor *d)
{
    int i = 0;
    while (i < names->n && names->all[i] != d)
        i++;
    return i;
}

static long long value_of(const attribute *a, int64_t i, const named *names)
{
    const char *at = a->values + (size_t)i * size_of(a->type);
    if (a->type == DESCRIPTOR)
        return index_in(names, *(descriptor *const *)at);
    return size_of(a->type) == 8 ? *(const long long *)at : size_of(a->type) == 4 ? *(const int *)at : *at;
}

static int hidden(const descriptor *d, const attribute *a) { return find(d, a->name) != a; }

/* Appends a descriptor to a question, after the descriptors that it refers to: " TYPE" and "
 * NAME:TYPE:VALUES" for each attribute. Values are written as integers of their bits. */
static void put_descriptor(question *q, named *names, const descriptor *d)
{
    if (!d || index_in(names, d) < names->n || names->n == (int)(sizeof names->all / sizeof *names->all))
        return;
    for (const attribute *a = d->attributes; a; a = a->next)
        for (int64_t i = 0; a->type == DESCRIPTOR && !hidden(d, a) && i < a->count; i++)
            put_descriptor(q, names, ((descriptor *const *)a->values)[i]);
    names->all[names->n++] = d;
    put(q, " %d", d->kind);
    for (const attribute *a = d->attributes; a; a = a->next) {
        if (hidden(d, a) || a->type == HANDLE || a->type == POINTER)
            continue;
        put(q, "|%d:%d:", a->name, a->type);
        for (int64_t i = 0; i < a->count; i++)
            put(q, "%s%lld", i ? "," : "", value_of(a, i, names));
    }
}

/* Engine indices: the heuristics' proposals in order, then from FALLBACKS on the fallback engines. cuDNN must be
 * asked for the number of its proposals for a convolution. This takes time and only matters if PyTorch tries them
 * all (torch.backends.cudnn.benchmark) or memory runs out, so PROPOSALS are assumed and a plan that does not exist
 * is refused. */
enum { PROPOSALS = 64, FALLBACKS = PROPOSALS, HEUR_MODE_FALLBACK = 2 };

static void put_engine(question *q, const descriptor *graph, int engine)
{
    put_convolution(q, referenced(graph, GRAPH_OPERATIONS, 0));
    if (engine)
        put(q, engine < FALLBACKS ? " proposal=%d" : " fallback=%d", engine % FALLBACKS);
}

/* Returns the workspace bytes of an engine for a graph; negative if the engine does not exist. A graph that is no
 * convolution has one engine, and a fallback engine without a workspace. */
static int64_t workspace(const descriptor *graph, int engine)
{
    question q = {0};
    if (is_convolution(graph)) {
        put_engine(&q, graph, engine);
    } else if (engine) {
        return 0;
    } else {
        put(&q, "graph");
        put_descriptor(&q, &(named){.n = 0}, graph);
    }
    return (int64_t)reply(&q);
}

/* Copies an engine's numerical notes, by which PyTorch excludes engines. */
static int copy_notes(const descriptor *engine, int64_t room, int64_t *count, int *notes)
{
    question q = {0};
    uint64_t set = 0;
    int64_t n = 0;
    if (is_convolution(referenced(engine, ENGINE_GRAPH, 0))) {
        put_engine(&q, referenced(engine, ENGINE_GRAPH, 0), scalar(engine, ENGINE_INDEX));
        put(&q, " notes");
        set = reply(&q);
    }
    for (int note = 0; note < 64 && n < room; note++)
        if (set >> note & 1)
            notes[n++] = note;
    if (count)
        *count = n;
    return SUCCESS;
}

/* ---- results -------------------------------------------------------------------------------- */

/* Makes config a proposal for a graph: a configuration with the engine of index number. */
static void configure(descriptor *config, descriptor *graph, int64_t number)
{
    descriptor *engine;
    cudnnBackendCreateDescriptor(ENGINE, &engine);
    cudnnBackendSetAttribute(engine, ENGINE_GRAPH, DESCRIPTOR, 1, &graph);
    cudnnBackendSetAttribute(engine, ENGINE_INDEX, 3, 1, &number);
    cudnnBackendSetAttribute(config, CONFIG_ENGINE, DESCRIPTOR, 1, &engine);
    cudnnBackendDestroyDescriptor(engine); /* config keeps a reference */
}

static int propose(const descriptor *heuristics, int64_t room, int64_t *count, descriptor **configs)
{
    descriptor *graph = referenced(heuristics, HEUR_GRAPH, 0);
    int n = is_convolution(graph) ? PROPOSALS : 1, first = scalar(heuristics, HEUR_MODE) == HEUR_MODE_FALLBACK ? FALLBACKS : 0;
    if (configs && room < n)
        n = (int)room;
    if (count)
        *count = n;
    for (int i = 0; configs && i < n; i++)
        configure(configs[i], graph, first + i);
    return SUCCESS;
}

static int copy_out(const attribute *a, int64_t room, int64_t *count, void *values)
{
    int64_t n = a ? a->count : 0;
    if (count)
        *count = n;
    if (a && values)
        memcpy(values, a->values, size_of(a->type) * (size_t)(n < room ? n : room));
    return SUCCESS;
}

/* Copies attributes into descriptors that the caller has created, as cuDNN does. */
static int copy_descriptors(const attribute *a, int64_t room, int64_t *count, descriptor **out)
{
    int64_t n = a ? a->count : 0;
    if (count)
        *count = n;
    for (int64_t i = 0; out && i < n && i < room; i++) {
        if (!out[i])
            continue;
        for (const attribute *from = ((descriptor *const *)a->values)[i]->attributes; from; from = from->next)
            cudnnBackendSetAttribute(out[i], from->name, from->type, from->count, from->values);
    }
    return SUCCESS;
}

static int answer(size_t bytes, const void *from, int64_t *count, void *to)
{
    if (count)
        *count = 1;
    if (to)
        memcpy(to, from, bytes);
    return SUCCESS;
}

static const descriptor *engine_of(const descriptor *plan) { return referenced(referenced(plan, PLAN_CONFIG, 0), CONFIG_ENGINE, 0); }

static int64_t workspace_of_plan(const descriptor *plan)
{
    const descriptor *engine = engine_of(plan);
    return workspace(referenced(engine, ENGINE_GRAPH, 0), scalar(engine, ENGINE_INDEX));
}

API int cudnnBackendFinalize(descriptor *d)
{
    return d->kind == PLAN && workspace_of_plan(d) < 0 ? NOT_SUPPORTED : SUCCESS;
}

/* Computes nothing, but lets the first engine appear as the fastest when engines are timed. */
API int cudnnBackendExecute(void *h, descriptor *plan, descriptor *pack)
{
    (void)h, (void)pack;
    lock();
    kernel_time += scalar(engine_of(plan), ENGINE_INDEX) ? 1000 : 0;
    unlock();
    return SUCCESS;
}

API int cudnnBackendGetAttribute(descriptor *d, int name, int type, int64_t room, int64_t *count, void *values)
{
    switch (name) {
    case HEUR_RESULTS: return propose(d, room, count, values);
    case ENGINE_NOTES: return copy_notes(d, values ? room : 0, count, values);
    case PLAN_WORKSPACE: return answer(sizeof(int64_t), &(int64_t){workspace_of_plan(d)}, count, values);
    case CONFIG_SHARED: return answer(sizeof(int), &(int){0}, count, values);
    }
    if (type == DESCRIPTOR)
        return copy_descriptors(find(d, name), room, count, values);
    return copy_out(find(d, name), room, count, values);
}
