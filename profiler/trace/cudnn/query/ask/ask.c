/* ask [-no-products] GPU.json: prints which engine cuDNN selects for convolutions, without a GPU. cuDNN builds plans
 * for the device that the file describes (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, since cuDNN 9.8). Like
 * PyTorch 2.11 with cudnn.benchmark off, it selects the first engine configuration of mode instant, then fallback,
 * that has no excluded numerical note and can be built.
 *
 * Reads questions, one per line:
 *   operation dtype layout dims N C K groups x.. kernel.. y.. stride.. pad.. dilation..
 * (operation 0 forward, 1 gradient of x, 2 gradient of w; dtype 0 fp32, 1 fp16,
 * 2 bf16; layout 1 channels last; dims 2 or 3). Writes a line for each:
 *   bytes engine,knob=value,.. index[f]
 * with the index among the proposals, and f for mode fallback; or "none".
 *
 * -no-products excludes engines that compute the forward pass or the gradient of x as a matrix product with cuBLASLt.
 * If cuBLASLt has no kernel for the product, which its stub cannot know, cuDNN uses its next proposal. */
#include <cudnn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef cudnnBackendDescriptor_t desc;

static desc device;

static void die(const char *what)
{
    char text[4096] = "";
    cudnnGetLastErrorString(text, sizeof text);
    fprintf(stderr, "ask: %s: %s\n", what, text);
    exit(1);
}

static desc make(cudnnBackendDescriptorType_t type)
{
    desc d;
    if (cudnnBackendCreateDescriptor(type, &d))
        die("create");
    return d;
}

static void drop(desc d) { cudnnBackendDestroyDescriptor(d); }

static void set(desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n, const void *v)
{
    if (cudnnBackendSetAttribute(d, name, type, n, v))
        die("set");
}

static int64_t get(desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most, void *v)
{
    int64_t n = 0;
    if (cudnnBackendGetAttribute(d, name, type, most, &n, v))
        return 0;
    return n;
}

static void describe_device(const char *file)
{
    static char text[1 << 16];
    FILE *f = fopen(file, "r");
    if (!f) {
        perror(file);
        exit(1);
    }
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    device = make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)n, text);
    if (cudnnBackendFinalize(device))
        die(file);
}

static desc tensor(int dims, const int64_t *size, int last, int64_t id, cudnnDataType_t type)
{
    int64_t stride[5], align = 32, step = 1;
    if (last) {
        stride[1] = 1;
        step = size[1];
    }
    for (int i = dims - 1; i >= 0; i--)
        if (!last || i != 1) {
            stride[i] = step;
            step *= size[i];
        }
    desc d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims, size);
    set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, dims, stride);
    set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (cudnnBackendFinalize(d))
        die("tensor");
    return d;
}

/* Reports whether an engine converts its inputs to a smaller type. PyTorch excludes such engines. */
static int ruled_out(desc config)
{
    cudnnBackendNumericalNote_t notes[64];
    desc engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    int64_t n = get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 64, notes);
    drop(engine);
    for (int i = 0; i < n; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
            return 1;
    return 0;
}

enum { most_knobs = 32 };

/* A knob of engines that call cuBLASLt. For 1x1 filters they compute one matrix product, for other filters they
 * transform (Winograd, FFT). */
enum { product_knob = 25 };
static int no_products, skip_products;

static int is_product(desc config)
{
    int found = 0;
    desc knobs[most_knobs];
    for (int i = 0; i < most_knobs; i++)
        knobs[i] = make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    int64_t n = get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, most_knobs, knobs);
    for (int i = 0; i < n; i++) {
        cudnnBackendKnobType_t type = 0;
        get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
        found |= (int)type == product_knob;
    }
    for (int i = 0; i < most_knobs; i++)
        drop(knobs[i]);
    return found;
}

static void print_config(desc config)
{
    int64_t id = -1;
    desc engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR), knobs[most_knobs];
    get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &id);
    drop(engine);
    printf("%ld", (long)id);
    for (int i = 0; i < most_knobs; i++)
        knobs[i] = make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    int64_t n = get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, most_knobs, knobs);
    for (int i = 0; i < n; i++) {
        cudnnBackendKnobType_t type = 0;
        int64_t value = 0;
        get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
        get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
        printf(",%d=%ld", (int)type, (long)value);
    }
    for (int i = 0; i < most_knobs; i++)
        drop(knobs[i]);
}

