//go:build !js

package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/bench/observe/monitor/screen"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/device/nvml"
)

type monitorOptions struct {
	app                       *app
	gpu                       string
	pids                      []int
	once, quiet, plain, burst bool
	interval, duration        time.Duration
	csv, jsonl                string
	listen                    string
	memoryLimit               memoryLimit
	run                       string
	batch                     int
}

func newMonitorCmd(a *app) *cobra.Command {
	o := &monitorOptions{app: a}
	cmd := &cobra.Command{
		Use:   "monitor [-- COMMAND ARGS...]",
		Short: "Watch GPUs or a training command: memory, peaks, load",
		Args:  cobra.ArbitraryArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return runMonitor(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.gpu, "gpu", "all", "`GPUs` to watch: numbers like 0,2, or all")
	f.IntSliceVar(&o.pids, "pid", nil, "watch only processes with these IDs: `numbers` like 4711,4712")
	f.BoolVar(&o.once, "once", false, "print one sample of each GPU and exit")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing on standard output")
	f.BoolVar(&o.plain, "plain", false, "print lines also on a terminal, instead of a live view")
	f.DurationVar(&o.interval, "interval", time.Second, "`time` between samples, 1ms or more")
	f.BoolVar(&o.burst, "burst", false, "also read the memory every millisecond, for short peaks")
	f.DurationVar(&o.duration, "for", 0, "stop after this `time`, like 10m (default: at Ctrl-C)")
	f.StringVar(&o.csv, "csv", "", "append samples to `file` as CSV; - prints them instead of the usual lines")
	f.StringVar(&o.jsonl, "jsonl", "", "append samples to `file` as JSON Lines; - prints them, as for --csv")
	f.StringVar(&o.listen, "listen", "",
		"serve Prometheus metrics at `address`, like localhost:9400 (default host: this machine only)")
	f.StringVar((*string)(&o.memoryLimit), "fail-above", "",
		"exit with code 3 when a GPU exceeds `limit`, like 95%, 14GiB or 14 (GiB)")
	f.StringVar(&o.run, "run", "", "compare the command's peak with the estimate in a `file` of vprof plan or sweep")
	f.IntVar(&o.batch, "batch", 0, "batch `size` of the estimate in --run (default: its only one)")
	return cmd
}

func runMonitor(ctx context.Context, o *monitorOptions, command []string) (err error) {
	if err := o.check(command); err != nil {
		return err
	}
	planned, err := o.plannedPoint(ctx)
	if err != nil {
		return err
	}
	session, err := o.open()
	if err != nil {
		return err
	}
	w := &watch{options: o, planned: planned, notices: o.app.stderr}
	watched := w.isDescendant
	switch {
	case len(o.pids) > 0:
		watched = func(pid int) bool { return slices.Contains(o.pids, pid) }
	case len(command) == 0:
		watched = nil
	}
	w.monitor = monitor.New(session, o.app.gpus, watched)
	defer func() { err = errors.Join(err, w.monitor.Close()) }()
	if w.sinks, err = openSinks(o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.sinks.close()) }()
	switch {
	case len(command) > 0:
		return w.runCommand(ctx, command)
	case terminal(o.app.stdout) && !o.plain && !o.quiet && !o.once && !w.sinks.silent:
		return w.screen(ctx)
	}
	err = w.loop(ctx, nil)
	if usage := (usageError{}); !o.once && !o.quiet && !errors.As(err, &usage) {
		w.printPeaks()
	}
	return err
}

// check refuses invalid and contradictory flags.
func (o *monitorOptions) check(command []string) error {
	switch {
	case o.interval < time.Millisecond:
		return usagef("--interval: %v is too short; the shortest is 1ms", o.interval)
	case o.duration < 0:
		return usagef("--for: %v: need a positive duration", o.duration)
	case slices.ContainsFunc(o.pids, func(pid int) bool { return pid < 1 }):
		return usagef("--pid: %d is not a process ID", slices.Min(o.pids))
	case o.once && len(command) > 0:
		return usagef("--once takes one sample and cannot watch a command; leave out --once or the command")
	case o.duration > 0 && len(command) > 0:
		return usagef("--for does not apply to a command, which is watched until it ends; leave it out")
	case o.run != "" && len(command) == 0:
		return usagef("--run compares the peak of a command with its estimate; give the command after --")
	case len(o.pids) > 0 && len(command) > 0:
		return usagef("--pid does not apply to a command, whose processes are watched; leave it out")
	case o.csv == "-" && o.jsonl == "-":
		return usagef("--csv and --jsonl cannot both write to standard output; name a file for one of them")
	case (o.csv == "-" || o.jsonl == "-") && len(command) > 0:
		return usagef("--csv and --jsonl: the command uses standard output; write the samples to a file")
	}
	if o.memoryLimit == "" {
		return nil
	}
	if _, err := parseMemory(string(o.memoryLimit), 0); err != nil {
		return usagef("--fail-above: %w", err)
	}
	return nil
}

