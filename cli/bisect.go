package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/bisect"
	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/printable"
)

// bisectOptions are the command, the two environments and the part of the script to run.
type bisectOptions struct {
	run                            runOptions
	oldEnvironment, newEnvironment string
	python                         string
	installer                      bisect.Installer
	verbose                        bool

	runs     int
	runsLeft int
	// results are the results of runs by the folders of their environments.
	results         map[string]*environmentResult
	changedPackages []string
}

// environmentResult is the need of a run in bytes, and the bytes of each line at the peak.
type environmentResult struct {
	allocated, reserved int64
	holders             []report.Holder
	// unusableErr is the reason why there is no need: the script does not run.
	unusableErr error
}

func newBisectCmd(a *app) *cobra.Command {
	o := &bisectOptions{
		run:     runOptions{app: a, out: output{app: a}, quiet: true},
		results: map[string]*environmentResult{},
	}
	cmd := &cobra.Command{
		Use:   "bisect --old A --new B -- COMMAND ARGS...",
		Short: "Find the package and release with which a script's memory changed",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || o.oldEnvironment == "" || o.newEnvironment == "" {
				return usagef("name two environments and the command, for example: vprof bisect --old trl==1.15.0 " +
					"--new trl==1.16.0 -- python train.py")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runBisect(cmd.Context(), o, args) },
	}
	o.run.target.register(cmd, "simulate this `GPU` (see vprof gpus)")
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.oldEnvironment, "old", "", "the earlier environment: packages like trl==1.15.0, separated by "+
		"spaces, or a lock `file`, optionally of a commit: uv.lock@HEAD~1")
	f.StringVar(&o.newEnvironment, "new", "", "the later `environment`, in the form of --old")
	f.StringVar(&o.python, "python", "", "`interpreter` whose packages --old and --new change (default: the command's)")
	f.StringVar(&o.installer.Wheels, "find-links", "", "install from a `folder` of wheels, without a network")
	f.StringVar(&o.run.steps, "steps", "", "end training after this number of `steps` of each optimizer (default: 3)")
	f.DurationVar(&o.run.command.Timeout, "timeout", 0, "end each run after this `time`, like 30m; 0s sets no limit")
	f.BoolVar(&o.verbose, "verbose", false, "show what the command prints")
	o.run.command.GPUs, o.run.rank = 1, "0"
	return o.run.out.register(cmd)
}

// ignoredChangeShare is the share of the peak by which runs of one environment may differ without a change.
const ignoredChangeShare = 0.001

func runBisect(ctx context.Context, o *bisectOptions, args []string) error {
	if err := o.run.check(); err != nil {
		return err
	}
	gpus, err := o.run.target.gpus()
	if err != nil {
		return err
	}
	if len(gpus) != 1 {
		return usagef("--gpu names %d GPUs, and bisect simulates one; name one GPU", len(gpus))
	}
	o.run.command.Args, o.run.command.GPU, o.run.command.Libraries = args, gpus[0], true
	o.run.command.Longest, o.run.quiet = 0, !o.verbose
	if err := o.prepare(args); err != nil {
		return err
	}
	f := &bisect.CauseFinder{
		Peak: func(pins bisect.Pins) (int64, error) {
			r, err := o.cachedResult(ctx, pins)
			if err != nil {
				return 0, err
			}
			return r.allocated, nil
		},
		Releases: func(name string) ([]string, error) { return o.installer.Releases(ctx, name) },
		ChangeSearch: bisect.ChangeSearch{
			Equal: func(a,
				b int64,
			) bool {
				return float64(max(a-b, b-a)) <= ignoredChangeShare*float64(max(a, b))
			},
			OnRemaining: func(n int) { o.runsLeft = n },
		},
	}
	if f.Old, err = o.installer.ResolveSpec(ctx, o.oldEnvironment); err == nil {
		f.New, err = o.installer.ResolveSpec(ctx, o.newEnvironment)
	}
	if err != nil {
		return err
	}
	for _, c := range bisect.Changes(f.Old, f.New) {
		o.changedPackages = append(o.changedPackages, c.Package)
	}
	if len(o.changedPackages) == 0 {
		return usagef("%s and %s have the same releases of all packages", o.oldEnvironment, o.newEnvironment)
	}
	o.printProgress("%d packages differ: %s", len(o.changedPackages), strings.Join(o.changedPackages, ", "))
	causes, err := f.FindCauses()
	if err != nil {
		return err
	}
	return o.finish(ctx, f, causes)
}

// prepare finds the interpreter and the folder of installed releases.
func (o *bisectOptions) prepare(args []string) (err error) {
	o.installer.Python = o.python
	for _, word := range args {
		if name := filepath.Base(word); o.installer.Python == "" && strings.HasPrefix(name, "python") &&
			!strings.HasSuffix(name, ".py") {
			o.installer.Python = word
		}
	}
	o.installer.Python = cmp.Or(o.installer.Python, "python3")
	o.installer.Cache, err = cacheFolder("bisect")
	return err
}

