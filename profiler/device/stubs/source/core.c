/* core.c: the description of the GPUs, their memory, the log, and questions to vprof. */
#include "core.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define GIB (1024 * MIB)

/* The default GPU, used without VPROF_STUB_GPU. */
gpu_spec spec = {
    .name = "vprof", .memory = 24 * GIB, .context = 300 * MIB, .cc_major = 8, .cc_minor = 6, .sms = 82,
    .threads_per_sm = 1536, .warp = 32, .shared_per_block = 101376, .shared_per_sm = 102400, .l2 = 6 * MIB,
    .clock_khz = 1695000, .memory_clock_khz = 9751000, .bus_bits = 384, .driver = 13020, .count = 1, .pci = 1,
};
__thread int current_device;
double kernel_time;

static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
void lock(void) { pthread_mutex_lock(&mutex); }
void unlock(void) { pthread_mutex_unlock(&mutex); }

#define FIELD(name) {#name, &spec.name}
static const struct { const char *key; uint64_t *value; } fields[] = {
    FIELD(memory), FIELD(context), FIELD(cc_major), FIELD(cc_minor), FIELD(sms), FIELD(threads_per_sm), FIELD(warp),
    FIELD(shared_per_block), FIELD(shared_per_sm), FIELD(l2), FIELD(clock_khz), FIELD(memory_clock_khz),
    FIELD(bus_bits), FIELD(driver), FIELD(runtime), FIELD(cudnn), FIELD(cublas), FIELD(nccl), FIELD(count), FIELD(uuid), FIELD(pci),
    FIELD(rising),
};

static void read_line(char *line)
{
    line[strcspn(line, "\n")] = 0;
    char *value = strchr(line, ' ');
    if (!value)
        return;
    *value++ = 0;
    if (!strcmp(line, "name"))
        snprintf(spec.name, sizeof spec.name, "%s", value);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(line, fields[i].key))
            *fields[i].value = strtoull(value, NULL, 0);
}

__attribute__((constructor)) static void read_gpus(void)
{
    const char *path = getenv("VPROF_STUB_GPU");
    FILE *file = path ? fopen(path, "re") : NULL;
    char line[256];
    while (file && fgets(line, sizeof line, file))
        read_line(line);
    if (file)
        fclose(file);
    else if (path)
        fprintf(stderr, "vprof: VPROF_STUB_GPU: cannot read %s\n", path);
    if (spec.count > MAX_GPUS)
        spec.count = MAX_GPUS;
}

void note(const char *format, ...)
{
    const char *path = getenv("VPROF_STUB_LOG");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (file < 0)
        return;
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (n > (int)sizeof line - 2)
        n = sizeof line - 2;
    line[n++] = '\n';
    if (write(file, line, (size_t)n) < 0)
        perror("vprof: VPROF_STUB_LOG");
    close(file);
}

/* ---- questions to vprof --------------------------------------------------------------------- */

