// Command vprof says how much GPU memory a PyTorch training step will need,
// before it runs.
package main

import (
	"context"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks the work to end with what there is; after that
	// the default is back, and a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(int(run(ctx, system(), os.Args[1:])))
}