// memoryLimit is the limit of --fail-above: memory or a share of the GPU's memory; empty for none.
type memoryLimit string

// bytesOf returns the limit in bytes for a GPU's memory, all of it for none.
func (l memoryLimit) bytesOf(total int64) int64 {
	if l == "" {
		return total
	}
	limit, _ := parseMemory(string(l), total) // check has read it before
	return limit
}

// plannedPoint returns the point to compare with; nil for none.
func (o *monitorOptions) plannedPoint(ctx context.Context) (*report.Point, error) {
	if o.run == "" {
		return nil, nil
	}
	runs, err := readRuns(ctx, o.app, []string{o.run})
	if err != nil {
		return nil, err
	}
	var found []report.Point
	for _, r := range runs {
		found = append(found, lists.Filter(r.Points, func(p report.Point) bool {
			return p.Estimate != nil && (o.batch == 0 || p.Batch == o.batch)
		})...)
	}
	if len(found) != 1 {
		return nil, usagef("--run: %s has %d matching estimates; choose a batch size with --batch", o.run, len(found))
	}
	return &found[0], nil
}

// needsNVML is the hint for machines without NVML.
const needsNVML = `monitor asks NVML, which comes with NVIDIA's driver; "vprof doctor" says what is missing`

// open opens NVML for the GPUs of --gpu.
func (o *monitorOptions) open() (monitor.Session, error) {
	session, err := o.app.gpus()
	if err != nil {
		return session, noGPUError{err.Error(), needsNVML}
	}
	all := session.GPUs
	if len(all) == 0 {
		return session, errors.Join(noGPUError{"NVML lists no GPU", needsNVML}, session.Missing, session.Close())
	}
	if o.gpu == "all" {
		return session, nil
	}
	session.GPUs = nil
	for number := range strings.SplitSeq(o.gpu, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(number))
		i := slices.IndexFunc(all, func(b monitor.GPU) bool { return b.Index == n })
		if err != nil || i < 0 {
			return session, errors.Join(usagef("--gpu: there is no GPU %q; NVML lists %d GPUs, numbered from 0",
				number, len(all)),
				session.Missing, session.Close())
		}
		if slices.ContainsFunc(session.GPUs, func(b monitor.GPU) bool { return b.Index == n }) {
			return session, errors.Join(usagef("--gpu: GPU %d is named twice", n), session.Close())
		}
		session.GPUs = append(session.GPUs, all[i])
	}
	return session, nil
}

// openNVML returns the GPUs of this machine.
func openNVML() (monitor.Session, error) {
	library, err := nvml.Open()
	if err != nil {
		return monitor.Session{}, err
	}
	found, err := library.GPUs()
	if len(found) == 0 && err != nil {
		return monitor.Session{}, errors.Join(err, library.Close())
	}
	session := monitor.Session{Close: library.Close, Missing: err}
	for _, b := range found {
		session.GPUs = append(session.GPUs, monitor.GPU{Index: b.Index, Name: b.Name, UUID: b.UUID, Reader: b})
	}
	return session, nil
}

func processExists(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission)
}

// screen shows the monitor on the terminal until the user quits or monitoring ends.
func (w *watch) screen(ctx context.Context) error {
	w.sinks.silent, w.sinks.history = true, &monitor.History{}
	w.notices = io.Discard // the screen shows them
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	first := time.Now()
	if err := w.sample(first); err != nil { // what cannot begin says so in plain lines
		return err
	}
	o := w.options
	program := tea.NewProgram(screen.New(screen.Options{
		History: w.sinks.history, Interval: o.interval, Limit: o.memoryLimit.bytesOf, Alarm: o.memoryLimit != "",
		Now: time.Now,
	}), w.screenOptions(ctx)...)
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
	w.printPeaks()
	return err
}

func (w *watch) screenOptions(ctx context.Context) []tea.ProgramOption {
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
