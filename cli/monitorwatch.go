//go:build !js

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/internal/supervisor"
)

// watch is a running monitor.
type watch struct {
	options *monitorOptions
	monitor *monitor.Monitor
	sinks   *sinks
	planned *report.Point
	// notices receives messages about lost samples and GPUs.
	notices io.Writer
	sampled bool

	// root is the command's process ID, 0 before it starts; tree holds all descendants seen until the time in fresh.
	root        int
	descendants []int
	treeReadAt  time.Time
}

// sample reads all GPUs. If one exceeds the limit, the error is a [negativeVerdict].
func (w *watch) sample(now time.Time) error {
	seen := w.monitor.Sample(now)
	first := !w.sampled
	w.sampled = true
	for _, text := range seen.Notices {
		fmt.Fprintln(w.notices, "vprof:", text)
	}
	if first {
		if err := w.checkPIDs(seen.Samples); err != nil {
			return err
		}
	}
	if err := w.sinks.write(seen); err != nil {
		return err
	}
	for _, s := range seen.Samples {
		if l := w.options.memoryLimit; l != "" && s.Highest > l.bytesOf(s.Total) {
			return negativeVerdict{fmt.Errorf("GPU %d used more memory than --fail-above %s: %s of %s", s.GPU,
				w.options.memoryLimit, bytesize.Format(s.Highest), bytesize.Format(s.Total))}
		}
		if s.Error != "" && w.options.once {
			return fmt.Errorf("GPU %d cannot be read: %s", s.GPU, s.Error)
		}
	}
	return nil
}

// checkPIDs reports processes of --pid that use no GPU. A process that does not exist is an error.
func (w *watch) checkPIDs(samples []monitor.Sample) error {
	for _, pid := range w.options.pids {
		uses := slices.ContainsFunc(samples, func(s monitor.Sample) bool {
			return slices.ContainsFunc(s.Processes, func(p monitor.Process) bool { return p.PID == pid })
		})
		switch {
		case uses:
		case !processExists(pid):
			return usagef("--pid: there is no process %d, and no GPU lists it (in a container, give the process ID "+
				"of the host, as NVML does)", pid)
		default:
			fmt.Fprintf(w.notices, "vprof: process %d uses no GPU yet\n", pid)
		}
	}
	return nil
}

// burstInterval is the time between two readings of --burst.
const burstInterval = time.Millisecond

// loop samples until done, or without done until the context ends.
func (w *watch) loop(ctx context.Context, done <-chan struct{}) error {
	o := w.options
	if o.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.duration)
		defer cancel()
	}
	pace, ended := o.interval, ctx.Done()
	if o.burst {
		pace = min(pace, burstInterval)
	}
	if done != nil {
		ended = nil
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	var next time.Time
	for {
		if now := time.Now(); !o.burst || !now.Before(next) {
			next = now.Add(o.interval)
			if err := w.sample(now); err != nil || o.once {
				return err
			}
		} else {
			w.monitor.ReadMemory(now)
		}
		select {
		case <-ended:
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil
			}
			return ctx.Err()
		case <-done:
			return nil
		case <-tick.C:
		}
	}
}

// isDescendant reports whether a process belongs to the command.
func (w *watch) isDescendant(pid int) bool {
	// Reading /proc is slow.
	if w.root != 0 && time.Since(w.treeReadAt) > 200*time.Millisecond {
		w.descendants = lists.Union(w.descendants, monitor.ProcessTree(w.root)...)
		w.treeReadAt = time.Now()
	}
	return slices.Contains(w.descendants, pid)
}

const (
	// signalGrace is the time to wait for a signal after an interrupt, which the command received, too. A command
	// that does not end is killed after endGrace.
	signalGrace = time.Second
	endGrace    = 30 * time.Second
)

// runCommand runs a command, watches it, and prints its peak.
func (w *watch) runCommand(ctx context.Context, command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = w.options.app.stdin, w.options.app.stdout, w.options.app.stderr
	w.sinks.silent = true // standard output is the command's
	if err := w.sample(time.Now()); err != nil {
		return err
	}
	p, err := supervisor.Start(cmd, terminal(w.options.app.stdout) && w.options.app.stdin == os.Stdin)
	if err != nil {
		return usageError{err}
	}
	w.root = p.Pid()
	// Forward an interrupt that did not come as a signal, too.
	defer context.AfterFunc(ctx, func() {
		time.Sleep(signalGrace)
		if !p.Forwarded() {
			p.End(endGrace)
		}
	})()
	err = w.loop(ctx, p.Done())
	if err != nil {
		fmt.Fprintf(w.notices, "vprof: %v; ending %s\n", err, command[0])
		p.End(endGrace)
	}
	w.comparePeakWithPlan()
	var failed *exec.ExitError
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil && !p.Forwarded():
		return ctx.Err()
	case errors.As(p.Err(), &failed):
		return commandError{fmt.Errorf("%s: %w", command[0], failed), exitCode(supervisor.ExitCode(failed))}
	}
	return p.Err()
}

func (w *watch) printPeaks() {
	for _, s := range w.monitor.Totals() {
		peak := s.Peak
		if len(w.options.pids) > 0 {
			peak = s.WatchedPeak
		}
		printable.Fprintf(w.options.app.stderr, "vprof: gpu %d: peak %s (%s)\n", s.GPU,
			bytesize.Format(peak), sampleDensity(s))
	}
}

func sampleDensity(s monitor.GPUTotals) string {
	text := fmt.Sprintf("%d readings, up to %s apart", s.Samples, monitor.FormatInterval(s.Gap))
	if s.Samples == 1 {
		text = "1 reading"
	}
	if s.Failed > 0 {
		text += fmt.Sprintf("; %d failed", s.Failed)
	}
	return text
}

// comparePeakWithPlan prints the command's peak on the GPU that it used most, compared with the plan.
func (w *watch) comparePeakWithPlan() {
	all := w.monitor.Totals()
	held := func(s monitor.GPUTotals) int64 { return s.WatchedPeak }
	what := "its processes held at most"
	if !slices.ContainsFunc(all, func(s monitor.GPUTotals) bool { return s.WatchedPeak > 0 }) {
		held, what = monitor.GPUTotals.Rise, "NVML does not list its processes; the memory in use rose by at most"
	}
	most := slices.MaxFunc(all, func(a, b monitor.GPUTotals) int { return cmp.Compare(held(a), held(b)) })
	to := w.options.app.stderr
	for _, s := range all {
		if peak := held(s); peak > 0 || s.GPU == most.GPU {
			fmt.Fprintf(to, "vprof: gpu %d: %s %s (%s)\n", s.GPU, what, bytesize.Format(peak), sampleDensity(s))
		}
	}
	peak := held(most)
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
