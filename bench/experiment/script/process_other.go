//go:build !linux

package script

import (
	"os"
	"os/exec"
)

// hostPeak is not known.
func hostPeak(*os.ProcessState) int64 { return 0 }

// gone is always false: this system does not say.
func gone(int) bool { return false }

// endWith does nothing: this system does not.
func endWith(*exec.Cmd) {}