func (o *bisectOptions) cachedResult(ctx context.Context, pins bisect.Pins) (*environmentResult, error) {
	folders, err := o.installer.Folders(ctx, pins, o.changedPackages)
	if err != nil {
		return nil, err
	}
	key := strings.Join(folders, "\n")
	if r := o.results[key]; r != nil {
		return r, r.unusableErr
	}
	o.runs++
	o.printProgress("run %d, at most %d more for each change: %s", o.runs, max(0, o.runsLeft-1),
		o.environmentText(pins))
	c := o.run.command
	c.Folders = folders
	outcome, err := o.run.execute(ctx, c)
	if err != nil {
		return nil, err
	}
	r, err := outcome.Report(ctx)
	if err != nil {
		return nil, err
	}
	switch err := outcomeError(outcome, r); {
	case outcome.Kind() == script.Failed:
		o.printProgress("  %s", strings.TrimSpace(r.Script.Error))
		o.results[key] = &environmentResult{unusableErr: fmt.Errorf("%w: %s: %w", bisect.ErrUnusable,
			o.environmentText(pins), err)}
		return nil, o.results[key].unusableErr
	case outcome.Kind() == script.OutOfMemory:
		return nil, errors.Join(err, errors.New("bisect needs a run that fits, because it compares peaks; name a "+
			"larger GPU with --gpu"))
	case len(r.Points) == 0:
		return nil, err
	}
	o.printProgress("  %s", bytesize.Format(r.Points[0].Run.Allocated))
	need := r.Points[0].Run
	p := &environmentResult{need.Allocated, need.Reserved, step.LiveAtPeak(outcome.Program).Holders(), nil}
	for i, h := range p.holders {
		p.holders[i].Line = withoutPackageFolder(h.Line, o.installer.Cache)
	}
	o.results[key] = p
	return p, nil
}

// withoutPackageFolder removes the folder of packages, which differs by release, from a line.
func withoutPackageFolder(line, cache string) string {
	line = strings.ReplaceAll(line, string(filepath.Separator), "/")
	if rest, ok := strings.CutPrefix(line, filepath.ToSlash(cache)+"/"); ok {
		parts := strings.SplitN(rest, "/", 3) // the tag of the interpreter, the release, the file
		return parts[len(parts)-1]
	}
	if at := strings.LastIndex(line, "-packages/"); at >= 0 {
		return line[at+len("-packages/"):]
	}
	return line
}

// environmentText returns the releases of the packages that differ.
func (o *bisectOptions) environmentText(pins bisect.Pins) string {
	all := lists.Map(o.changedPackages, func(name string) string { return name + " " + pins[name] })
	const most = 6
	if len(all) > most {
		all = append(all[:most], fmt.Sprintf("and %d more", len(all)-most))
	}
	return strings.Join(all, ", ")
}

func (o *bisectOptions) printProgress(format string, args ...any) {
	printable.Fprintf(o.run.app.stderr, "vprof: "+format+"\n", args...)
}

func (o *bisectOptions) finish(ctx context.Context, f *bisect.CauseFinder, causes []bisect.Cause) error {
	b := &report.Bisection{
		Schema: report.BisectionSchema, Tool: vprofTool(), Command: o.run.command.Args, GPU: o.run.command.GPU.Name,
		Causes: []report.BisectionCause{},
	}
	var err error
	before, after := f.TestedEnvironments()
	if b.Old, err = o.peak(ctx, o.oldEnvironment, before); err != nil {
		return err
	}
	if b.New, err = o.peak(ctx, o.newEnvironment, after); err != nil {
		return err
	}
	for _, c := range causes {
		low, err := o.cachedResult(ctx, c.Low)
		if err != nil {
			return err
		}
		high, err := o.cachedResult(ctx, c.High)
		if err != nil {
			return err
		}
		b.Causes = append(b.Causes, report.BisectionCause{
			Package: c.Package, Old: c.Old, New: c.New, Before: c.Before, After: c.After,
			RequiredChanges: lists.Map(c.RequiredChanges, bisect.ReleaseChange.String),
			Lines:           report.LineChanges(low.holders, high.holders),
		})
	}
	b.Runs = o.runs
	return o.run.out.finish(b)
}

func (o *bisectOptions) peak(ctx context.Context, name string, pins bisect.Pins) (report.EnvironmentPeak, error) {
	r, err := o.cachedResult(ctx, pins)
	if err != nil {
		return report.EnvironmentPeak{}, err
	}
	return report.EnvironmentPeak{Name: name, Allocated: r.allocated, Reserved: r.reserved}, nil
}
