package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/advise/trainers"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/fleet"
	"github.com/vprof/vprof/bench/fleet/kubernetes"
	"github.com/vprof/vprof/bench/fleet/slurm"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/page"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/profiler/device"
)

func newFleetCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Sweep many models over a cluster's GPUs, by Slurm, Kubernetes or processes",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFleetPlanCmd(a), newFleetRunCmd(a), newFleetStatusCmd(a), newFleetCollectCmd(a),
		newFleetMergeCmd(a), newFleetCancelCmd(a), newFleetTaskCmd(a))
	return cmd
}

func oneConfigArg(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s needs one fleet file", cmd.CommandPath())
	}
	return nil
}

// readConfig parses a fleet's file.
func readConfig(path string) (*fleet.Config, error) {
	defer input.BeginReading()()
	f, err := input.OpenFile(path)
	if err != nil {
		return nil, usageError{err}
	}
	defer f.Close()
	return fleet.Read(f, path)
}

// readFleet reads the file and completes its cases.
func readFleet(a *app, path string) (*fleet.Config, []fleet.ModelCase, error) {
	defer input.BeginReading()()
	c, err := readConfig(path)
	if err != nil {
		return nil, nil, err
	}
	units, err := c.Units(path, a.models(), func(t *trainers.Config) { printTrainer(a, t) })
	return c, units, err
}

// matrixFlags select the cells and columns of a matrix.
type matrixFlags struct {
	sort, filter, columns []string
	page                  string
}

func (f *matrixFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.sort, "sort", nil,
		"sort by `columns`, or -NAME for the largest first: "+strings.Join(report.MatrixColumns(), ", "))
	flags.StringArrayVar(&f.filter, "filter", nil,
		"show only cases and GPUs that meet a `condition` like gpu=a100*, fits!=fits or needs<16, in GiB (repeatable)")
	flags.StringSliceVar(&f.columns, "columns", nil, "print a row for each case on each GPU, with these `columns` "+
		"(see --sort)")
	flags.StringVar(&f.page, "page", "", "also write an HTML page to `file`")
}

func (f *matrixFlags) apply(m *report.Matrix) error {
	for flag, do := range map[string]func() error{
		"--filter":  func() error { return m.Filter(f.filter) },
		"--sort":    func() error { return m.Sort(f.sort) },
		"--columns": func() error { return m.Columns(f.columns) },
	} {
		if err := do(); err != nil {
			return usagef("%s: %w", flag, err)
		}
	}
	if f.page == "" {
		return nil
	}
	return report.WriteFile(f.page, (&page.Matrix{Matrix: m}).Write)
}

type fleetPlanOptions struct {
	app     *app
	show    matrixFlags
	learned coefficientFlag
	out     output
}

func newFleetPlanCmd(a *app) *cobra.Command {
	o := &fleetPlanOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "plan FLEET.YAML",
		Short: "Estimate which models fit which GPUs, in one table",
		Args:  oneConfigArg,
		RunE:  func(cmd *cobra.Command, args []string) error { return runFleetPlan(cmd.Context(), o, args[0]) },
	}
	o.show.register(cmd)
	o.learned.register(cmd.Flags())
	return o.out.register(cmd)
}

func runFleetPlan(ctx context.Context, o *fleetPlanOptions, path string) error {
	c, units, err := readFleet(o.app, path)
	if err != nil {
		return err
	}
	var gpus []device.GPU
	for _, b := range c.GPUs {
		gpu, err := device.Lookup(b.GPU)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(gpus, func(g device.GPU) bool { return g.Name == gpu.Name }) {
			gpus = append(gpus, gpu)
		}
	}
	evidence := step.Evidence{Residuals: o.app.residuals}
	if evidence.Calibrated, err = o.learned.selection(); err != nil {
		return err
	}
	return o.out.withProgress(func(step progress.Func) (report.Document, error) {
		m, err := fleet.Matrix(ctx, units, gpus, evidence, step)
		if err != nil {
			return nil, err
		}
		m.Name, m.Tool, m.Started = c.Name+", simulated", vprofTool(), o.app.now().UTC().Truncate(time.Second)
		return m, o.show.apply(m)
	})
}

func folderFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "",
		"`folder` of the fleet, shared by all machines (default: NAME.fleet next to its file)")
}

