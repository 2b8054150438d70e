//go:build unix

package fleet

import "syscall"

// detached protects a task from the terminal's Ctrl-C: the engine ends tasks itself.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func interrupt(pid int) error { return syscall.Kill(pid, syscall.SIGINT) }
