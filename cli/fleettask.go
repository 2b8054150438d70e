package cli

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/bench/fleet"
	"github.com/vprof/vprof/bench/job"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/profiler/device"
)

func newFleetTaskCmd(a *app) *cobra.Command {
	part := shardFlags{}
	cmd := &cobra.Command{
		Use:   "task FOLDER --shard i/n",
		Short: "Run a task of a fleet, as its cluster jobs do",
		Args:  argCount(1, 1, "name a GPU's folder in the fleet's folder"),
		RunE:  func(cmd *cobra.Command, args []string) error { return runFleetTask(cmd.Context(), a, &part, args[0]) },
	}
	part.flags = cmd.Flags()
	part.flags.StringVar(&part.shard, "shard", "", "`part` i/n of the jobs, i from 0; auto or auto/n in a job array")
	return cmd
}

func runFleetTask(ctx context.Context, a *app, part *shardFlags, path string) error {
	if given, err := part.parse(); err != nil || !given {
		return errors.Join(err, usagef("--shard is missing; give it as i/n, like 0/4 (vprof fleet run gives it to "+
			"each task)"))
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	f, err := fleet.Open(filepath.Dir(path))
	if err != nil {
		return usageError{err}
	}
	b, ok := f.GPU(filepath.Base(path))
	switch {
	case !ok:
		return usagef("%s: the fleet has no GPU %s; name a GPU's folder in it", f.Dir, filepath.Base(path))
	case f.Tool != vprofTool():
		return usagef("%s was created by vprof %s, and this is %s; run its tasks with the same version", f.Dir,
			f.Tool.Version, vprofTool().Version)
	case part.part.ShardCount != b.Tasks:
		return usagef("--shard: %v does not match %s, which has %d tasks; start the tasks with vprof fleet run",
			part.part, b.Key, b.Tasks)
	}
	from, to := part.part.Range(b.Jobs)
	jobs, err := f.Jobs(b, from, to)
	if err != nil {
		return err
	}
	part.shardFolder = path
	here := &job.Local{Models: a.models(), Evidence: step.Evidence{Residuals: a.residuals}, Open: a.namedDevice}
	return part.run(ctx, a, b.ShardPlan(vprofTool()), nil,
		func(ctx context.Context, unit, _ int, partial json.RawMessage, keep func(any) error) (int, any, error) {
			r, err := runFleetJob(ctx, a, here, jobs[unit-from], partial, keep)
			if err != nil && ctx.Err() == nil && input.IsBadInput(err) && !errors.As(err, new(*device.UnusableError)) {
				// A restart would be refused again, and the other jobs can run.
				return 1, fleet.Result{Case: jobs[unit-from].Case.Short(), RefusedReason: err.Error()}, nil
			}
			return 1, fleet.Result{Report: r}, err
		})
}

func runFleetJob(ctx context.Context, a *app, here *job.Local, j job.Job, partial json.RawMessage,
	keep func(any) error,
) (*report.Report, error) {
	here.Resumed = nil
	if partial != nil {
		here.Resumed = &report.Report{}
		if err := json.Unmarshal(partial, here.Resumed); err != nil {
			return nil, err
		}
	}
	started := a.now().UTC()
	run := func() (*report.Report, error) {
		return here.Run(ctx, j, func(r *report.Report) error {
			a.addProvenance(r, started)
			return keep(r)
		})
	}
	r, err := run()
	if errors.As(err, new(*sweep.ResumeError)) {
		// Another GPU of the same product began the sweep; a sweep holds the results of one GPU.
		here.Resumed = nil
		r, err = run()
	}
	if err != nil {
		return nil, err
	}
	a.addProvenance(r, started)
	return r, nil
}