static int connect_to_vprof(void)
{
    const char *path = getenv("VPROF_ORACLE");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || strlen(path) >= sizeof to.sun_path)
        return -1;
    strcpy(to.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Sends a question and receives its answer. Each question opens a connection, so that forked children cannot receive
 * each other's answers. Returns 0 if there is no answer. */
static int ask_over_socket(const char *question, char *answer, size_t size)
{
    int fd = connect_to_vprof();
    if (fd < 0)
        return 0;
    size_t n = 0;
    if (send(fd, question, strlen(question), MSG_NOSIGNAL) > 0 && send(fd, "\n", 1, MSG_NOSIGNAL) > 0)
        for (ssize_t got; n < size - 1 && (got = recv(fd, answer + n, size - 1 - n, 0)) > 0;) {
            n += (size_t)got;
            if (memchr(answer, '\n', n))
                break;
        }
    answer[n] = 0;
    close(fd);
    return n > 0;
}

/* Answers by question: a script asks the same questions in every step. */
typedef struct known { char *question; uint64_t bytes; struct known *next; } known;

uint64_t ask(const char *question)
{
    static known *all;
    char answer[128] = "";
    lock();
    known *k = all;
    while (k && strcmp(k->question, question))
        k = k->next;
    if (!k && (k = calloc(1, sizeof *k)) && (k->question = strdup(question))) {
        if (!ask_over_socket(question, answer, sizeof answer))
            note("unanswered %s", question);
        k->bytes = strtoull(answer, NULL, 10);
        k->next = all;
        all = k;
    }
    unlock();
    return k ? k->bytes : 0;
}

/* ---- physical memory ------------------------------------------------------------------------ */

static struct { uint64_t used; int context; } gpus[MAX_GPUS];

void open_context(int device)
{
    lock();
    if (!gpus[device].context++)
        gpus[device].used += spec.context;
    unlock();
}

int has_context(int device) { return gpus[device].context > 0; }
uint64_t used(int device) { return gpus[device].used; }
uint64_t available(int device) { return gpus[device].used < spec.memory ? spec.memory - gpus[device].used : 0; }

int charge(int device, uint64_t bytes)
{
    lock();
    int fits = bytes <= available(device);
    if (fits)
        gpus[device].used += bytes;
    unlock();
    return fits;
}

void discharge(int device, uint64_t bytes)
{
    lock();
    gpus[device].used -= bytes;
    unlock();
}

/* ---- addresses ------------------------------------------------------------------------------ */

static uint64_t round_up(uint64_t n) { return (n + GRANULE - 1) / GRANULE * GRANULE; }

uint64_t reserve(uint64_t bytes)
{
    static uint64_t next, end;
    uint64_t size = round_up(bytes), at = 0;
    lock();
    for (uint64_t arena = 16 * 1024 * GIB; end - next < size && arena >= size; arena /= 2) {
        void *p = mmap(NULL, arena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p != MAP_FAILED) {
            next = round_up((uint64_t)(uintptr_t)p);
            end = ((uint64_t)(uintptr_t)p + arena) / GRANULE * GRANULE;
        }
    }
    if (end - next >= size) {
        at = spec.rising ? next : end - size;
        if (spec.rising)
            next += size;
        else
            end = at;
    }
    unlock();
    return at;
}

void set_backing(uint64_t at, uint64_t bytes, int on)
{
    void *p = mmap((void *)(uintptr_t)at, round_up(bytes), on ? PROT_READ | PROT_WRITE : PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (p == MAP_FAILED)
        note("no addresses for %llu bytes", (unsigned long long)bytes);
}

/* All blocks in ascending order of their addresses. */
static block *blocks;
static size_t nblocks, room;

static size_t index_of(uint64_t address) /* returns the index of the first block that ends above address */
{
    size_t low = 0, high = nblocks;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[middle].at + blocks[middle].bytes > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void add_block(uint64_t at, uint64_t bytes, int device)
{
    lock();
    if (nblocks == room)
        blocks = realloc(blocks, (room = 2 * room + 64) * sizeof *blocks);
    size_t i = index_of(at);
    memmove(blocks + i + 1, blocks + i, (nblocks++ - i) * sizeof *blocks);
    blocks[i] = (block){at, bytes, device};
    unlock();
}

int drop_block(uint64_t at, block *dropped)
{
    lock();
    size_t i = index_of(at);
    int found = i < nblocks && blocks[i].at == at;
    if (found) {
        *dropped = blocks[i];
        memmove(blocks + i, blocks + i + 1, (--nblocks - i) * sizeof *blocks);
    }
    unlock();
    return found;
}

const block *block_of(uint64_t address)
{
    static __thread block found;
    lock();
    size_t i = index_of(address);
    int inside = i < nblocks && blocks[i].at <= address;
    if (inside)
        found = blocks[i];
    unlock();
    return inside ? &found : NULL;
}

uint64_t allocate(int device, uint64_t bytes)
{
    uint64_t size = round_up(bytes), at;
    if (size < bytes || !charge(device, size))
        return 0;
    if (!(at = reserve(size))) {
        discharge(device, size);
        return 0;
    }
    set_backing(at, size, 1);
    add_block(at, size, device);
    return at;
}

int deallocate(uint64_t at)
{
    block removed;
    if (!drop_block(at, &removed))
        return 0;
    set_backing(removed.at, removed.bytes, 0);
    discharge(removed.device, removed.bytes);
    return 1;
}

/* ---- copies --------------------------------------------------------------------------------- */

enum { SMALL = MIB };

/* Host memory without values, mapped for absent weights (vprof_hook/placeholders.py). It reads as zeros. */
typedef struct placeholder { uintptr_t at; size_t bytes; struct placeholder *next; } placeholder;
static placeholder *placeholders;

/* Registers host memory without values, so that copy_bytes skips copies of it to the GPU: they would allocate host
 * memory. bytes 0 unregisters the memory at the address. */
API void vprof_placeholder(uintptr_t at, size_t bytes)
{
    lock();
    placeholder **p = &placeholders;
    while (!bytes && *p && (*p)->at != at)
        p = &(*p)->next;
    if (bytes) {
        placeholder *new = malloc(sizeof *new);
        *new = (placeholder){at, bytes, placeholders};
        placeholders = new;
    } else if (*p) {
        placeholder *removed = *p;
        *p = removed->next;
        free(removed);
    }
    unlock();
}

static int is_placeholder(uintptr_t at)
{
    lock();
    placeholder *p = placeholders;
    while (p && !(at >= p->at && at < p->at + p->bytes))
        p = p->next;
    unlock();
    return p != NULL;
}

void copy_bytes(void *to, const void *from, size_t n)
{
    if (n <= SMALL || !block_of((uintptr_t)to) || !(block_of((uintptr_t)from) || is_placeholder((uintptr_t)from)))
        memmove(to, from, n);
}

/* Sets device memory. Whole pages of zeros are returned to the host; other values are written to at most 64 MiB. */
void fill_bytes(void *at, int value, size_t n)
{
    uintptr_t page = 4096, begin = ((uintptr_t)at + page - 1) / page * page, end = ((uintptr_t)at + n) / page * page;
    if (n <= SMALL || value || end <= begin) {
        memset(at, value, n <= 64 * SMALL ? n : 64 * SMALL);
        return;
    }
    memset(at, 0, begin - (uintptr_t)at);
    madvise((void *)begin, end - begin, MADV_DONTNEED);
    memset((void *)end, 0, (uintptr_t)at + n - end);
}
