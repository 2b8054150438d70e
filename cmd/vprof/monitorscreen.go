package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"golang.org/x/term"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/bench/observe/monitor/screen"
)

// screen shows the monitor on the terminal, while it works, until a key or an
// end of its own.
func (w *watch) screen(ctx context.Context) error {
	w.sinks.silent, w.sinks.history = true, &monitor.History{}
	w.notices = io.Discard // the screen shows them
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	first := time.Now()
	if err := w.look(first); err != nil { // what cannot begin says so in plain lines
		return err
	}
	o := w.options
	program := tea.NewProgram(screen.New(screen.Options{
		History: w.sinks.history, Interval: o.interval, Limit: w.limit.of, Alarm: w.limit.text != "", Now: time.Now,
	}), w.terminal(ctx)...)
	ended := make(chan error, 1)
	go func() {
		ended <- w.loop(ctx, nil)
		program.Quit()
	}()
	_, err := program.Run()
	asked := ctx.Err() == nil // else an interrupt from outside
	stop()
	if looped := <-ended; !asked || !errors.Is(looped, context.Canceled) {
		err = looped
	}
	w.summarize()
	return err
}

// terminal are the options of the screen's program.
func (w *watch) terminal(ctx context.Context) []tea.ProgramOption {
	a := w.options.app
	options := []tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(nil), tea.WithOutput(a.stdout), tea.WithoutSignalHandler(), tea.WithFPS(10),
	}
	if in, isFile := a.stdin.(*os.File); isFile && term.IsTerminal(int(in.Fd())) {
		options = append(options, tea.WithInput(in)) // else there are no keys
	}
	if !a.colored() {
		options = append(options, tea.WithColorProfile(colorprofile.ASCII))
	}
	return options
}
