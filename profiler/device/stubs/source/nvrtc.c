/* nvrtc.c: the compiler of kernels at run time, for environments without it. Its programs are empty, since kernels
 * do nothing; what else it has is in names.inc. */
#include "core.h"

API const char *nvrtcGetErrorString(int error) { return error ? "NVRTC_ERROR" : "NVRTC_SUCCESS"; }

API int nvrtcVersion(int *major, int *minor)
{
    int version = (int)(spec.runtime ? spec.runtime : spec.driver);
    *major = version / 1000;
    *minor = version % 1000 / 10;
    return 0;
}

/* Nobody looks a function up by its name: see cuModuleGetFunction. */
API int nvrtcGetLoweredName(void *program, const char *name, const char **lowered)
{
    (void)program;
    *lowered = name;
    return 0;
}
