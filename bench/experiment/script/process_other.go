//go:build !linux

package script

import (
	"io"
	"os"
	"os/exec"
)

// hostPeak is not known.
func hostPeak(*os.ProcessState) int64 { return 0 }

// gone is always false: this system does not say.
func gone(int) bool { return false }

// holdOpen does nothing: this system has no signal for readers of pipes.
func holdOpen(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// endWith does nothing: this system does not.
func endWith(*exec.Cmd) {}
