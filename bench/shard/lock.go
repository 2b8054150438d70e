package shard

import (
	"errors"
	"io"
	"os"
	"strings"
)

// ErrLocked reports that another process has the lock.
var ErrLocked = errors.New("locked by another process")

// Lock locks a file against other processes until release is called or this process ends. who describes this process.
// If another process has the lock, the error is [ErrLocked], and by is its who.
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
