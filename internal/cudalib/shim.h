/* shim.h: the functions of shim.c that Go calls. */
#ifndef VPROF_SHIM_H
#define VPROF_SHIM_H

/* Loads the library and looks up every symbol. Returns NULL, or an error message that is valid until the next call.
 * A missing symbol is reported only when it is called. */
const char *vprof_cuda_load(const char *path);

/* Calls cuInit of the loaded library. Returns 303 (shared object initialization failed) if none is loaded. */
int vprof_cuInit(void);

/* Reports whether the loaded library has a symbol of syms.h. */
int vprof_cuda_has(const char *symbol);

/* Returns the path of the loaded library, or an empty string. */
const char *vprof_cuda_path(void);

#endif
