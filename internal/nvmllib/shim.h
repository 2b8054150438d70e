/* shim.h: the functions of shim.c that Go calls. */
#ifndef VPROF_SHIM_H
#define VPROF_SHIM_H

/* Loads the library and looks up every symbol. Returns NULL, or an error message that is valid until the next call. */
const char *vprof_nvml_load(const char *path);

#endif