// fleetDir returns the folder of a fleet: --dir, or NAME.fleet next to its file.
func fleetDir(dir, path string, c *fleet.Config) string {
	if dir != "" {
		return dir
	}
	return filepath.Join(filepath.Dir(path), c.Name+".fleet")
}

type fleetRunOptions struct {
	app     *app
	on, dir string
	apply   bool
	poll    time.Duration
	learned coefficientFlag
}

func newFleetRunCmd(a *app) *cobra.Command {
	o := &fleetRunOptions{app: a}
	cmd := &cobra.Command{
		Use:   "run FLEET.YAML --on ENGINE",
		Short: "Run or resume the sweeps of a fleet",
		Args:  oneConfigArg,
		RunE:  func(cmd *cobra.Command, args []string) error { return runFleet(cmd.Context(), o, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.on, "on", "", "`engine` to run on: local, local:N (N processes), slurm, kubernetes")
	folderFlag(cmd, &o.dir)
	f.BoolVar(&o.apply, "apply", false, "with --on kubernetes: apply the manifests with kubectl, and wait")
	f.DurationVar(&o.poll, "poll", 2*time.Second, "`time` between two checks of the tasks")
	o.learned.register(f)
	completeFlag(cmd, "on", func() []string { return []string{fleet.OnLocal, fleet.OnSlurm, fleet.OnKubernetes} })
	return cmd
}

// parseFleetEngine parses local, local:N, slurm or kubernetes.
func parseFleetEngine(on string) (name string, most int, err error) {
	name, many, given := strings.Cut(on, ":")
	most = 1
	switch {
	case on == "":
		return "", 0, usagef("--on is missing; name where to run: local, local:N, slurm or kubernetes")
	case name == fleet.OnLocal && given:
		if most, err = strconv.Atoi(many); err != nil || most < 1 || most > 1024 {
			return "", 0, usagef("--on: invalid number of processes %q: write local:4", many)
		}
	case given || !slices.Contains([]string{fleet.OnLocal, fleet.OnSlurm, fleet.OnKubernetes}, name):
		return "", 0, usagef("--on: unknown engine %q: need local, local:N, slurm or kubernetes", on)
	}
	return name, most, nil
}

// plannedCases returns the cases of a fleet's file that can be planned, and says which it left out.
func plannedCases(a *app, path string, units []fleet.ModelCase) ([]fleet.ModelCase, error) {
	units = slices.DeleteFunc(units, func(u fleet.ModelCase) bool {
		if u.Refused != nil {
			printable.Fprintf(a.stderr, "vprof: left out: %v\n", u.Refused)
		}
		return u.Refused != nil
	})
	if len(units) == 0 {
		return nil, usagef("%s: none of the cases can be planned", path)
	}
	return units, nil
}

func runFleet(ctx context.Context, o *fleetRunOptions, path string) (err error) {
	name, most, err := parseFleetEngine(o.on)
	if err != nil {
		return err
	}
	if o.apply && name != fleet.OnKubernetes {
		return usagef("--apply works only with --on kubernetes; leave it out")
	}
	if o.poll < 10*time.Millisecond {
		return usagef("--poll: %v is too short; the shortest is 10ms", o.poll)
	}
	c, units, err := readFleet(o.app, path)
	if err == nil {
		units, err = plannedCases(o.app, path, units)
	}
	if err != nil {
		return err
	}
	if name == fleet.OnKubernetes {
		if err := kubernetes.Check(path, c.Kubernetes); err != nil {
			return err
		}
	}
	learned, err := o.learned.selection()
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(fleetDir(o.dir, path, c))
	if err != nil {
		return err
	}
	if err := makeFolder(ctx, dir, name); err != nil {
		return err
	}
	f := &fleet.Folder{Dir: dir}
	release, err := f.Lock(fmt.Sprintf("vprof fleet run, process %d of %s", os.Getpid(), hostName()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if f, err = fleet.Prepare(dir, name, c, units, learned, vprofTool(),
		o.app.now().UTC().Truncate(time.Second)); err != nil {
		return err
	}
	if name == fleet.OnKubernetes && !o.apply {
		text, err := kubernetes.Jobs(f)
		if err != nil {
			return err
		}
		_, err = o.app.stdout.Write(text)
		return err
	}
	engine, err := engineOf(f, most)
	if err != nil {
		return err
	}
	if err := engine.Check(ctx); err != nil {
		return err
	}
	return o.wait(ctx, path, &fleet.Runner{Folder: f, Engine: engine, Poll: o.poll})
}

// makeFolder creates the folder of a fleet, unless the engine is missing on this machine.
func makeFolder(ctx context.Context, dir, engine string) error {
	if _, err := os.Stat(dir); err != nil && engine == fleet.OnSlurm {
		if _, err := slurm.Partitions(ctx); err != nil {
			return err
		}
	}
	return os.MkdirAll(dir, 0o755)
}

// fleetAndEngine opens the folder of a fleet that was run, and its engine.
func fleetAndEngine(path, dir string) (*fleet.Folder, fleet.Engine, error) {
	f, err := openFleet(path, dir)
	if err != nil {
		return nil, nil, err
	}
	engine, err := engineOf(f, 1)
	return f, engine, err
}

func engineOf(f *fleet.Folder, most int) (fleet.Engine, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	switch f.Engine {
	case fleet.OnSlurm:
		return &slurm.Engine{Folder: f, Program: program}, nil
	case fleet.OnKubernetes:
		return &kubernetes.Engine{Folder: f}, nil
	}
	return &fleet.Local{Folder: f, Program: program, MaxProcesses: most}, nil
}

// wait runs the tasks and shows their progress.
func (o *fleetRunOptions) wait(ctx context.Context, path string, r *fleet.Runner) error {
	screen := &fleetScreen{app: o.app}
	r.OnStatus = screen.show
	err := r.Run(ctx)
	if errors.As(err, new(*fleet.StoppedWaitingError)) {
		printable.Fprintf(o.app.stderr, "vprof: running tasks continue; return to them with\n  vprof fleet status "+
			"%[1]s\n  vprof fleet run %[1]s --on %[2]s     (restarts failed tasks and tasks that wait on this "+
			"machine)\n  vprof fleet collect %[1]s\n  vprof fleet cancel %[1]s\n", path, o.on)
		return context.Canceled
	}
	if err != nil {
		return err
	}
	printable.Fprintf(o.app.stdout, "all tasks are done; collect the results with\n  vprof fleet collect %s\n", path)
	return nil
}

func openFleet(path, dir string) (*fleet.Folder, error) {
	c, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(fleetDir(dir, path, c)); err != nil {
		return nil, err
	}
	f, err := fleet.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("%s: this fleet has not run yet; start it with \"vprof fleet run %s --on ENGINE\", or name "+
			"its folder with --dir", dir, path)
	}
	return f, err
}

func newFleetStatusCmd(a *app) *cobra.Command {
	var dir, format string
	cmd := &cobra.Command{
		Use:   "status FLEET.YAML",
		Short: "Show the progress of a fleet's tasks",
		Args:  oneConfigArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "table" && format != "json" {
				return usagef("--format: %q: use table or json", format)
			}
			f, engine, err := fleetAndEngine(args[0], dir)
			if err != nil {
				return err
			}
			var active map[fleet.Task]string
			if err := engine.Check(cmd.Context()); err != nil {
				printable.Fprintf(a.stderr, "vprof: %v; the state below is from the folder alone\n", err)
			} else if active, err = engine.Active(cmd.Context()); err != nil {
				return err
			}
			s, err := f.Status(active)
			if err != nil {
				return err
			}
			return writeFleetStatus(a, s, format)
		},
	}
	folderFlag(cmd, &dir)
	cmd.Flags().StringVar(&format, "format", "table", "output `format`: table, json")
	return cmd
}

func newFleetCancelCmd(a *app) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "cancel FLEET.YAML",
		Short: "Cancel waiting and running tasks of a fleet",
		Args:  oneConfigArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, engine, err := fleetAndEngine(args[0], dir)
			if err != nil {
				return err
			}
			if err := engine.Check(cmd.Context()); err != nil {
				return err
			}
			n, err := engine.Cancel(cmd.Context())
			if err == nil {
				printable.Fprintf(a.stdout, "canceled %d tasks\n", n)
			}
			return err
		},
	}
	folderFlag(cmd, &dir)
	return cmd
}
