package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/stubs"
)

// runOptions describe the command to run, and when to end it.
type runOptions struct {
	app         *app
	command     script.Command
	target      gpuFlags
	simulateToo bool
	// autotuned reports whether kernels that other commands have tuned count as tuned.
	autotuned bool
	rank      string
	steps     string
	out       output
	quiet     bool
	without   placeholderFlags
	print     bool
	record    string
}

func newRunCmd(a *app) *cobra.Command {
	o := &runOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "run -- COMMAND ARGS...",
		Short: "Run your own training command on a GPU that you do not have",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !o.print {
				return usagef("name the command after --, for example: vprof run --gpu rtx-4090 -- python train.py")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runCommand(cmd.Context(), o, args) },
	}
	o.register(cmd)
	return cmd
}

func (o *runOptions) register(cmd *cobra.Command) {
	o.target.register(cmd, "simulate this `GPU`, or several separated by commas, one run each (see vprof gpus)")
	o.out.register(cmd)
	f := cmd.Flags()
	o.target.registerDevice(cmd, "run and measure on this `device`, like cuda:0; sim:NAME is like --gpu NAME")
	f.BoolVar(&o.simulateToo, "both", false, "simulate this machine's GPU, then run on the GPU itself, and compare")
	f.SetInterspersed(false) // what follows the command is its own
	f.StringVar(&o.steps, "steps", "", "end training after this many `steps` of each optimizer; all runs to the end "+
		"(default: 3, and up to 3 with the longest batches)")
	f.StringVar(&o.command.Until, "until", "",
		"run until this `event`: eval, save (of a checkpoint), or end (of the script)")
	f.DurationVar(&o.command.Timeout, "timeout", 0, "end the command after this `time`, like 30m; 0s sets no limit")
	f.BoolVar(&o.command.KeepFiles, "keep-files", false,
		"keep files that the script saves, and let experiment trackers record")
	f.BoolVar(&o.command.Triton, "triton", false,
		"let Triton compile the kernels of torch.compile, which takes longer and needs the same memory")
	f.Float64Var(&o.command.ActivationBudget, "activation-memory-budget", 0,
		"`share` of activations that torch.compile keeps for backward, from 0 to 1 (default: the script's)")
	f.StringVar(&o.command.InductorCache, "inductor-cache", "", "`folder` in which torch.compile caches code and "+
		"tuning; none starts without a cache, as on a new machine (default: a cache that vprof keeps per GPU)")
	f.IntVar(&o.command.GPUs, "gpus", 1, "simulate a job on this `number` of GPUs, a process (rank) each; see --rank")
	f.StringVar(&o.rank, "rank", "0", "with --gpus, `number` of the rank to run, from 0, or all, one after the other")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "hide the command's output and the progress")
	o.without.register(cmd)
	f.StringVar(&o.record, "record", "", "store the allocations in a `file` like train.vprof, which other commands "+
		"accept as a model: vprof plan --model train.vprof --gpu all")
	f.BoolVar(&o.print, "print-hook", false, "print the Python hook that vprof adds to the script, and exit")
	completeFlag(cmd, "until", func() []string { return untilValues })
}

// defaultSteps is the number of steps without --steps; maxSearchTime limits the search for larger batches after them.
const (
	defaultSteps  = 3
	maxSearchTime = 20 * time.Second
)

var untilValues = []string{"eval", "save", "end"}

