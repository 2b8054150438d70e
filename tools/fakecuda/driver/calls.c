/* calls.c: code around every call, and the environment variables that configure the driver.
 *
 *   FAKECUDA        GPUs, separated by ';'. A GPU has fields separated by ',': name=, cc=86, sms=, threads=,
 *                   memory=, context=, module=, mode=, mig=, id=, other=PID:NAME:BYTES (repeatable)
 *   FAKECUDA_FAIL   failures, separated by ',': N:RESULT fails the Nth call, NAME:N:RESULT the Nth call of
 *                   that name, counted from 1
 *   FAKECUDA_HANG   NAME:N, the Nth call of that name, also of NVML, blocks until the library is restarted
 *   FAKECUDA_TAKE   N:BYTES, another process allocates so many bytes of the first GPU at the Nth call
 *   FAKECUDA_STATS  a file for the statistics
 *   FAKECUDA_LOG    a file with a line for each call: its name and result, and rules that it broke
 *   FAKECUDA_VERSION  the CUDA version that cuDriverGetVersion returns
 *   FAKECUDA_BACKED=1 backs device memory by host memory, so that copies and kernels run
 *   FAKECUDA_GENUINE=1 does so for the first launches of a context; a launch takes 100 ms of device time, or 10 us
 *   with FAKECUDA_FAST=1
 *   FAKECUDA_SICK=PREFIX makes kernels whose names begin so write wrong results, if kernels run */
#define _GNU_SOURCE
#include "fake.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

gpu gpus[MAX_GPUS];
int ngpus, backed, genuine, fast;
char wrong_kernels[32];
static statistics unread_stats; /* used without FAKECUDA_STATS */
statistics *stats = &unread_stats;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int started;
static FILE *log_file;
static char current_call[64]; /* name of the call that runs */

/* ---- injected failures ---------------------------------------------------------------------- */

enum { MAX_FAILURES = 8 };
static struct { char name[64]; uint64_t after; int result; } failures[MAX_FAILURES];
static int nfailures;

static void read_failures(char *list)
{
    char *save = NULL;
    for (char *f = strtok_r(list, ",", &save); f && nfailures < MAX_FAILURES; f = strtok_r(NULL, ",", &save)) {
        unsigned long long after;
        if (sscanf(f, "%llu:%d", &after, &failures[nfailures].result) != 2 &&
            sscanf(f, "%63[a-zA-Z0-9_]:%llu:%d", failures[nfailures].name, &after, &failures[nfailures].result) != 3) {
            fprintf(stderr, "fakecuda: FAKECUDA_FAIL: %s\n", f);
            abort();
        }
        failures[nfailures++].after = after;
    }
}

/* Reports whether a result destroys the context: later calls return it, too. */
static int is_fatal(int result)
{
    return result == 214 || result == 220 || result == 700 || result == 702 || (result >= 714 && result <= 719) || result == 999;
}

static int injected(const char *name)
{
    int result = 0;
    for (int i = 0; i < nfailures; i++)
        if ((!failures[i].name[0] || !strcmp(failures[i].name, name)) && failures[i].after && --failures[i].after == 0)
            result = failures[i].result;
    return result;
}

/* ---- events during a run --------------------------------------------------------------------------- */

static struct { char name[64]; unsigned long long after; } hanging;
static struct { unsigned long long after, bytes; } taking;
static unsigned restarts;

/* Blocks the call that FAKECUDA_HANG names until the library is restarted. The lock is released meanwhile. */
static void wait_if_hanging(const char *name)
{
    if (strcmp(hanging.name, name) || !hanging.after || --hanging.after)
        return;
    for (unsigned before = restarts; before == restarts;) {
        pthread_mutex_unlock(&lock);
        usleep(1000);
        pthread_mutex_lock(&lock);
    }
}

void block_if_hanging(const char *name)
{
    pthread_mutex_lock(&lock);
    wait_if_hanging(name);
    pthread_mutex_unlock(&lock);
}

