package fleet

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// detached protects a task from the console's Ctrl-C: the engine ends tasks itself.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func interrupt(pid int) error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(pid))
}
