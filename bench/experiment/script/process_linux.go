package script

import (
	"io"
	"os"
	"syscall"
)

// hostPeak returns the peak of resident host memory, in bytes, of an ended process or of a child that it waited for.
// Linux counts KiB.
func hostPeak(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss << 10
	}
	return 0
}

// holdOpen makes a named pipe and keeps it open until it is closed or this process ends. Readers of the pipe notice
// that.
func holdOpen(path string) (io.Closer, error) {
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// isFull reports whether less than 1 MiB is left on the disk of a folder.
func isFull(folder string) bool {
	var disk syscall.Statfs_t
	return syscall.Statfs(folder, &disk) == nil && disk.Bavail*uint64(disk.Bsize) < 1<<20
}
