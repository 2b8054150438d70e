//go:build !linux

package supervisor

import (
	"os"
	"os/exec"
	"syscall"
)

// forwardable returns the signals that every system has. The keys of a terminal reach the command directly.
func forwardable(foreground bool) []os.Signal {
	if foreground {
		return []os.Signal{syscall.SIGTERM}
	}
	return []os.Signal{syscall.SIGTERM, os.Interrupt}
}

func adoptOrphans() {}

func setGroup(*exec.Cmd, bool) {}

// Signal sends a signal to the command.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

func awaitExit(int) {}

// endDescendants ends nothing: only Linux lists the processes that outlive a command.
func (p *Process) endDescendants() {}

// hasExited returns false: this system does not report it.
func hasExited(int) bool { return false }

// KillWithParent changes nothing: this system has no such setting.
func KillWithParent(*exec.Cmd) {}
