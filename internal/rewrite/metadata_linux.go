package rewrite

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
)

// links returns the number of hard links of a file.
func links(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil {
		return 1
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink) //nolint:unconvert // it has 32 bits on some architectures
	}
	return 1
}

// copyMetadata gives a file the owner, mode and extended attributes of another, including ACLs.
func copyMetadata(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		now, err := os.Stat(to)
		if err != nil {
			return err
		}
		if is := now.Sys().(*syscall.Stat_t); is.Uid != s.Uid || is.Gid != s.Gid {
			if err := os.Chown(to, int(s.Uid), int(s.Gid)); err != nil {
				return err
			}
		}
	}
	if err := os.Chmod(to, info.Mode()); err != nil {
		return err
	}
	return copyXattrs(from, to)
}

func copyXattrs(from, to string) error {
	names, err := readXattr(func(b []byte) (int, error) { return syscall.Listxattr(from, b) })
	if errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value, err := readXattr(func(b []byte) (int, error) { return syscall.Getxattr(from, name, b) })
		if err != nil {
			return err
		}
		has, err := readXattr(func(b []byte) (int, error) { return syscall.Getxattr(to, name, b) })
		if err == nil && bytes.Equal(has, value) {
			continue // such as a label that the system gives to all files there
		}
		if err := syscall.Setxattr(to, name, value, 0); err != nil {
			return err
		}
	}
	return nil
}

// readXattr calls read for the length of a value, and again for the value.
func readXattr(read func([]byte) (int, error)) ([]byte, error) {
	n, err := read(nil)
	if err != nil || n == 0 {
		return nil, err
	}
	b := make([]byte, n)
	n, err = read(b)
	return b[:max(0, n)], err
}

// lock waits until this process has locked a directory. On file systems without locks, it locks nothing.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	return func() { f.Close() }, nil
}
