//go:build cuda && linux && cgo

package cudalib

/*
#cgo CFLAGS: -I${SRCDIR}/include
#cgo LDFLAGS: -L${SRCDIR}/link -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"os"
	"sync"
	"unsafe"
)

// PathVariable names the environment variable that holds the path of another
// driver library than the system's, as tests need it.
const PathVariable = "VPROF_LIBCUDA"

// soname is the library that NVIDIA's driver package installs. libcuda.so without a number belongs to toolkits and may
// be a stub.
const soname = "libcuda.so.1"

// A LoadError reports that the driver library cannot be loaded: there is no driver, or it is not for this machine.
type LoadError struct {
	// Path is the requested library, Reason the message of the dynamic loader.
	Path, Reason string
}

func (e *LoadError) Error() string { return "load " + e.Path + ": " + e.Reason }

var opening sync.Mutex

// Open loads the driver library, once, and initializes the driver. It returns a [*LoadError], or cuInit's [Result] if
// that is not a success; it can be tried again after either. What the driver reads from the environment, such as
// CUDA_VISIBLE_DEVICES, must be set before.
func Open() error {
	opening.Lock()
	defer opening.Unlock()
	if err := load(); err != nil {
		return err
	}
	return result(C.vprof_cuInit())
}

// Load loads the driver library, once, without initializing the driver. The error is a [*LoadError].
func Load() error {
	opening.Lock()
	defer opening.Unlock()
	return load()
}

func load() error {
	path := os.Getenv(PathVariable)
	if path != "" {
		return loadFrom(path)
	}
	err := loadFrom(soname)
	if err != nil && loadFrom(wslLibrary) == nil {
		return nil
	}
	return err
}

// wslLibrary is where WSL2 has the driver, which distributions do not always look in.
const wslLibrary = "/usr/lib/wsl/lib/" + soname

func loadFrom(path string) error {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if why := C.vprof_cuda_load(name); why != nil {
		return &LoadError{path, C.GoString(why)}
	}
	return nil
}

// Path returns the file that the library was loaded from; empty before.
func Path() string { return C.GoString(C.vprof_cuda_path()) }

// Missing returns the symbols that the loaded library lacks, as an old driver does.
func Missing(symbols ...string) []string {
	var missing []string
	for _, s := range symbols {
		name := C.CString(s)
		if C.vprof_cuda_has(name) == 0 {
			missing = append(missing, s)
		}
		C.free(unsafe.Pointer(name))
	}
	return missing
}
