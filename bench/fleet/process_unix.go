//go:build unix

package fleet

import "syscall"

// detached puts a task into its own process group, so Ctrl-C in the terminal does not reach it. The engine ends tasks.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func interrupt(pid int) error { return syscall.Kill(pid, syscall.SIGINT) }
