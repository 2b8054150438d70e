//go:build cgo && linux

// The kernels of the sm_80 module, compiled for the CPU.
#include "host.h"
#define ARCH 800
namespace sm_80 {
#include "kernels.cu"
}
