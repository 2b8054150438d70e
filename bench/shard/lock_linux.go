package shard

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock locks a file against other processes until it is closed, or the process ends in any way.
func lock(f *os.File) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// isLocked reports whether another process has locked the file. It does not lock the file itself.
func isLocked(f *os.File) bool {
	l := unix.Flock_t{Type: unix.F_RDLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l) == nil && l.Type != unix.F_UNLCK
}
