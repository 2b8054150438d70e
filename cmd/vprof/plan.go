package main

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/job"
	"github.com/vprof/vprof/bench/report"
)

type planOptions struct {
	app   *app
	c     caseFlags
	batch batchFlag
	board boardFlags
	part  shardFlags
	out   output
}

func newPlanCmd(a *app) *cobra.Command {
	o := &planOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Estimate the memory of a training step, component by component",
		Long: `Estimate what a training step needs, component by component, without touching
any device. Several boards give a table of boards and batch sizes.

` + shardsHelp,
		Example: `  # what the model needs as its authors train it
  vprof plan --model redimnet-b2

  # which of these boards takes which batch size?
  vprof plan --model redimnet-b2 --batch 16..128x2 --gpu rtx-3060,rtx-4090,a100-80`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPlan(cmd.Context(), o) },
	}
	o.c.register(cmd, a)
	o.c.registerAllocConf()
	o.batch.register(cmd, "the model's own batch")
	o.board.register(cmd, "`boards`: a list like rtx-3060,a100-80, or all (see vprof gpus)")
	o.part.register(cmd.Flags())
	o.out.register(cmd)
	return cmd
}

func runPlan(ctx context.Context, o *planOptions) error {
	m, c, err := o.c.resolve(o.app)
	if err != nil {
		return err
	}
	evidence, err := o.c.evidence(o.app)
	if err != nil {
		return err
	}
	gpus, err := o.board.boards()
	if err != nil {
		return err
	}
	batches, err := o.batch.sizes([]int{c.Batch})
	if err != nil {
		return err
	}
	here := &job.Local{Models: o.app.models(), Evidence: evidence}
	jobs := job.Plan(report.CaseOf(m, c), gpus, batches)
	for i := range jobs {
		jobs[i].Calibrated = evidence.Calibrated
	}
	if part, err := o.part.open(); part || err != nil {
		if err != nil {
			return err
		}
		return o.shard(ctx, here, jobs, step.Unsupported(gpus))
	}
	if err := o.out.open(); err != nil {
		return err
	}
	started := o.app.now().UTC()
	bar := startProgress(o.app, false)
	r, err := job.RunAll(ctx, here, jobs, "boards", bar.step)
	bar.end()
	if err != nil {
		return err
	}
	r.Warnings = append(r.Warnings, step.Unsupported(gpus)...)
	o.app.stamp(r, started)
	return o.out.finish(r)
}

// shard estimates a part of all boards and batch sizes: the batch sizes of a board
// are neighbors. Warnings are of all boards.
func (o *planOptions) shard(ctx context.Context, here *job.Local, jobs []job.Job, warnings []report.Warning) error {
	each := len(jobs[0].Batches)
	p, err := planOf("plan", len(jobs)*each, jobs)
	if err != nil {
		return err
	}
	return o.part.run(ctx, o.app, p, warnings, func(ctx context.Context, from, to int, _ json.RawMessage, _ func(any) error) (int, any, error) {
		j := jobs[from/each]
		first := from % each
		j.Batches = j.Batches[first:min(first+to-from, each)]
		r, err := here.Run(ctx, j, func(*report.Report) error { return nil })
		if err != nil {
			return 0, nil, err
		}
		o.app.stamp(r, o.app.now().UTC())
		return len(j.Batches), r, nil
	})
}
