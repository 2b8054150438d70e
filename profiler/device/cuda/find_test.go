//go:build cuda && linux && cgo

package cuda

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/cudalib"
	"github.com/vprof/vprof/profiler/device"
)

// What glibc's loader says of a library that it cannot load, and what that means.
func TestWhyALibraryIsNoDriver(t *testing.T) {
	for reason, want := range map[string]string{
		"libcuda.so.1: cannot open shared object file: No such file or directory":                    "no NVIDIA driver",
		"libcuda.so.1: cannot open shared object file: Permission denied":                            "the driver library cannot be read",
		"libcuda.so.1: cannot allocate memory":                                                       "there is not enough host memory to load the driver",
		"libcuda.so.1: failed to map segment from shared object":                                     "there is not enough host memory to load the driver",
		"/lib/libcuda.so.1: invalid ELF header":                                                      "the driver library is damaged or for another processor",
		"/lib/libcuda.so.1: wrong ELF class: ELFCLASS32":                                             "the driver library is damaged or for another processor",
		"/lib/libcuda.so.1: file too short":                                                          "the driver library is damaged or for another processor",
		"libnvidia-something.so: cannot open shared object file: No such file or directory (needed)": "no NVIDIA driver",
	} {
		var u *device.UnusableError
		require.ErrorAs(t, loadError(&cudalib.LoadError{Path: "libcuda.so.1", Reason: reason}), &u)
		require.Equal(t, want, u.Reason, reason)
		require.NotEmpty(t, u.Remedy)
		require.ErrorContains(t, u, reason)
	}
}

// A driver that may not open its files shows no GPU; the one that is closed to this user is named.
func TestAFileThatMayNotBeOpenedIsNamed(t *testing.T) {
	require.Empty(t, denied(func(string) error { return nil }))
	require.Empty(t, denied(func(string) error { return fs.ErrNotExist }), "no driver is loaded")
	require.Equal(t, controlNode, denied(func(file string) error {
		if file == controlNode {
			return &fs.PathError{Op: "open", Path: file, Err: fs.ErrPermission}
		}
		return nil
	}))
}

// All that cuInit may answer is about the machine.
func TestADriverThatDoesNotStartIsUnusable(t *testing.T) {
	for code := range results {
		var u *device.UnusableError
		require.ErrorAs(t, initError(failure("cuInit", 0, cudalib.Result(code))), &u)
		require.NotEmpty(t, u.Reason)
	}
}