/* Prints the first of the heuristics' first most configurations that can be built. Returns whether there is one. */
static int answer_of(desc heuristics, int64_t most, const char *mark)
{
    int found = 0;
    desc *configs = calloc((size_t)most, sizeof *configs);
    for (int i = 0; i < most; i++)
        configs[i] = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t n = get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, configs);
    for (int i = 0; i < n && i < most && !found; i++) {
        if (ruled_out(configs[i]) || (skip_products && is_product(configs[i])))
            continue;
        desc plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configs[i]);
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
        if (!cudnnBackendFinalize(plan)) {
            int64_t bytes = -1;
            get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
            printf("%ld ", (long)bytes);
            print_config(configs[i]);
            printf(" %d%s\n", i, mark);
            found = 1;
        }
        drop(plan);
    }
    for (int i = 0; i < most; i++)
        drop(configs[i]);
    free(configs);
    return found;
}

static int ask(desc graph, cudnnBackendHeurMode_t mode, const char *mark)
{
    int found = 0;
    desc h = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
    if (!cudnnBackendFinalize(h)) {
        int64_t n = get(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, NULL);
        /* The first configuration nearly always works. Requesting all of them takes ten times as long. */
        found = n > 0 && (answer_of(h, 1, mark) || (n > 1 && answer_of(h, n, mark)));
    }
    drop(h);
    return found;
}

static void convolution(int op, int dtype, int last, int dims, int64_t n, int64_t c, int64_t k, int64_t groups, int64_t v[6][3])
{
    static const cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};
    static const cudnnBackendDescriptorType_t ops[] = {
        CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
    };
    static const int first[] = { /* first of the attributes alpha, beta, convolution, w, x, y */
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
    };
    int64_t x[5] = {n, c}, w[5] = {k, c / groups}, y[5] = {n, k}, spatial = dims;
    for (int i = 0; i < dims; i++) {
        x[2 + i] = v[0][i];
        w[2 + i] = v[1][i];
        y[2 + i] = v[2][i];
    }
    desc X = tensor(dims + 2, x, last, 'x', types[dtype]);
    desc W = tensor(dims + 2, w, last, 'w', types[dtype]);
    desc Y = tensor(dims + 2, y, last, 'y', types[dtype]);

    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    desc C = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(C, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set(C, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(C, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
    set(C, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, dims, v[3]);
    set(C, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, dims, v[4]);
    set(C, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, dims, v[4]);
    set(C, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dims, v[5]);
    if (cudnnBackendFinalize(C))
        die("convolution");

    float one = 1, zero = 0;
    desc O = make(ops[op]);
    set(O, first[op], CUDNN_TYPE_FLOAT, 1, &one);
    set(O, first[op] + 1, CUDNN_TYPE_FLOAT, 1, &zero);
    set(O, first[op] + 2, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &C);
    set(O, first[op] + 3, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &W);
    set(O, first[op] + 4, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &X);
    set(O, first[op] + 5, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &Y);
    if (cudnnBackendFinalize(O))
        die("operation");
    desc G = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(G, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &O);
    if (cudnnBackendFinalize(G))
        die("graph");

    if (!ask(G, CUDNN_HEUR_MODE_INSTANT, "") && !ask(G, CUDNN_HEUR_MODE_FALLBACK, "f"))
        puts("none");
    desc all[] = {G, O, C, X, W, Y};
    for (int i = 0; i < 6; i++)
        drop(all[i]);
}

int main(int argc, char **argv)
{
    no_products = argc == 3 && !strcmp(argv[1], "-no-products");
    if (argc != 2 && !no_products) {
        fprintf(stderr, "usage: ask [-no-products] GPU.json < questions > answers\n");
        return 2;
    }
    describe_device(argv[argc - 1]);
    char line[4096];
    for (long number = 1; fgets(line, sizeof line, stdin); number++) {
        char *at = line;
        int64_t head[8], v[6][3] = {{0}};
        for (int i = 0; i < 8; i++)
            head[i] = strtoll(at, &at, 10);
        if (head[0] < 0 || head[0] > 2 || head[1] < 0 || head[1] > 2 || head[3] < 2 || head[3] > 3 || head[7] < 1) {
            fprintf(stderr, "ask: line %ld is not a question\n", number);
            return 2;
        }
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < head[3]; j++)
                v[i][j] = strtoll(at, &at, 10);
        skip_products = no_products && head[0] < 2 && v[1][0] * v[1][1] * (head[3] > 2 ? v[1][2] : 1) == 1;
        convolution((int)head[0], (int)head[1], (int)head[2], (int)head[3], head[4], head[5], head[6], head[7], v);
    }
    return 0;
}
