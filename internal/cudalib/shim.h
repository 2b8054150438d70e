/* shim.h: what shim.c offers to Go. */
#ifndef VPROF_SHIM_H
#define VPROF_SHIM_H

/* Loads the library and looks up every symbol. Returns NULL, or what went wrong, which lives until the
 * next call. The missing symbols only show when they are called. */
const char *vprof_cuda_load(const char *path);

/* The real cuInit of the library loaded; 303 (shared object initialization failed) without one. */
int vprof_cuInit(void);

/* Whether the library has a symbol that the program can call. */
int vprof_cuda_has(const char *symbol);

/* The file that the library was loaded from, or an empty string. */
const char *vprof_cuda_path(void);

#endif
