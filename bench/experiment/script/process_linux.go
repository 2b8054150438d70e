package script

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// hostPeak returns the most memory that an ended process, or one that it waited for, has held,
// in bytes. Linux counts KiB.
func hostPeak(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss << 10
	}
	return 0
}

// gone reports whether there is no process of a number.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// holdOpen makes a named pipe and holds it open until it is closed, or this process ends. Whoever reads it learns of
// that.
func holdOpen(path string) (io.Closer, error) {
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// endWith makes the system end a command with the thread that starts it, so that it does not outlive a vprof that is
// killed.
func endWith(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
