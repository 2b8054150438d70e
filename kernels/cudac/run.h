// Launches of kernels on the CPU, for Go and for the fake driver of tests.
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// A range of memory that kernels may access. marks has a byte for each byte of data: the number of reads in the lower
// four bits and of writes in the upper four, at most 15 each. It may be null.
typedef struct host_range {
  char *data;
  size_t bytes;
  unsigned char *marks;
} host_range;

void host_register(host_range *r);
void host_forget(host_range *r);

// HOST_CHECKED: an access outside the registered ranges is an error. HOST_BACKWARD: blocks and threads run in
// descending order; a kernel that lacks a barrier then gives another result.
enum { HOST_CHECKED = 1, HOST_BACKWARD = 2 };

// Returns the size in bytes of a kernel's arguments, or -1 if there is no such kernel.
int host_arguments(int arch, const char *name);

// Runs all blocks of a launch, beginning with block number first. Returns an error message or null. Only one launch may
// run at a time.
const char *host_launch(int arch, const char *name, const unsigned *grid, const unsigned *block, unsigned shared,
                        const void *args, unsigned long long first, int flags);

#ifdef __cplusplus
}
#endif
