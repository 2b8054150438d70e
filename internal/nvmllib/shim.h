/* shim.h: what shim.c offers to Go. */
#ifndef VPROF_SHIM_H
#define VPROF_SHIM_H

/* Loads the library and looks up every symbol. Returns NULL, or what went wrong, which lives until the
 * next call. */
const char *vprof_nvml_load(const char *path);

#endif
