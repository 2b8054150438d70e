/* layers.c: cuDNN's functions outside the backend interface that PyTorch calls: recurrent layers, batch norm,
 * dropout. It stores their descriptors and asks vprof for their sizes. */
#include "question.h"

#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, MOST = 8 };

/* ---- tensors and filters -------------------------------------------------------------------- */

typedef struct { int type, n, format, sizes[MOST], strides[MOST]; } tensor;

static int create(void **d, size_t bytes) { return *d = calloc(1, bytes), SUCCESS; }
static int destroy(void *d) { return free(d), SUCCESS; }

API int cudnnCreateTensorDescriptor(tensor **t) { return create((void **)t, sizeof **t); }
API int cudnnDestroyTensorDescriptor(tensor *t) { return destroy(t); }
API int cudnnCreateFilterDescriptor(tensor **t) { return create((void **)t, sizeof **t); }
API int cudnnDestroyFilterDescriptor(tensor *t) { return destroy(t); }

API int cudnnSetTensorNdDescriptor(tensor *t, int type, int n, const int *sizes, const int *strides)
{
    *t = (tensor){.type = type, .n = n < MOST ? n : MOST};
    memcpy(t->sizes, sizes, (size_t)t->n * sizeof *sizes);
    if (strides)
        memcpy(t->strides, strides, (size_t)t->n * sizeof *strides);
    return SUCCESS;
}

API int cudnnSetFilterNdDescriptor(tensor *t, int type, int format, int n, const int *sizes)
{
    cudnnSetTensorNdDescriptor(t, type, n, sizes, NULL);
    t->format = format;
    return SUCCESS;
}

static void get(const tensor *t, int wanted, int *type, int *n, int *sizes)
{
    *type = t->type;
    *n = t->n;
    memcpy(sizes, t->sizes, (size_t)(wanted < t->n ? wanted : t->n) * sizeof *sizes);
}

API int cudnnGetTensorNdDescriptor(const tensor *t, int wanted, int *type, int *n, int *sizes, int *strides)
{
    get(t, wanted, type, n, sizes);
    memcpy(strides, t->strides, (size_t)(wanted < t->n ? wanted : t->n) * sizeof *strides);
    return SUCCESS;
}

API int cudnnGetFilterNdDescriptor(const tensor *t, int wanted, int *type, int *format, int *n, int *sizes)
{
    get(t, wanted, type, n, sizes);
    *format = t->format;
    return SUCCESS;
}

/* ---- recurrent layers ----------------------------------------------------------------------- */

enum { RELU, TANH, LSTM, GRU };
enum { UNPACKED, PACKED }; /* the two sequence-major values of cudnnRNNDataLayout_t */

typedef struct { float probability; } dropout;
typedef struct { int mode, biases, directions, type, inputs, hidden, projected, layers, has_dropout; } recurrent;
typedef struct { int type, length, batch, inputs, packed; } sequences;

API int cudnnCreateDropoutDescriptor(dropout **d) { return create((void **)d, sizeof **d); }
API int cudnnDestroyDropoutDescriptor(dropout *d) { return destroy(d); }

API int cudnnSetDropoutDescriptor(dropout *d, void *handle, float probability, void *states, size_t bytes,
                                  unsigned long long seed)
{
    (void)handle, (void)states, (void)bytes, (void)seed;
    d->probability = probability;
    return SUCCESS;
}

API int cudnnRestoreDropoutDescriptor(dropout *d, void *handle, float probability, void *states, size_t bytes,
                                      unsigned long long seed)
{
    return cudnnSetDropoutDescriptor(d, handle, probability, states, bytes, seed);
}

API int cudnnCreateRNNDescriptor(recurrent **r) { return create((void **)r, sizeof **r); }
API int cudnnDestroyRNNDescriptor(recurrent *r) { return destroy(r); }
API int cudnnCreateRNNDataDescriptor(sequences **s) { return create((void **)s, sizeof **s); }
API int cudnnDestroyRNNDataDescriptor(sequences *s) { return destroy(s); }

API int cudnnSetRNNDescriptor_v8(recurrent *r, int algorithm, int mode, int biases, int bidirectional, int input, int type,
                                 int precision, int math, int inputs, int hidden, int projected, int layers,
                                 const dropout *d, unsigned flags)
{
    (void)algorithm, (void)input, (void)precision, (void)math, (void)flags;
    *r = (recurrent){mode, biases, bidirectional ? 2 : 1, type, inputs, hidden, projected == hidden ? 0 : projected, layers,
                     d && d->probability > 0};
    return SUCCESS;
}

API int cudnnSetRNNDataDescriptor(sequences *s, int type, int layout, int length, int batch, int inputs, const int *lengths,
                                  void *padding)
{
    (void)padding;
    *s = (sequences){type, length, batch, inputs, 0};
    if (layout == PACKED)
        for (int i = 0; i < batch; i++)
            s->packed += lengths[i];
    return SUCCESS;
}

static uint64_t ask_of(const recurrent *r, const sequences *s, int training, const char *what)
{
    static const char *const modes[] = {[RELU] = "rnn", [TANH] = "rnn", [LSTM] = "lstm", [GRU] = "gru"};
    question q = {0};
    put(&q, "rnn %s mode=%s dtype=%s length=%d batch=%d inputs=%d hidden=%d projected=%d layers=%d directions=%d training=%d"
        " dropout=%d packed=%d",
        what, modes[r->mode & 3], type_name(s->type), s->length, s->batch, s->inputs, r->hidden, r->projected, r->layers,
        r->directions, training, training && r->has_dropout, s->packed);
    return reply(&q);
}

