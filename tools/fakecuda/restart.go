//go:build linux && cgo

package fakecuda

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

// restart calls fakecuda_restart of the library, which reads the environment again. Returns an error message or NULL.
static const char *restart(const char *path) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void (*f)(void) = library ? (void (*)(void))dlsym(library, "fakecuda_restart") : NULL;
	if (!f)
		return dlerror();
	f();
	return NULL;
}
*/
import "C"

import (
	"strings"
	"testing"
	"unsafe"
)

// Restart makes the setup the machine of this process. All objects of the previous machine must be closed.
func (s Setup) Restart(tb testing.TB) *Driver {
	tb.Helper()
	d := s.Driver(tb)
	for _, variable := range d.Env {
		key, value, _ := strings.Cut(variable, "=")
		tb.Setenv(key, value)
	}
	path := C.CString(d.Library)
	defer C.free(unsafe.Pointer(path))
	if why := C.restart(path); why != nil {
		tb.Fatalf("restart the fake driver: %s", C.GoString(why))
	}
	return d
}