/* Counts calls, and lets another process allocate memory at the call that FAKECUDA_TAKE names. */
static void take_memory(void)
{
    if (!taking.after || --taking.after)
        return;
    gpu *b = &gpus[0];
    b->others[b->nothers].pid = 9999;
    snprintf(b->others[b->nothers].name, sizeof b->others->name, "python3");
    b->others[b->nothers++].bytes = taking.bytes;
}

/* ---- the environment ------------------------------------------------------------------------ */

int configured(const char *name, char *value, size_t size)
{
    const char *v = getenv(name);
    if (!v || !*v)
        return 0;
    snprintf(value, size, "%s", v);
    return 1;
}

static void read_field(gpu *b, const char *key, const char *value)
{
    unsigned long long n = strtoull(value, NULL, 10);
    if (!strcmp(key, "name")) snprintf(b->name, sizeof b->name, "%s", value);
    else if (!strcmp(key, "cc")) b->major = (int)n / 10, b->minor = (int)n % 10;
    else if (!strcmp(key, "sms")) b->sms = (int)n;
    else if (!strcmp(key, "mhz")) b->mhz = (int)n;
    else if (!strcmp(key, "threads")) b->threads = (int)n;
    else if (!strcmp(key, "memory")) b->memory = n;
    else if (!strcmp(key, "context")) b->context = n;
    else if (!strcmp(key, "module")) b->module = n;
    else if (!strcmp(key, "adds")) b->segment_extra = n;
    else if (!strcmp(key, "mode")) b->mode = (int)n;
    else if (!strcmp(key, "mig")) b->mig = (int)n;
    else if (!strcmp(key, "integrated")) b->integrated = (int)n;
    else if (!strcmp(key, "mps")) b->mps = (int)n;
    else if (!strcmp(key, "display")) b->display = (int)n;
    else if (!strcmp(key, "unlisted")) b->unlisted = (int)n;
    else if (!strcmp(key, "unpaged")) b->unpaged = (int)n;
    else if (!strcmp(key, "spills")) b->spills = (int)n;
    else if (!strcmp(key, "id")) b->id = (int)n;
    else if (!strcmp(key, "other") && b->nothers < MAX_OTHERS) {
        unsigned long long bytes = 0;
        if (sscanf(value, "%u:%31[^:]:%llu", &b->others[b->nothers].pid, b->others[b->nothers].name, &bytes) == 3)
            b->others[b->nothers++].bytes = bytes;
    } else {
        fprintf(stderr, "fakecuda: FAKECUDA: %s=%s\n", key, value);
        abort();
    }
}

static void read_gpus(char *list)
{
    char *gpus_left = NULL, *fields_left = NULL;
    for (char *one = strtok_r(list, ";", &gpus_left); one && ngpus < MAX_GPUS; one = strtok_r(NULL, ";", &gpus_left)) {
        gpu *b = &gpus[ngpus++];
        for (char *field = strtok_r(one, ",", &fields_left); field; field = strtok_r(NULL, ",", &fields_left)) {
            char *equals = strchr(field, '=');
            if (equals)
                *equals = 0;
            read_field(b, field, equals ? equals + 1 : "");
        }
    }
}

