/* memory.c: device memory. Its addresses are reserved in this process without access: no two objects share one, and
 * an access from the CPU faults, as with a real GPU. If the driver is backed, allocated memory is host memory. */
#define _GNU_SOURCE
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum kind { SEGMENT, RANGE, MAPPING, HANDLE };
typedef struct block {
    enum kind kind;
    uint64_t at, bytes, phys; /* phys: bytes charged to the GPU */
    int accessible;           /* of a mapping: access is set */
    struct block *handle;     /* of a mapping */
    int mappings, released;   /* of a handle */
    struct block *next;
} block;
static block *blocks;

static uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

static uint64_t *count_of(enum kind kind)
{
    switch (kind) {
    case SEGMENT: return &stats->segments;
    case RANGE: return &stats->ranges;
    case MAPPING: return &stats->mappings;
    default: return &stats->handles;
    }
}

static block *add(enum kind kind, uint64_t at, uint64_t bytes)
{
    block *b = calloc(1, sizeof *b);
    *b = (block){.kind = kind, .at = at, .bytes = bytes, .next = blocks};
    blocks = b;
    ++*count_of(kind);
    return b;
}

static void drop(block *removed)
{
    for (block **p = &blocks; *p; p = &(*p)->next)
        if (*p == removed) {
            *p = removed->next;
            break;
        }
    --*count_of(removed->kind);
    gpu *b = &gpus[current_gpu];
    b->used -= removed->phys;
    stats->used -= removed->phys;
    free(removed);
}

static block *find(enum kind kind, uint64_t at)
{
    for (block *b = blocks; b; b = b->next)
        if (b->kind == kind && b->at == at)
            return b;
    return NULL;
}

static int overlaps_any(uint64_t at, uint64_t bytes)
{
    for (block *b = blocks; b; b = b->next)
        if (b->kind != HANDLE && at < b->at + b->bytes && b->at < at + bytes)
            return 1;
    return 0;
}

/* Reserves addresses from an arena without memory; 0 on failure. Addresses are not reused and ascend, unless
 * FAKECUDA_ADDRESSES is "falling" or "random". The caching allocator prefers lower addresses, so its results depend
 * on this order. */
static uint64_t reserve(uint64_t bytes)
{
    static uint64_t next, end, begin, random = 1;
    uint64_t size = round_up(bytes, GRANULE);
    for (uint64_t arena = 16ull << 40; end - next < size; arena /= 2) {
        void *p = arena < size ? MAP_FAILED : mmap(NULL, arena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p != MAP_FAILED) {
            begin = next = round_up((uint64_t)(uintptr_t)p, GRANULE);
            end = ((uint64_t)(uintptr_t)p + arena) / GRANULE * GRANULE;
        } else if (arena < size) {
            return 0;
        }
    }
    next += size;
    char order[16] = "";
    configured("FAKECUDA_ADDRESSES", order, sizeof order);
    if (!strcmp(order, "falling"))
        return end - (next - begin);
    for (int tries = 0; !strcmp(order, "random") && tries < 1000; tries++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t at = begin + (random >> 20) % ((end - begin - size) / GRANULE) * GRANULE;
        if (!overlaps_any(at, size))
            return at;
    }
    return next - size;
}