func runCommand(ctx context.Context, o *runOptions, args []string) error {
	if o.print {
		_, err := io.WriteString(o.app.stdout, script.Hook())
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	o.command.Args = args
	var err error
	if o.command.Without, err = o.without.resolve(); err != nil {
		return err
	}
	all, err := o.commands()
	if err != nil {
		return err
	}
	if o.record != "" && len(all) > 1 {
		return usagef("--record stores one run, but the flags name %d; name one GPU with --gpu and one rank with "+
			"--rank", len(all))
	}
	started := o.app.now().UTC()
	var runs report.Runs
	var ended error
	for _, c := range all {
		outcome, err := o.execute(ctx, c)
		if err != nil {
			return err
		}
		r, err := reportOf(ctx, outcome)
		if err != nil {
			return err
		}
		if outcome.Kind() == script.OutOfMemory && c.Longest > 0 && outcome.Stubs != "" {
			if err := o.addNeed(ctx, outcome, r); err != nil {
				return err
			}
		}
		o.app.addProvenance(r, started)
		runs = append(runs, r)
		ended = errors.Join(ended, outcomeError(outcome, r))
		if o.record != "" {
			ended = errors.Join(ended, report.WriteFile(o.record, outcome.WriteProgram))
		}
	}
	return errors.Join(o.out.finish(runs.Document()), ended)
}

// check refuses flags that contradict each other.
func (o *runOptions) check() error {
	c := &o.command
	switch {
	case c.Until != "" && !slices.Contains(untilValues, c.Until):
		return usagef("invalid --until %q: need eval, save or end", c.Until)
	case c.ActivationBudget < 0 || c.ActivationBudget > 1:
		return usagef("invalid --activation-memory-budget %v: need a share from 0 to 1", c.ActivationBudget)
	case c.Timeout < 0:
		return usagef("invalid --timeout %v: need a positive duration like 20m", c.Timeout)
	case c.GPUs < 1:
		return usagef("invalid --gpus %d: need 1 or more", c.GPUs)
	}
	switch c.InductorCache {
	case "":
		o.autotuned = !o.simulateToo
	case "none":
		c.InductorCache = ""
	default:
		folder, err := filepath.Abs(c.InductorCache)
		if err != nil {
			return err
		}
		c.InductorCache = folder
	}
	if o.record != "" && filepath.Ext(o.record) != ".vprof" {
		return usagef("invalid --record %s: the name must end in .vprof", o.record)
	}
	switch o.steps {
	case "all":
		return nil
	case "":
		c.Steps = defaultSteps
		if c.Until == "" {
			c.Longest = maxSearchTime
		}
		return nil
	}
	var err error
	if c.Steps, err = strconv.Atoi(o.steps); err != nil || c.Steps < 1 {
		return usagef("invalid --steps %q: need a positive integer or all", o.steps)
	}
	return nil
}

// execute runs a command. Its output goes to standard error if results on standard output are in a format for programs.
func (o *runOptions) execute(ctx context.Context, c script.Command) (*script.Outcome, error) {
	c.Stdin, c.Stdout, c.Stderr = o.app.stdin, o.app.stdout, o.app.stderr
	if c.Device == "" {
		var err error
		if c.Stubs, err = unpackStubLibraries(); err != nil {
			return nil, err
		}
		if o.autotuned {
			c.Tunings = filepath.Join(filepath.Dir(c.Stubs), "tuned", c.GPU.Name+".jsonl")
		}
	}
	c.Foreground = terminal(o.app.stdout) && o.app.stdin == os.Stdin
	if o.out.reportFormat != report.Table {
		c.Stdout = o.app.stderr
	}
	if o.quiet {
		c.Stdout, c.Stderr = nil, nil
	} else {
		c.OnEvent = (&eventPrinter{to: o.app.stderr}).print
	}
	return script.Run(ctx, c)
}

// reportOf returns the result of a run. If the run tried no changes, a second one does.
func reportOf(ctx context.Context, outcome *script.Outcome) (*report.Report, error) {
	if err := outcome.TryChanges(ctx); err != nil {
		return nil, err
	}
	return outcome.Report(ctx)
}

// addNeed reruns a command that ran out of memory on a GPU with enough memory, and adds its need and possible savings
// to the report. It adds nothing if the command fails there, too.
func (o *runOptions) addNeed(ctx context.Context, failed *script.Outcome, r *report.Report) error {
	c := failed.Command
	c.GPU, c.Timeout = step.WithUnlimitedMemory(c.GPU), time.Minute+time.Duration(3*failed.Seconds*float64(time.Second))
	c.Stdout, c.Stderr, c.OnEvent = nil, nil, nil
	if !o.quiet {
		fmt.Fprintf(o.app.stderr, "vprof: out of memory; vprof runs it again on a larger GPU for at most %v, to see "+
			"what it needs\n", c.Timeout.Round(time.Second))
	}
	again, err := script.Run(ctx, c)
	if err != nil || again.Kind() != script.Fits {
		return err
	}
	again.GPU = failed.GPU
	more, err := reportOf(ctx, again)
	if err != nil || len(more.Points) == 0 {
		return err
	}
	r.Script.Remedies = more.Script.Remedies
	r.Script.DeviceWithout, err = again.LeastMemory(ctx, more.Points[0].Run.Device)
	return err
}

// unpackStubLibraries unpacks the stubs of NVIDIA's libraries into a folder of the user's cache, and returns it.
func unpackStubLibraries() (string, error) {
	cache, err := cacheFolder("")
	if err != nil {
		return "", err
	}
	return stubs.Unpack(cache)
}

// cacheFolder returns a folder of vprof in the user's cache.
func cacheFolder(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no cache folder: %w; set HOME or XDG_CACHE_HOME", err)
	}
	return filepath.Join(cache, "vprof", name), nil
}

