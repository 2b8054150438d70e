/* nvrtc.c: NVRTC, for environments without it. Its programs are empty, since kernels do nothing. Other functions are
 * in names.inc. */
#include "core.h"

API const char *nvrtcGetErrorString(int error) { return error ? "NVRTC_ERROR" : "NVRTC_SUCCESS"; }

API int nvrtcVersion(int *major, int *minor)
{
    int version = (int)(spec.runtime ? spec.runtime : spec.driver);
    *major = version / 1000;
    *minor = version % 1000 / 10;
    return 0;
}

/* The name is returned unchanged: cuModuleGetFunction ignores it. */
API int nvrtcGetLoweredName(void *program, const char *name, const char **lowered)
{
    (void)program;
    *lowered = name;
    return 0;
}
