package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/monitor"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/profiler/device/nvml"
)

type monitorOptions struct {
	app              *app
	gpu              string
	pids             []int
	once, quiet      bool
	interval, length time.Duration
	csv, jsonl, tb   string
	listen, above    string
	run              string
	batch            int
}

func newMonitorCmd(a *app) *cobra.Command {
	o := &monitorOptions{app: a}
	cmd := &cobra.Command{
		Use:   "monitor [-- COMMAND ARGS...]",
		Short: "Watch GPUs: memory, peaks, load; or a training command from start to end",
		Long: `Watch GPUs through NVML: memory in use and its peak, load, temperature and power,
a line for each look at each board.

After --, a command is started and watched with all its descendants; at the end
its peak is shown and, with --run, compared with what vprof said. NVML numbers
processes as the host does: in a container it may not know them, and then the
rise of the board's memory stands in for them.

Samples miss what happens between them; the summary says how far apart they were.
The monitor goes on when a board cannot be read, and says so.`,
		Example: `  vprof monitor --once
  vprof monitor --interval 100ms --jsonl memory.jsonl --fail-above 95%

  # for Prometheus, at http://localhost:9400/metrics
  vprof monitor --listen :9400 --quiet

  # was the plan right?
  vprof plan --model redimnet-b2 --batch 16 --export plan.json
  vprof monitor --run plan.json --batch 16 -- python train.py`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return runMonitor(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.gpu, "gpu", "all", "`boards`: numbers like 0,2, or all")
	f.IntSliceVar(&o.pids, "pid", nil, "watch these processes only: `numbers`")
	f.BoolVar(&o.once, "once", false, "look once")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no lines on standard output")
	f.DurationVar(&o.interval, "interval", time.Second, "`time` between looks; 1ms finds short peaks")
	f.DurationVar(&o.length, "for", 0, "end after this `time` (default: at an interrupt, or with the command)")
	f.StringVar(&o.csv, "csv", "", "also write samples to `file` as CSV")
	f.StringVar(&o.jsonl, "jsonl", "", "also write samples to `file` as JSON Lines")
	f.StringVar(&o.tb, "tensorboard", "", "also write an event file for TensorBoard into `folder`")
	f.StringVar(&o.listen, "listen", "", "serve Prometheus metrics at `address`, like :9400")
	f.StringVar(&o.above, "fail-above", "", "end with exit code 3 when a board is fuller than `limit`: 95% or 14GiB")
	f.StringVar(&o.run, "run", "", "compare the command's peak with the estimate in `file`")
	f.IntVar(&o.batch, "batch", 0, "batch `size` of the estimate (default: the run's only one)")
	return cmd
}

func runMonitor(ctx context.Context, o *monitorOptions, command []string) (err error) {
	limit, err := o.check(command)
	if err != nil {
		return err
	}
	planned, err := o.planned()
	if err != nil {
		return err
	}
	boards, closeBoards, err := o.boards()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeBoards()) }()
	out, err := openSinks(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	w := &watch{options: o, sinks: out, limit: limit, planned: planned}
	if len(command) > 0 {
		return w.command(ctx, boards, command)
	}
	var watched func(int) bool
	if len(o.pids) > 0 {
		watched = func(pid int) bool { return slices.Contains(o.pids, pid) }
	}
	w.monitor = monitor.New(boards, watched)
	return w.loop(ctx, nil)
}

// check finds what makes no sense, and reads the limit of --fail-above.
func (o *monitorOptions) check(command []string) (func(monitor.Sample) bool, error) {
	switch {
	case o.interval < time.Millisecond:
		return nil, usagef("--interval: %v is too short; the shortest is 1ms", o.interval)
	case o.length < 0:
		return nil, usagef("--for: %v is not a time", o.length)
	case o.once && len(command) > 0:
		return nil, usagef("--once looks once; leave it out to watch a command")
	case o.run != "" && len(command) == 0:
		return nil, usagef("--run compares the peak of a command; give one after --")
	case len(o.pids) > 0 && len(command) > 0:
		return nil, usagef("a command is watched itself; leave --pid out")
	}
	if o.above == "" {
		return func(monitor.Sample) bool { return false }, nil
	}
	if share, isShare := strings.CutSuffix(o.above, "%"); isShare {
		v, err := strconv.ParseFloat(share, 64)
		if err != nil || !(v > 0 && v <= 100) {
			return nil, usagef("--fail-above: %q is no share; use 1%% to 100%%", o.above)
		}
		return func(s monitor.Sample) bool { return 100*s.Share() > v }, nil
	}
	bytes, err := bytesize.Parse(o.above)
	if err != nil {
		return nil, usagef("--fail-above: %w", err)
	}
	return func(s monitor.Sample) bool { return s.Used > bytes }, nil
}

// planned is the point to compare with; nil for none.
func (o *monitorOptions) planned() (*report.Point, error) {
	if o.run == "" {
		return nil, nil
	}
	runs, err := readRuns(o.app, []string{o.run})
	if err != nil {
		return nil, err
	}
	var found []report.Point
	for _, r := range runs {
		for _, p := range r.Points {
			if p.Estimate != nil && (o.batch == 0 || p.Batch == o.batch) {
				found = append(found, p)
			}
		}
	}
	if len(found) != 1 {
		return nil, usagef("--run: %s has %d estimates that fit; choose one with --batch", o.run, len(found))
	}
	return &found[0], nil
}

