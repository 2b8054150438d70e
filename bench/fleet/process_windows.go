package fleet

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// detached puts a task into its own process group, so Ctrl-C in the console does not reach it. The engine ends tasks.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func interrupt(pid int) error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(pid))
}