API int cudnnGetRNNTempSpaceSizes(void *handle, const recurrent *r, int training, const sequences *s, size_t *workspace,
                                  size_t *reserve)
{
    (void)handle;
    if (workspace)
        *workspace = ask_of(r, s, training, "workspace");
    if (reserve)
        *reserve = training ? ask_of(r, s, training, "reserve") : 0;
    return SUCCESS;
}

/* A matrix or bias in the weight space, at an offset in elements. The space holds the matrices of all layers and
 * directions, then all biases. A layer has an input matrix per gate, a recurrent matrix per gate, and the
 * projection. */
typedef struct { int rows, columns; size_t at; } part;

static int gates(const recurrent *r) { return r->mode == LSTM ? 4 : r->mode == GRU ? 3 : 1; }
static int out(const recurrent *r) { return r->projected ? r->projected : r->hidden; }
static int biased(const recurrent *r, int id) { return id < gates(r) ? r->biases == 1 || r->biases == 2 : r->biases >= 2; }

static size_t matrices_of(const recurrent *r, int layer, part *wanted, int id)
{
    int inputs = layer < r->directions ? r->inputs : r->directions * out(r);
    size_t at = 0;
    for (int i = 0; i < 2 * gates(r) + (r->projected > 0); i++) {
        part p = {r->hidden, i < gates(r) ? inputs : out(r), at};
        if (i == 2 * gates(r))
            p = (part){out(r), r->hidden, at};
        if (wanted && (i == id || (id == 8 && i == 2 * gates(r))))
            *wanted = p;
        at += (size_t)p.rows * (size_t)p.columns;
    }
    return at;
}

static size_t biases_of(const recurrent *r, part *wanted, int id)
{
    size_t at = 0;
    for (int i = 0; i < 2 * gates(r); i++) {
        if (!biased(r, i))
            continue;
        if (wanted && i == id)
            *wanted = (part){r->hidden, 1, at};
        at += (size_t)r->hidden;
    }
    return at;
}

static size_t matrices_before(const recurrent *r, int layer)
{
    size_t sum = 0;
    for (int i = 0; i < layer; i++)
        sum += matrices_of(r, i, NULL, 0);
    return sum;
}

static size_t bytes_of(int type) { return type == 0 ? 4 : type == 1 ? 8 : 2; }

API int cudnnGetRNNWeightSpaceSize(void *handle, const recurrent *r, size_t *bytes)
{
    (void)handle;
    int all = r->layers * r->directions;
    *bytes = bytes_of(r->type) * (matrices_before(r, all) + (size_t)all * biases_of(r, NULL, 0));
    return SUCCESS;
}

static void describe(const recurrent *r, part p, size_t before, const char *space, tensor *t, const char **address)
{
    if (address)
        *address = p.rows ? space + bytes_of(r->type) * (before + p.at) : NULL;
    if (!t || !p.rows)
        return;
    cudnnSetTensorNdDescriptor(t, r->type, 3, (int[]){1, p.rows, p.columns}, (int[]){p.rows * p.columns, p.columns, 1});
}

API int cudnnGetRNNWeightParams(void *handle, const recurrent *r, int layer, size_t bytes, const char *space, int id,
                                tensor *matrix, const char **matrix_at, tensor *bias, const char **bias_at)
{
    (void)handle, (void)bytes;
    int all = r->layers * r->directions;
    part m = {0, 0, 0}, b = {0, 0, 0};
    matrices_of(r, layer, &m, id);
    size_t each = biases_of(r, &b, id);
    describe(r, m, matrices_before(r, layer), space, matrix, matrix_at);
    describe(r, b, matrices_before(r, all) + (size_t)layer * each, space, bias, bias_at);
    return SUCCESS;
}

/* ---- batch norm ----------------------------------------------------------------------------- */

enum { PERSISTENT = 2 }; /* value of cudnnBatchNormMode_t; only this mode has a workspace */

static uint64_t workspace_of_norm(const char *pass, int mode, const tensor *x)
{
    question q = {0};
    if (mode != PERSISTENT)
        return 0;
    put(&q, "norm %s dtype=%s x=", pass, type_name(x->type));
    for (int i = 0; i < x->n; i++)
        put(&q, "%s%d", i ? "," : "", x->sizes[i]);
    return reply(&q);
}

API int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int operations, const tensor *x,
                                                                 void *z, void *y, void *parameters, void *activation,
                                                                 size_t *bytes)
{
    (void)handle, (void)operations, (void)z, (void)y, (void)parameters, (void)activation;
    *bytes = workspace_of_norm("forward", mode, x);
    return SUCCESS;
}

API int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int operations, const tensor *x, void *y,
                                                          void *dy, void *dz, void *dx, void *parameters, void *activation,
                                                          size_t *bytes)
{
    (void)handle, (void)operations, (void)y, (void)dy, (void)dz, (void)dx, (void)parameters, (void)activation;
    *bytes = workspace_of_norm("backward", mode, x);
    return SUCCESS;
}

/* ---- dropout -------------------------------------------------------------------------------- */

/* The size of the random states: 24 bytes for each thread that is resident on the GPU. */
API int cudnnDropoutGetStatesSize(void *handle, size_t *bytes)
{
    (void)handle;
    *bytes = spec.sms * spec.threads_per_sm * 24;
    return SUCCESS;
}