// An eventPrinter prints the progress of a script, a line for each step and phase.
type eventPrinter struct {
	to              io.Writer
	steps           int
	phase           string // the last that was printed
	lastPrintMicros int64  // when a step or phase was printed, in microseconds since 1970
}

// stepPace is the least time between steps that are printed, after the third, and equal phases, in microseconds.
const stepPace = 2_000_000

func (p *eventPrinter) print(e script.Event) {
	switch {
	case e.Name == "imported" && e.Module == "torch":
		fmt.Fprintf(p.to, "vprof: importing torch %.0f s\n", e.Seconds)
	case e.Name == "step" && e.Done > p.steps && (e.Done <= 3 || e.At-p.lastPrintMicros >= stepPace):
		p.steps, p.lastPrintMicros = e.Done, e.At
		fmt.Fprintf(p.to, "vprof: step %d%s\n", e.Done, phrase.If(e.Of > 0, " of %d", e.Of))
	case e.Name == "busy":
		fmt.Fprintf(p.to, "vprof: %s, for %.0f s\n", e.Text, e.Seconds)
	case e.Name == "phase" && (e.Phase == "evaluation" || e.Phase == "saving") &&
		(e.Phase != p.phase || e.At-p.lastPrintMicros >= stepPace):
		p.phase, p.lastPrintMicros = e.Phase, e.At
		fmt.Fprintf(p.to, "vprof: %s\n", e.Phase)
	}
}

