package shard

import (
	"errors"
	"io"
	"os"
	"strings"
)

// ErrLocked says that another process has the lock.
var ErrLocked = errors.New("locked by another process")

// Lock keeps other processes away until release is called or this one ends. Who is
// what they are told; by is who has the lock, with [ErrLocked].
func Lock(path, who string) (release func() error, by string, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, "", err
	}
	if lock(f) != nil {
		text, readErr := io.ReadAll(io.LimitReader(f, 1<<10))
		return nil, strings.TrimSpace(string(text)), errors.Join(ErrLocked, readErr, f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteString(who + "\n")
	}
	if err != nil {
		return nil, "", errors.Join(err, f.Close())
	}
	return f.Close, "", nil
}