static void read_environment(void)
{
    char text[4096];
    if (configured("FAKECUDA", text, sizeof text))
        read_gpus(text);
    if (configured("FAKECUDA_FAIL", text, sizeof text))
        read_failures(text);
    if (configured("FAKECUDA_HANG", text, sizeof text))
        sscanf(text, "%63[a-zA-Z0-9_]:%llu", hanging.name, &hanging.after);
    if (configured("FAKECUDA_TAKE", text, sizeof text))
        sscanf(text, "%llu:%llu", &taking.after, &taking.bytes);
    if (configured("FAKECUDA_LOG", text, sizeof text) && (log_file = fopen(text, "we")))
        setvbuf(log_file, NULL, _IOLBF, 0);
    if (configured("FAKECUDA_STATS", text, sizeof text)) {
        int fd = open(text, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        void *p = MAP_FAILED;
        if (fd >= 0 && ftruncate(fd, sizeof unread_stats) == 0)
            p = mmap(NULL, sizeof unread_stats, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            perror("fakecuda: FAKECUDA_STATS");
            abort();
        }
        stats = p;
        close(fd);
    }
    backed = configured("FAKECUDA_BACKED", text, sizeof text);
    genuine = configured("FAKECUDA_GENUINE", text, sizeof text);
    fast = configured("FAKECUDA_FAST", text, sizeof text);
    if (!configured("FAKECUDA_SICK", wrong_kernels, sizeof wrong_kernels))
        wrong_kernels[0] = 0;
}

/* ---- calls ---------------------------------------------------------------------------------- */

int initialized, lost, current_gpu = -1;
uint64_t context_number;
__thread uint64_t my_context; /* number of the context that is current on this thread */

void start(void)
{
    pthread_mutex_lock(&lock);
    if (!started++)
        read_environment();
    pthread_mutex_unlock(&lock);
}

/* Reads the environment again, for a test that simulates one machine after another. */
API void fakecuda_restart(void)
{
    pthread_mutex_lock(&lock);
    if (current_gpu >= 0)
        end_context();
    if (stats != &unread_stats)
        munmap(stats, sizeof unread_stats);
    if (log_file)
        fclose(log_file);
    stats = &unread_stats;
    unread_stats = (statistics){0};
    log_file = NULL;
    memset(gpus, 0, sizeof gpus);
    memset(failures, 0, sizeof failures);
    hanging.after = taking.after = 0;
    restarts++;
    ngpus = nfailures = initialized = lost = 0;
    current_gpu = -1;
    forget_nvml();
    read_environment();
    started = 1;
    pthread_mutex_unlock(&lock);
}

static int answer(const char *name, enum needs needs)
{
    int result = injected(name);
    if (result) {
        stats->injected++;
        if (needs == CONTEXT && is_fatal(result))
            lost = result;
        return result;
    }
    if (needs >= DRIVER && !initialized)
        return violation(NOT_INITIALIZED, "cuInit was not called");
    if (needs >= CONTEXT && (current_gpu < 0 || my_context != context_number))
        return violation(INVALID_CONTEXT, "no context on this thread");
    return needs >= CONTEXT ? lost : 0;
}

int enter(const char *name, enum needs needs)
{
    start();
    pthread_mutex_lock(&lock);
    stats->calls++;
    wait_if_hanging(name);
    take_memory();
    snprintf(current_call, sizeof current_call, "%s", name);
    int result = answer(name, needs);
    if (log_file)
        fprintf(log_file, "%s %d\n", name, result);
    return result;
}

void leave(int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&lock);
}

int violation(int result, const char *format, ...)
{
    stats->violations++;
    if (log_file) {
        va_list args;
        va_start(args, format);
        fprintf(log_file, "violation in %s: ", current_call);
        vfprintf(log_file, format, args);
        fputc('\n', log_file);
        va_end(args);
    }
    return result;
}

void advance_clock(uint64_t nanoseconds) { stats->seconds_e9 += nanoseconds; }

int nth_gpu(int n, int other_than)
{
    for (int i = 0; i < ngpus; i++)
        if (gpus[i].mig != other_than && n-- == 0)
            return i;
    return -1;
}

/* ---- physical memory ------------------------------------------------------------------------ */

uint64_t used_by_others(const gpu *b)
{
    uint64_t sum = 0;
    for (int i = 0; i < b->nothers; i++)
        sum += b->others[i].bytes;
    return sum;
}

int charge(gpu *b, uint64_t bytes)
{
    uint64_t taken = b->used + used_by_others(b);
    if (!b->spills && (taken > b->memory || bytes > b->memory - taken))
        return 0;
    b->used += bytes;
    stats->used += bytes;
    if (stats->used > stats->peak)
        stats->peak = stats->used;
    return 1;
}
