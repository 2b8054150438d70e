//go:build !unix && !windows

package fleet

import (
	"errors"
	"syscall"
)

// detached returns no attributes: this operating system has no processes.
func detached() *syscall.SysProcAttr { return nil }

func interrupt(int) error { return errors.ErrUnsupported }
