package script

import (
	"io"
	"os"
	"syscall"
)

// hostPeak returns the peak resident memory, in bytes, of an ended process or of a child that it waited for.
func hostPeak(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss << 10
	}
	return 0
}

// holdOpen makes a named pipe and keeps it open until Close or the end of this process, which its readers notice.
func holdOpen(path string) (io.Closer, error) {
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// isFull reports whether the disk of a folder has less than 1 MiB free.
func isFull(folder string) bool {
	var disk syscall.Statfs_t
	return syscall.Statfs(folder, &disk) == nil && disk.Bavail*uint64(disk.Bsize) < 1<<20
}
