//go:build unix

package fleet

import "syscall"

// detached keeps the terminal's Ctrl-C from a task: the engine ends tasks in their turn.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func interrupt(pid int) error { return syscall.Kill(pid, syscall.SIGINT) }
