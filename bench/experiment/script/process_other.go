//go:build !linux

package script

import (
	"io"
	"os"
)

// hostPeak returns zero: this system does not report it.
func hostPeak(*os.ProcessState) int64 { return 0 }

// holdOpen opens nothing: this system has no signal for readers of pipes.
func holdOpen(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// isFull returns false: this system does not report it.
func isFull(string) bool { return false }
