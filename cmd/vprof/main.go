// Command vprof says how much GPU memory a PyTorch training step will need,
// before it runs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

func main() {
	// A recording is built up once and then only read, so collecting garbage
	// as often as by default is a third of the time and saves little memory.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(int(runInterruptibly(system(), os.Args[1:])))
}

// runInterruptibly is run until a signal: the first asks the work to end with
// what there is; after that the default is back, and a second one ends the
// process at once, as the first does while input is read.
func runInterruptibly(a *app, args []string) exitCode {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		stop()
		if a.reading.Load() > 0 {
			fmt.Fprintln(a.stderr, "vprof: interrupted")
			os.Exit(int(exitInterrupted))
		}
	})
	return run(ctx, a, args)
}
