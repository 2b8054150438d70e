//go:build cuda && linux && cgo

/* shim.c: defines the symbols of libcuda.so.1. Each is a jump through a pointer (slot) that vprof_cuda_load sets. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* The initial value of every slot: returns CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND. */
static int missing(void) { return 302; }

#define X(name) HIDDEN void *vprof_slot_##name = (void *)missing;
#include "syms.h"
#undef X

/* The jumps. They have hidden visibility, so that the driver's own libraries do not bind to them. */
#if defined(__x86_64__)
#define JUMP(name) "jmp *vprof_slot_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name) "adrp x16, vprof_slot_" #name "\nldr x16, [x16, :lo12:vprof_slot_" #name "]\nbr x16\n"
#else
#error "no CUDA on this processor: add its jump"
#endif
#define X(name)                                                                                        \
    __asm__(".text\n.globl " #name "\n.hidden " #name "\n.type " #name ", %function\n" #name ":\n"       \
            JUMP(name) ".size " #name ", .-" #name "\n");
#include "syms.h"
#undef X

/* Called by package cu before main; see this package's comment. */
HIDDEN int cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}

static const struct { const char *name; void **slot; } table[] = {
#define X(name) {#name, &vprof_slot_##name},
#include "syms.h"
#undef X
};
enum { symbols = sizeof table / sizeof *table };

static void *library;
static int (*real_init)(unsigned);

const char *vprof_cuda_load(const char *path)
{
    if (library)
        return NULL;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return dlerror();
    *(void **)&real_init = dlsym(handle, "cuInit");
    if (!real_init) {
        const char *why = dlerror();
        dlclose(handle);
        return why;
    }
    for (size_t i = 0; i < symbols; i++) {
        void *found = dlsym(handle, table[i].name);
        if (found)
            *table[i].slot = found;
    }
    library = handle;
    return NULL;
}

int vprof_cuInit(void) { return real_init ? real_init(0) : 303; }

int vprof_cuda_has(const char *symbol)
{
    for (size_t i = 0; i < symbols; i++)
        if (!strcmp(table[i].name, symbol))
            return *table[i].slot != (void *)missing;
    return 0;
}

const char *vprof_cuda_path(void)
{
    struct link_map *map;
    if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map))
        return "";
    return map->l_name;
}
