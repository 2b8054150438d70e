package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/profiler/device"
)

// exitCode is the exit status of the process. Scripts rely on the numbers.
type exitCode int

const (
	exitFine        exitCode = 0
	exitFailure     exitCode = 1
	exitUsage       exitCode = 2
	exitNegative    exitCode = 3
	exitNoGPU       exitCode = 4
	exitInterrupted exitCode = 130
)

// A usageError says that the command line is wrong.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks the error as bad input.
func (usageError) Usage() bool { return true }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// codeOf returns the exit code for the error of a command.
func codeOf(err error) exitCode {
	if err == nil {
		return exitFine
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	var (
		watched  commandError
		verdict  negative
		noGPU    noGPUError
		unusable *device.UnusableError
	)
	switch {
	case errors.As(err, &watched):
		return watched.code
	case errors.Is(err, syscall.EISDIR): // a folder for a file
		return exitUsage
	case errors.As(err, &verdict):
		return exitNegative
	case errors.As(err, &noGPU), errors.As(err, &unusable):
		return exitNoGPU
	case input.Bad(err):
		return exitUsage
	}
	return exitFailure
}
