//go:build !linux

package script

import (
	"io"
	"os"
	"os/exec"
)

// hostPeak returns zero: this system does not count it.
func hostPeak(*os.ProcessState) int64 { return 0 }

// gone returns false: this system does not tell.
func gone(int) bool { return false }

// holdOpen opens nothing: this system has no signal for readers of pipes.
func holdOpen(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// endWith changes nothing: this system has no such setting.
func endWith(*exec.Cmd) {}
