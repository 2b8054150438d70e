//go:build linux && cgo

/* shim.c: defines the symbols of libnvidia-ml.so.1. Each is a jump through a pointer (slot) that vprof_nvml_load
 * sets. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stddef.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* The initial value of every slot: returns NVML_ERROR_FUNCTION_NOT_FOUND. */
static int missing(void) { return 13; }

#define X(name) HIDDEN void *vprof_slot_##name = (void *)missing;
#include "syms.h"
#undef X

/* The jumps. They have hidden visibility, so that the library itself does not bind to them. */
#if defined(__x86_64__)
#define JUMP(name) "jmp *vprof_slot_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name) "adrp x16, vprof_slot_" #name "\nldr x16, [x16, :lo12:vprof_slot_" #name "]\nbr x16\n"
#else
#error "no NVML on this processor: add its jump"
#endif
#define X(name)                                                                                        \
    __asm__(".text\n.globl " #name "\n.hidden " #name "\n.type " #name ", %function\n" #name ":\n"       \
            JUMP(name) ".size " #name ", .-" #name "\n");
#include "syms.h"
#undef X

static const char *(*error_string)(int);

HIDDEN const char *nvmlErrorString(int result) { return error_string ? error_string(result) : "unknown error"; }

static const struct { const char *name; void **slot; } table[] = {
#define X(name) {#name, &vprof_slot_##name},
#include "syms.h"
#undef X
};

const char *vprof_nvml_load(const char *path)
{
    static void *library;
    if (library)
        return NULL;
    library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return dlerror();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        void *found = dlsym(library, table[i].name);
        if (found)
            *table[i].slot = found;
    }
    *(void **)&error_string = dlsym(library, "nvmlErrorString");
    return NULL;
}