// outcomeError returns the error that gives the command its exit code; nil if it ran and fits. If the command's output
// was hidden, the error has the traceback, or the end of the output.
func outcomeError(o *script.Outcome, r *report.Report) error {
	switch o.Kind() {
	case script.OutOfMemory:
		return negativeVerdict{errors.New("the script ran out of GPU memory on " + r.Devices[0].String())}
	case script.Failed:
		if wanted := o.MissingObjectText(); wanted != "" {
			return usagef("%s", wanted)
		}
		why, after := r.Script.Error, ": "
		if o.Stderr == nil {
			why, after = cmp.Or(strings.TrimSpace(r.Script.Traceback), o.StderrTail, why), ":\n"
		}
		if why == "" {
			after = ""
		}
		early := phrase.If(o.Torch().Version == "",
			" before it imported PyTorch (name the Python that trains: vprof run -- venv/bin/python train.py)")
		why += phrase.If(strings.Contains(why, "huggingface.co") && !o.Without.Any(), "\n--without-weights and "+
			"--without-data replace what cannot be fetched")
		return fmt.Errorf("the command failed with exit code %d%s%s%s", o.ExitCode, early, after, why)
	case script.TimedOut:
		return fmt.Errorf("the command was stopped after %v; allow more time with --timeout", o.Timeout)
	case script.NoCUDA:
		switch torch := o.Torch(); {
		case torch.CUDA != "":
			return usagef("PyTorch %s of %s is built for CUDA %s; install a build for CUDA 12 or 13, for which vprof "+
				"has stubs", torch.Version, torch.Python, torch.CUDA)
		case torch.Version != "":
			return usagef("PyTorch %s of %s is not built for CUDA; install a build that is (no GPU is needed)",
				torch.Version, torch.Python)
		}
		return usagef("the command never imported PyTorch; name a command that trains with it, like python train.py")
	case script.NoGPU:
		return noGPUError{fmt.Sprintf("PyTorch %s of %s finds none", o.Torch().Version, o.Torch().Python), simulateHint}
	case script.Untrained:
		return usagef("the command put no tensor on the GPU; %s", o.ReachedText())
	}
	if g := r.Script.Growth; g.Fills() {
		return negativeVerdict{errors.New("the script " + g.String())}
	}
	return nil
}

// commands returns the runs that the flags describe, in order: for each GPU, each rank.
func (o *runOptions) commands() ([]script.Command, error) {
	ranks, err := o.ranksToRun()
	if err != nil {
		return nil, err
	}
	on, err := o.commandsByGPU()
	if err != nil {
		return nil, err
	}
	var all []script.Command
	for _, c := range on {
		for _, c.Rank = range ranks {
			all = append(all, c)
		}
	}
	return all, nil
}

func (o *runOptions) ranksToRun() ([]int, error) {
	gpus := o.command.GPUs
	if o.rank == allRanks {
		return lists.Ascending(gpus), nil
	}
	n, err := strconv.Atoi(o.rank)
	if err != nil || n < 0 || n >= gpus {
		return nil, usagef("invalid --rank %q of %d ranks: need all or a number from 0 to %d", o.rank, gpus, gpus-1)
	}
	return []int{n}, nil
}

func (o *runOptions) commandsByGPU() ([]script.Command, error) {
	named, err := o.target.resolveDevice(o.simulateToo, "--device and --both take")
	switch {
	case err != nil:
		return nil, err
	case named.onThisMachine:
		return o.localCommands(named.index)
	case o.target.gpu == "all":
		return nil, usagef("--gpu all: the command would run once for each GPU; name some GPUs, or record one run " +
			"with --record train.vprof and show all with \"vprof plan --model train.vprof --gpu all\"")
	}
	gpus, err := o.target.gpus()
	if err != nil {
		return nil, err
	}
	o.out.defaultGPU = o.target.defaultGPU(gpus)
	return o.simulatedCommands(gpus), nil
}

func (o *runOptions) simulatedCommands(gpus []device.GPU) []script.Command {
	all := make([]script.Command, len(gpus))
	for i, gpu := range gpus {
		all[i] = o.command
		all[i].GPU = gpu
	}
	return all
}

// localCommands returns the command for a GPU of this machine; with --both, after the command for a simulated one.
func (o *runOptions) localCommands(index int) ([]script.Command, error) {
	if o.command.GPUs > 1 {
		return nil, usagef("--gpus simulates several ranks; leave it out with --device, with which a launcher " +
			"(torchrun) starts its own")
	}
	found, err := o.app.detect(index)
	if err != nil {
		return nil, err
	}
	c := o.command
	c.GPU, c.Device, c.Others = found.GPU, "cuda:"+strconv.Itoa(index), found.OtherProcessBytes
	if o.simulateToo {
		return append(o.simulatedCommands([]device.GPU{found.GPU}), c), nil
	}
	return []script.Command{c}, nil
}