static void set_backing(uint64_t at, uint64_t bytes, int on)
{
    if (is_backed())
        mmap((void *)(uintptr_t)at, round_up(bytes, GRANULE), on ? PROT_READ | PROT_WRITE : PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void reclaim_memory(void)
{
    while (blocks) {
        stats->reclaimed++;
        if (blocks->kind == SEGMENT || blocks->kind == MAPPING)
            set_backing(blocks->at, blocks->bytes, 0);
        drop(blocks);
    }
}

/* ---- plain allocations ---------------------------------------------------------------------- */

API int cuMemGetInfo_v2(size_t *available, size_t *total)
{
    CALL(cuMemGetInfo, CONTEXT);
    const gpu *b = &gpus[current_gpu];
    *total = b->memory;
    uint64_t taken = b->used + used_by_others(b);
    *available = taken < b->memory ? b->memory - taken : 0; /* less if allocations spill into host memory */
    return SUCCESS;
}

API int cuMemAlloc_v2(uint64_t *at, size_t bytes)
{
    CALL(cuMemAlloc, CONTEXT);
    if (!bytes)
        return violation(INVALID_VALUE, "an allocation of nothing");
    uint64_t phys = round_up(bytes, GRANULE) + gpus[current_gpu].segment_extra;
    if (phys < bytes || !charge(&gpus[current_gpu], phys))
        return OUT_OF_MEMORY;
    block *b = add(SEGMENT, reserve(bytes), bytes);
    b->phys = phys;
    set_backing(b->at, bytes, 1);
    *at = b->at;
    return SUCCESS;
}

API int cuMemFree_v2(uint64_t at)
{
    CALL(cuMemFree, CONTEXT);
    block *b = find(SEGMENT, at);
    if (!b)
        return violation(INVALID_VALUE, "%#llx is not allocated", (unsigned long long)at);
    set_backing(b->at, b->bytes, 0);
    note_free();
    drop(b);
    return SUCCESS;
}

/* ---- virtual memory management -------------------------------------------------------------- */

typedef struct { int type, id; } location;
typedef struct { int type, handle_types; location location; void *windows; unsigned char flags[8]; } properties;
typedef struct { location location; int flags; } access;

API int cuMemAddressReserve(uint64_t *at, size_t bytes, size_t alignment, uint64_t hint, unsigned long long flags)
{
    CALL(cuMemAddressReserve, CONTEXT);
    if (!bytes || bytes % GRANULE || alignment || hint || flags)
        return violation(INVALID_VALUE, "a range of %zu bytes", bytes);
    uint64_t got = reserve(bytes);
    if (!got)
        return OUT_OF_MEMORY;
    *at = add(RANGE, got, bytes)->at;
    return SUCCESS;
}

static int overlaps(enum kind kind, uint64_t at, uint64_t bytes)
{
    for (block *b = blocks; b; b = b->next)
        if (b->kind == kind && at < b->at + b->bytes && b->at < at + bytes)
            return 1;
    return 0;
}

API int cuMemAddressFree(uint64_t at, size_t bytes)
{
    CALL(cuMemAddressFree, CONTEXT);
    block *b = find(RANGE, at);
    if (!b || b->bytes != bytes || overlaps(MAPPING, at, bytes))
        return violation(INVALID_VALUE, "%#llx is no range of %zu bytes, or still mapped", (unsigned long long)at, bytes);
    drop(b);
    return SUCCESS;
}

API int cuMemCreate(uint64_t *handle, size_t bytes, const properties *p, unsigned long long flags)
{
    enum { PINNED = 1, ON_DEVICE = 1 };
    CALL(cuMemCreate, CONTEXT);
    if (!bytes || bytes % GRANULE || flags || p->type != PINNED || p->location.type != ON_DEVICE || p->location.id != current_gpu)
        return violation(INVALID_VALUE, "%zu bytes", bytes);
    if (!charge(&gpus[current_gpu], bytes))
        return OUT_OF_MEMORY;
    block *b = add(HANDLE, 0, bytes);
    b->phys = bytes;
    b->at = *handle = (uint64_t)(uintptr_t)b;
    return SUCCESS;
}

/* Destroys a handle that is released and has no mapping left. */
static void destroy_if_unused(block *handle)
{
    if (handle->released && !handle->mappings)
        drop(handle);
}

API int cuMemRelease(uint64_t handle)
{
    CALL(cuMemRelease, CONTEXT);
    block *b = find(HANDLE, handle);
    if (!b || b->released)
        return violation(INVALID_VALUE, "not a handle");
    b->released = 1;
    destroy_if_unused(b);
    return SUCCESS;
}

static int in_range(uint64_t at, uint64_t bytes)
{
    for (block *b = blocks; b; b = b->next)
        if (b->kind == RANGE && at >= b->at && at + bytes <= b->at + b->bytes)
            return 1;
    return 0;
}

API int cuMemMap(uint64_t at, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)
{
    CALL(cuMemMap, CONTEXT);
    block *h = find(HANDLE, handle);
    if (!h || h->released || h->bytes != bytes || offset || flags || !in_range(at, bytes) || overlaps(MAPPING, at, bytes))
        return violation(INVALID_VALUE, "%zu bytes at %#llx", bytes, (unsigned long long)at);
    add(MAPPING, at, bytes)->handle = h;
    h->mappings++;
    return SUCCESS;
}

API int cuMemSetAccess(uint64_t at, size_t bytes, const access *a, size_t n)
{
    enum { ON_DEVICE = 1, READ_WRITE = 3 };
    CALL(cuMemSetAccess, CONTEXT);
    block *m = find(MAPPING, at);
    if (!m || m->bytes != bytes || n != 1 || a->location.type != ON_DEVICE || a->location.id != current_gpu || a->flags != READ_WRITE)
        return violation(INVALID_VALUE, "%zu bytes at %#llx", bytes, (unsigned long long)at);
    m->accessible = 1;
    set_backing(at, bytes, 1);
    return SUCCESS;
}

API int cuMemUnmap(uint64_t at, size_t bytes)
{
    CALL(cuMemUnmap, CONTEXT);
    block *m = find(MAPPING, at);
    if (!m || m->bytes != bytes)
        return violation(INVALID_VALUE, "%zu bytes at %#llx are no mapping", bytes, (unsigned long long)at);
    set_backing(at, bytes, 0);
    block *h = m->handle;
    drop(m);
    h->mappings--;
    destroy_if_unused(h);
    return SUCCESS;
}

/* ---- copies --------------------------------------------------------------------------------- */

/* Reports whether all bytes of a range are allocated and accessible. */
int in_memory(uint64_t at, uint64_t bytes)
{
    for (uint64_t end = at + bytes; at < end;) {
        const block *found = NULL;
        for (const block *b = blocks; b && !found; b = b->next)
            if ((b->kind == SEGMENT || (b->kind == MAPPING && b->accessible)) && at >= b->at && at < b->at + b->bytes)
                found = b;
        if (!found)
            return 0;
        if (found->kind == SEGMENT)
            return end <= found->at + found->bytes;
        at = found->at + found->bytes;
    }
    return 1;
}

/* Advances the clock for a copy: 1 us, and 1 ps per byte. */
static void advance_for_copy(uint64_t bytes) { advance_clock(1000 + bytes / 1000); }

static int not_allocated(uint64_t at, uint64_t bytes)
{
    return violation(INVALID_VALUE, "%llu bytes at %#llx are not all allocated", (unsigned long long)bytes, (unsigned long long)at);
}

API int cuMemsetD8Async(uint64_t at, unsigned char value, size_t n, void *stream)
{
    CALL(cuMemsetD8Async, CONTEXT);
    (void)stream;
    if (!in_memory(at, n))
        return not_allocated(at, n);
    if (is_backed())
        memset((void *)(uintptr_t)at, value, n);
    advance_for_copy(n);
    return SUCCESS;
}

API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *stream)
{
    CALL(cuMemcpyDtoDAsync, CONTEXT);
    (void)stream;
    if (!in_memory(to, n) || !in_memory(from, n))
        return not_allocated(to, n);
    if (is_backed())
        memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, n);
    advance_for_copy(2 * n);
    return SUCCESS;
}

API int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n)
{
    CALL(cuMemcpyHtoD, CONTEXT);
    if (!in_memory(to, n))
        return not_allocated(to, n);
    if (is_backed())
        memcpy((void *)(uintptr_t)to, from, n);
    return SUCCESS;
}

API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n)
{
    CALL(cuMemcpyDtoH, CONTEXT);
    if (!in_memory(from, n))
        return not_allocated(from, n);
    if (is_backed())
        memcpy(to, (void *)(uintptr_t)from, n);
    else
        memset(to, 0, n);
    return SUCCESS;
}