// boards are those of --gpu.
func (o *monitorOptions) boards() ([]monitor.Board, func() error, error) {
	all, done, err := o.app.boards()
	if err != nil {
		return nil, nil, noGPUError{err.Error()}
	}
	if o.gpu == "all" {
		if len(all) == 0 {
			return nil, nil, errors.Join(noGPUError{"NVML lists no board"}, done())
		}
		return all, done, nil
	}
	var chosen []monitor.Board
	for number := range strings.SplitSeq(o.gpu, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil || n < 0 || n >= len(all) {
			return nil, nil, errors.Join(usagef("--gpu: there is no board %q; NVML lists %d, from 0", number, len(all)), done())
		}
		chosen = append(chosen, all[n])
	}
	return chosen, done, nil
}

// nvmlBoards are the boards of this machine.
func nvmlBoards() ([]monitor.Board, func() error, error) {
	library, err := nvml.Open()
	if err != nil {
		return nil, nil, err
	}
	found, err := library.Boards()
	if err != nil {
		return nil, nil, errors.Join(err, library.Close())
	}
	var boards []monitor.Board
	for _, b := range found {
		boards = append(boards, monitor.Board{Index: b.Index, Name: b.Name, UUID: b.UUID, Reader: b})
	}
	return boards, library.Close, nil
}

// watch is a monitor at work.
type watch struct {
	options *monitorOptions
	monitor *monitor.Monitor
	sinks   *sinks
	limit   func(monitor.Sample) bool
	planned *report.Point
	// first and most are the used bytes of all boards together, at the first
	// look and at most.
	first, most int64
	looks       int
}

// look samples once. The error of a board that is too full is a negative.
func (w *watch) look() error {
	samples := w.monitor.Sample(time.Now())
	var used int64
	for _, s := range samples {
		used += s.Used
	}
	if w.looks == 0 {
		w.first = used
	}
	w.looks++
	w.most = max(w.most, used)
	if err := w.sinks.write(samples); err != nil {
		return err
	}
	for _, s := range samples {
		if w.limit(s) {
			return negative{fmt.Errorf("gpu %d is above %s: %s of %s in use", s.GPU, w.options.above, bytesize.Format(s.Used), bytesize.Format(s.Total))}
		}
	}
	return nil
}

// loop samples until the context or done ends.
func (w *watch) loop(ctx context.Context, done <-chan error) error {
	if w.options.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.options.length)
		defer cancel()
	}
	tick := time.NewTicker(w.options.interval)
	defer tick.Stop()
	for {
		if err := w.look(); err != nil || w.options.once {
			return err
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil
			}
			return ctx.Err()
		case err := <-done:
			return err
		case <-tick.C:
		}
	}
}

// command runs a command, watches it, and says what it needed.
func (w *watch) command(ctx context.Context, boards []monitor.Board, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = w.options.app.stdin, w.options.app.stdout, w.options.app.stderr
	var tree []int
	var fresh time.Time
	w.monitor = monitor.New(boards, func(pid int) bool {
		if cmd.Process == nil {
			return false
		}
		if time.Since(fresh) > 200*time.Millisecond { // going through /proc takes its time
			tree, fresh = monitor.Tree(cmd.Process.Pid), time.Now()
		}
		return slices.Contains(tree, pid)
	})
	w.sinks.silent = true // standard output is the command's
	if err := w.look(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return usageError{err}
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	err := w.loop(ctx, done)
	w.conclude()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return fmt.Errorf("%s: %w", command[0], err)
	}
	return err
}

// conclude says what a command needed, and how that compares with the plan.
func (w *watch) conclude() {
	s := w.monitor.Summary()
	var peak int64
	for _, p := range s.Peaks {
		peak += p
	}
	to := w.options.app.stderr
	what := "its processes held at most"
	if peak <= 0 {
		peak, what = w.most-w.first, "NVML does not know its processes; the boards' memory rose by at most"
	}
	fmt.Fprintf(to, "vprof: %s %s (%d samples, at most %v apart)\n", what, bytesize.Format(peak), s.Samples, s.Gap.Round(time.Millisecond))
	if s.Lost > 0 {
		fmt.Fprintf(to, "vprof: %d readings failed\n", s.Lost)
	}
	if w.planned == nil || peak <= 0 {
		return
	}
	e := w.planned.Estimate.Device
	verdict := "within the estimate's interval"
	if peak < e.Low || peak > e.High {
		verdict = "outside the estimate's interval"
	}
	fmt.Fprintf(to, "vprof: estimated %s [%s, %s] for batch %d: the estimate is %+.1f %% off, the peak %s\n",
		bytesize.Format(e.Bytes), bytesize.Format(e.Low), bytesize.Format(e.High), w.planned.Batch,
		100*float64(e.Bytes-peak)/float64(peak), verdict)
}

// serve answers Prometheus until the listener is closed.
func serve(address string, e *monitor.Exporter) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, usagef("--listen: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(e)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // ends when the listener is closed
	return l, nil
}

// createSamples makes a file for samples.
func createSamples(flag, path string) (*os.File, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, usagef("--%s: %w", flag, err)
	}
	return f, nil
}
