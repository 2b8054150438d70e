// Launches of kernels on the CPU, for Go and for the tests' driver.
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// A stretch of memory that kernels may touch. marks has a byte for each of
// data: reads in the lower half, writes in the upper, at most 15 of each; it
// may be null.
typedef struct host_range {
  char *data;
  size_t bytes;
  unsigned char *marks;
} host_range;

void host_register(host_range *r);
void host_forget(host_range *r);

// HOST_CHECKED: memory outside of the registered ranges must not be touched.
// HOST_BACKWARD: blocks and threads run in falling order; a kernel that lacks
// a barrier then gives another result.
enum { HOST_CHECKED = 1, HOST_BACKWARD = 2 };

// The size in bytes of a kernel's arguments, or -1 if there is no such kernel.
int host_arguments(int arch, const char *name);

// Runs a launch to its end, but for the blocks before the first. Returns what is wrong with it, or
// null. Only one may run at a time.
const char *host_launch(int arch, const char *name, const unsigned *grid, const unsigned *block, unsigned shared,
                        const void *args, unsigned long long first, int flags);

#ifdef __cplusplus
}
#endif
