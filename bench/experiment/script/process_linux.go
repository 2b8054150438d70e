package script

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// hostPeak is the most memory that an ended process, or one that it waited for, has held,
// in bytes. Linux counts KiB.
func hostPeak(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss << 10
	}
	return 0
}

// gone reports whether there is no process of a number.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// endWith has the system end a command with the thread that starts it, so that it does not go on when vprof is killed.
func endWith(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
