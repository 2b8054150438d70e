//go:build linux && cgo

package nvmllib

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"unsafe"
)

// PathVariable names the environment variable that holds the path of another library than the system's, for tests.
const PathVariable = "VPROF_LIBNVML"

// soname is the library that NVIDIA's driver package installs. Under WSL2 it is in wslFolder, where distributions do
// not always look.
const soname = "libnvidia-ml.so.1"

var wslFolder = "/usr/lib/wsl/lib"

// Path returns the library that [Load] loads: a file name for the dynamic loader, or a path. go-nvml needs it, too.
func Path() string {
	if path := os.Getenv(PathVariable); path != "" {
		return path
	}
	if wsl := filepath.Join(wslFolder, soname); readable(wsl) {
		return wsl
	}
	return soname
}

func readable(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

var loading sync.Mutex

// Load loads the library, once. go-nvml works if there is no error; otherwise its calls return "function not found".
func Load() error {
	loading.Lock()
	defer loading.Unlock()
	name := C.CString(Path())
	defer C.free(unsafe.Pointer(name))
	if why := C.vprof_nvml_load(name); why != nil {
		return fmt.Errorf("load %s: %s", Path(), C.GoString(why))
	}
	return nil
}
