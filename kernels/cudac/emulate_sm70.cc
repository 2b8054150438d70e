//go:build cgo && linux

// The kernels of the sm_70 module, compiled for the CPU.
#include "host.h"
#define ARCH 700
namespace sm_70 {
#include "kernels.cu"
}
