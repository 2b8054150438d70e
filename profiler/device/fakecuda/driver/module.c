/* module.c: modules, functions and launches. */
#include "fake.h"
#include "run.h" /* of kernels/cudac */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FUNCTIONS = 256 };
typedef struct module module;
typedef struct { module *module; char name[64]; } function;
struct module {
    int alive, arch;
    uint64_t phys;
    function functions[MAX_FUNCTIONS]; /* the entries of the PTX */
    int nfunctions;
    module *next;
};
static module *modules; /* all that ever were, so that stale handles are recognized */

static int launched; /* by the context, as far as that matters */
static int believed; /* a genuine driver has run what a device is tried with */

void reclaim_modules(void)
{
    for (module *m = modules; m; m = m->next)
        if (m->alive) {
            stats->reclaimed++;
            m->alive = 0;
            boards[current_board].used -= m->phys;
            stats->used -= m->phys;
        }
    stats->modules = 0;
    launched = believed = 0;
}

/* The PTX version that the driver's compiler takes, times ten: 7.8 came with CUDA 11.8, 8.0 with 12.0,
 * 9.0 with 13.0. */
static int newest_ptx(void)
{
    char text[16];
    int version = configured("FAKECUDA_VERSION", text, sizeof text) ? atoi(text) : 13000;
    return version < 12000 ? 70 + version % 1000 / 10 : (version / 1000 - 4) * 10 + version % 1000 / 10;
}

/* Takes the memory of the module's code, unless it has it. */
static int occupy(module *m)
{
    board *b = &boards[current_board];
    if (m->phys || !charge(b, b->module))
        return m->phys != 0;
    m->phys = b->module;
    return 1;
}

static void read_entries(module *m, const char *ptx)
{
    static const char entry[] = ".entry ";
    for (const char *p = ptx; (p = strstr(p, entry)) && m->nfunctions < MAX_FUNCTIONS;) {
        function *f = &m->functions[m->nfunctions++];
        f->module = m;
        p += strlen(entry);
        snprintf(f->name, sizeof f->name, "%.*s", (int)strcspn(p, "( \n"), p);
    }
}

API int cuModuleLoadDataEx(module **out, const char *image, unsigned n, void *options, void *values)
{
    int major, minor;
    CALL(cuModuleLoadDataEx, CONTEXT);
    (void)n, (void)options, (void)values;
    const char *version = strstr(image, ".version ");
    if (!version || sscanf(version, ".version %d.%d", &major, &minor) != 2)
        return violation(INVALID_IMAGE, "no PTX");
    if (10 * major + minor > newest_ptx())
        return UNSUPPORTED_PTX_VERSION;
    module *m = calloc(1, sizeof *m);
    if (eager && !occupy(m))
        return free(m), OUT_OF_MEMORY;
    m->alive = 1;
    m->next = modules;
    read_entries(m, image);
    const char *target = strstr(image, ".target sm_");
    m->arch = target ? atoi(target + strlen(".target sm_")) : 0;
    modules = m;
    stats->modules++;
    *out = m;
    return SUCCESS;
}

static int is_module(const module *wanted)
{
    for (module *m = modules; m; m = m->next)
        if (m == wanted)
            return m->alive;
    return 0;
}

API int cuModuleUnload(module *m)
{
    CALL(cuModuleUnload, CONTEXT);
    if (!is_module(m))
        return violation(INVALID_HANDLE, "not a module");
    m->alive = 0;
    boards[current_board].used -= m->phys;
    stats->used -= m->phys;
    stats->modules--;
    return SUCCESS;
}

API int cuModuleGetFunction(function **out, module *m, const char *name)
{
    CALL(cuModuleGetFunction, CONTEXT);
    if (!is_module(m))
        return violation(INVALID_HANDLE, "not a module");
    for (int i = 0; i < m->nfunctions; i++)
        if (!strcmp(m->functions[i].name, name)) {
            *out = &m->functions[i];
            return occupy(m) ? SUCCESS : OUT_OF_MEMORY;
        }
    return NOT_FOUND;
}

/* Whoever frees memory after the proof has its result. */
void believe(void) { believed |= launched >= PROOF; }

int backs(void) { return backed || (genuine && !believed); }

/* The kernels run on the CPU. What gemm_* writes is the third matrix of its arguments. */
static int run(const function *f, const unsigned *grid, const unsigned *block, unsigned shared, void **params)
{
    if (host_arguments(f->module->arch, f->name) < 0)
        return violation(NOT_FOUND, "%s cannot be run", f->name);
    const char *problem = host_launch(f->module->arch, f->name, grid, block, shared, params[0], 0);
    if (!problem && sick && !strncmp(f->name, "gemm_", 5))
        *(unsigned char *)((uint64_t *)params[0])[6] ^= 0x40;
    return problem ? violation(ILLEGAL_ADDRESS, "%s: %s", f->name, problem) : SUCCESS;
}

API int cuLaunchKernel(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, void *stream, void **params, void **extra)
{
    CALL(cuLaunchKernel, CONTEXT);
    (void)stream;
    if (!f || !is_module(f->module))
        return violation(INVALID_HANDLE, "not a function");
    if (!gx || !gy || !gz || gx > 0x7fffffff || gy > 65535 || gz > 65535 || !bx || !by || !bz || bz > 64 ||
        (uint64_t)bx * by * bz > 1024 || shared > 48 * 1024 || !params || extra)
        return violation(INVALID_VALUE, "%s: grid %u %u %u, block %u %u %u, %u bytes shared", f->name, gx, gy, gz, bx, by, bz, shared);
    int runs = backs() && (backed || launched < PROOF);
    stats->launches++;
    launched += launched < PROOF;
    spend(genuine && !fast ? 100000000 : 10000);
    return runs ? run(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, params) : SUCCESS;
}
