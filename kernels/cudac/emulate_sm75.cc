//go:build cgo && linux

// The kernels of the sm_75 module, compiled for the CPU.
#include "host.h"
#define ARCH 750
namespace sm_75 {
#include "kernels.cu"
}
