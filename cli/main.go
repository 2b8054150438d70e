// Package cli is the command line of vprof: flags, help and exit codes, with one file for each verb.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/vprof/vprof/internal/hub"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/cuda"
)

// Main runs a command line without the program's name and returns the exit code. It sets up the whole process: the
// garbage collector, signals and access to the hub.
func Main(args []string) int {
	setGCPercent()
	hub.Default = hub.FromEnvironment(func(what string) { printable.Fprintf(os.Stderr, "vprof: fetching %s\n", what) })
	return int(runInterruptibly(newSystemApp(), args))
}

// setGCPercent makes the garbage collector run less often. A recording is built up once and then only read, so
// collecting as often as by default takes a third of the time and saves little memory.
func setGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(-1)
		useHugePages()
		debug.SetGCPercent(400)
	}
}

// runInterruptibly runs a command line. The first SIGINT or SIGTERM cancels the work, which ends with its results up to
// then; a second one, or the first while input is read, ends the process at once.
func runInterruptibly(a *app, args []string) exitCode {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		stop()
		if input.IsReading() {
			fmt.Fprintln(a.stderr, "vprof: interrupted")
			os.Exit(int(exitInterrupted))
		}
	})
	go cuda.Watch(ctx, slowCallNotice, a.reportHungCall)
	return run(ctx, a, args)
}

// slowCallNotice is the time after which a driver's call that does not return is reported, hungCallTimeout the time
// after which it ends the process.
var slowCallNotice, hungCallTimeout = 30 * time.Second, 10 * time.Minute

// reportHungCall reports, once, a call of the driver or NVML that hangs, and later exits: nothing else ends it.
func (a *app) reportHungCall(call string, waited time.Duration) {
	switch {
	case waited >= hungCallTimeout:
		fmt.Fprintf(a.stderr, "vprof: %s has not returned for %v: the GPU or its driver hangs; the kernel log has the "+
			"cause as an Xid (dmesg | grep -i xid)\n", call, waited)
		os.Exit(int(exitFailure))
	case waited == slowCallNotice:
		fmt.Fprintf(a.stderr, "vprof: %s has not returned for %v: the GPU is busy, or it or its driver hangs; vprof "+
			"ends after %v, or at the second Ctrl-C\n", call, waited, hungCallTimeout)
	}
}

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

// A usageError is an error of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks the error as bad input.
func (usageError) Usage() bool { return true }

// A commandError holds the exit code of a watched command, which vprof returns.
type commandError struct {
	error
	code exitCode
}

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func codeOf(err error) exitCode {
	if err == nil {
		return exitFine
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	var (
		watched  commandError
		verdict  negativeVerdict
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
	case input.IsBadInput(err):
		return exitUsage
	}
	return exitFailure
}

var colorChoices = []string{"auto", "always", "never"}

// colored reports whether tables on standard output are in color. NO_COLOR and a
// dumb terminal turn it off, FORCE_COLOR and CLICOLOR_FORCE turn it on without a terminal, unless --color decides.
func (a *app) colored() bool {
	switch a.color {
	case "always":
		return true
	case "never":
		return false
	}
	forced := cmp.Or(os.Getenv("FORCE_COLOR"), os.Getenv("CLICOLOR_FORCE"))
	return os.Getenv("NO_COLOR") == "" && (forced != "" && forced != "0" || terminal(a.stdout))
}

func terminal(w io.Writer) bool {
	out, isFile := w.(*os.File)
	return isFile && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(out.Fd()))
}
