/* defaults.c: weak definitions of all functions of names.inc, used unless another file defines them. */
#include "question.h"

#include <stdio.h>
#include <string.h>

/* called: number of calls. makes: whether the function creates objects, so that its results are handles, not NULL. */
typedef struct { const char *name, *outs; int called, makes; } row;

enum { SLOTS = 21 };

/* Returns a unique handle: PyTorch keeps workspaces by handle. Handles are never dereferenced. */
static uint64_t new_handle(void)
{
    static uint64_t last = 0x1000;
    lock();
    uint64_t made = last += 16;
    unlock();
    return made;
}

/* Asks vprof for a size that is unknown, so that vprof reports the function. */
static void count_unknown(const char *name)
{
    question q = {0};
    put(&q, "size %s", name);
    reply(&q);
}

static long answer(row *r, void *const *arguments)
{
    if (!r->called++) {
        note("default %s", r->name);
        r->makes = strstr(r->name, "Create") != NULL;
        if (strstr(r->name, "ufferSize") || strstr(r->name, "WorkspaceSize"))
            count_unknown(r->name);
    }
    int slot, size, length, matrices;
    for (const char *p = r->outs; sscanf(p, " %d:%d%n", &slot, &size, &length) == 2; p += length) {
        if (slot >= SLOTS || !arguments[slot])
            continue;
        if (sscanf(p + length, "*%d%n", &matrices, &size) == 1) {
            memset(arguments[slot], 0, 4 * (size_t)(unsigned)(uintptr_t)arguments[matrices]);
            length += size;
        } else
            memcpy(arguments[slot], &(uint64_t){r->makes && size == 8 ? new_handle() : 0}, (size_t)size);
    }
    return 0;
}

/* The arguments are declared as pointers. Integers and pointers are passed the same way by the calling convention. */
#define ARGUMENT(n) void *a##n
#define NAME(name, outs)                                                                                           \
    API __attribute__((weak)) long name(ARGUMENT(0), ARGUMENT(1), ARGUMENT(2), ARGUMENT(3), ARGUMENT(4),           \
                                        ARGUMENT(5), ARGUMENT(6), ARGUMENT(7), ARGUMENT(8), ARGUMENT(9),           \
                                        ARGUMENT(10), ARGUMENT(11), ARGUMENT(12), ARGUMENT(13), ARGUMENT(14),      \
                                        ARGUMENT(15), ARGUMENT(16), ARGUMENT(17), ARGUMENT(18), ARGUMENT(19),      \
                                        ARGUMENT(20))                                                              \
    {                                                                                                              \
        static row r = {#name, outs, 0, 0};                                                                        \
        return answer(&r, (void *[SLOTS]){a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15,    \
                                          a16, a17, a18, a19, a20});                                               \
    }
#include "names.inc"
API int nvshmem_selected_device_transport; /* a variable that NVSHMEM exports */
