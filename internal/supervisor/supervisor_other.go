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

func adopt() {}

func setGroup(*exec.Cmd, bool) {}

// Signal sends a signal to the command.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

func awaitExit(int) {}

// endDescendants ends nothing: only Linux lists the processes that outlive a command.
func (p *Process) endDescendants() {}

// gone returns false: this system does not report it.
func gone(int) bool { return false }

// EndWith changes nothing: this system has no such setting.
func EndWith(*exec.Cmd) {}
