package cli

import (
	"os"
	"syscall"
)

// peakMemory returns the largest resident set of an ended process, in bytes; Linux
// counts what this one had when it started it.
func peakMemory(p *os.ProcessState) int64 {
	usage, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return usage.Maxrss << 10
}
