/* module.c: modules, functions and launches. */
#include "fake.h"
#include "run.h" /* from kernels/cudac */

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FUNCTIONS = 256 };
typedef struct module module;
typedef struct { module *module; char name[64]; } function;
struct module {
    int alive, arch;
    uint64_t phys;
    function functions[MAX_FUNCTIONS];
    int nfunctions;
    module *next;
};
static module *modules; /* every module ever loaded, to detect stale handles */

static int launched; /* launches in this context, counted up to PROOF */
static int results_read; /* a genuine driver has shown results of PROOF launches, and is no longer backed */

void reclaim_modules(void)
{
    for (module *m = modules; m; m = m->next)
        if (m->alive) {
            stats->reclaimed++;
            m->alive = 0;
            gpus[current_gpu].used -= m->phys;
            stats->used -= m->phys;
        }
    stats->modules = 0;
    launched = results_read = 0;
}

/* Returns the newest PTX version that the driver accepts, times ten: 78 for CUDA 11.8, 80 for 12.0, 90 for 13.0. */
static int newest_ptx(void)
{
    char text[16];
    int version = configured("FAKECUDA_VERSION", text, sizeof text) ? atoi(text) : 13000;
    return version < 12000 ? 70 + version % 1000 / 10 : (version / 1000 - 4) * 10 + version % 1000 / 10;
}

/* Charges the GPU for a module's code, once per module. Returns 0 if memory is exhausted. */
static int allocate_code(module *m)
{
    gpu *b = &gpus[current_gpu];
    if (m->phys || !charge(b, b->module))
        return m->phys != 0;
    m->phys = b->module;
    return 1;
}

static void add_function(module *m, const char *name, size_t length)
{
    if (m->nfunctions == MAX_FUNCTIONS)
        return;
    function *f = &m->functions[m->nfunctions++];
    f->module = m;
    snprintf(f->name, sizeof f->name, "%.*s", (int)length, name);
}

/* Reads the kernels (.entry), the version and the target of PTX. */
static int read_ptx(module *m, const char *ptx)
{
    static const char entry[] = ".entry ";
    int major, minor;
    const char *version = strstr(ptx, ".version "), *target = strstr(ptx, ".target sm_");
    if (!version || sscanf(version, ".version %d.%d", &major, &minor) != 2)
        return violation(INVALID_IMAGE, "neither PTX nor a cubin");
    if (10 * major + minor > newest_ptx())
        return UNSUPPORTED_PTX_VERSION;
    for (const char *p = ptx; (p = strstr(p, entry));) {
        p += strlen(entry);
        add_function(m, p, strcspn(p, "( \n"));
    }
    m->arch = target ? atoi(target + strlen(".target sm_")) : 0;
    return SUCCESS;
}

/* Reads a cubin: an ELF file with the architecture in its flags and a section .text.NAME for each kernel. It runs on
 * GPUs of the same major and at least the same minor capability. */
static int read_cubin(module *m, const char *image)
{
    enum { CUDA = 190, EARLIER_ABI = 0x33 };
    static const char text[] = ".text.";
    const Elf64_Ehdr *elf = (const void *)image;
    const gpu *b = &gpus[current_gpu];
    if (elf->e_machine != CUDA)
        return violation(INVALID_IMAGE, "an ELF file for machine %d", elf->e_machine);
    int arch = image[EI_OSABI] == EARLIER_ABI ? elf->e_flags & 0xff : elf->e_flags >> 8 & 0xff;
    if (arch / 10 != b->major || arch % 10 > b->minor)
        return NO_BINARY;
    const Elf64_Shdr *sections = (const void *)(image + elf->e_shoff);
    const char *names = image + sections[elf->e_shstrndx].sh_offset;
    for (int i = 0; i < elf->e_shnum; i++) {
        const char *name = names + sections[i].sh_name;
        if (!strncmp(name, text, strlen(text)))
            add_function(m, name + strlen(text), strlen(name) - strlen(text));
    }
    m->arch = arch < 80 ? arch : 80; /* the sources are the same from sm_80 on */
    return SUCCESS;
}

API int cuModuleLoadDataEx(module **out, const char *image, unsigned n, void *options, void *values)
{
    CALL(cuModuleLoadDataEx, CONTEXT);
    (void)n, (void)options, (void)values;
    module *m = calloc(1, sizeof *m);
    int result = memcmp(image, ELFMAG, SELFMAG) ? read_ptx(m, image) : read_cubin(m, image);
    if (!result && eager && !allocate_code(m))
        result = OUT_OF_MEMORY;
    if (result) {
        free(m);
        return result;
    }
    m->alive = 1;
    m->next = modules;
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
    gpus[current_gpu].used -= m->phys;
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
            return allocate_code(m) ? SUCCESS : OUT_OF_MEMORY;
        }
    return NOT_FOUND;
}

/* Called at a free: after PROOF launches, the caller has read the results. */
void note_free(void) { results_read |= launched >= PROOF; }

int is_backed(void) { return backed || (genuine && !results_read); }

/* Returns the index of the argument that is the output address, for products, convolutions and attention. */
static int result_of(const char *name) { return !strncmp(name, "gemm_", 5) ? 6 : !strncmp(name, "conv_", 5) ? 2 : 3; }

/* Runs a kernel on the CPU. */
static int run(const function *f, const unsigned *grid, const unsigned *block, unsigned shared, void **params)
{
    if (host_arguments(f->module->arch, f->name) < 0)
        return violation(NOT_FOUND, "%s cannot be run", f->name);
    const char *problem = host_launch(f->module->arch, f->name, grid, block, shared, params[0], 0, 0);
    if (!problem && wrong_kernels[0] && !strncmp(f->name, wrong_kernels, strlen(wrong_kernels)))
        ((unsigned char *)((uint64_t *)params[0])[result_of(f->name)])[1] ^= 0x40;
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
    int runs = is_backed() && (backed || launched < PROOF);
    stats->launches++;
    launched += launched < PROOF;
    advance_clock(genuine && !fast ? 100000000 : 10000);
    return runs ? run(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, params) : SUCCESS;
}
