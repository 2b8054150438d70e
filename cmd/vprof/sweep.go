package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
)

type sweepOptions struct {
	app   *app
	c     caseFlags
	batch batchFlag
	board boardFlags
	out   output
	quiet bool
}

func newSweepCmd(a *app) *cobra.Command {
	o := &sweepOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Estimate and run batch size after batch size until one does not fit",
		Long: `Estimate what every batch size needs and, beside it, run its training step on a
simulated board: PyTorch's caching allocator with the memory of that board.
The sweep ends at the first batch size that does not fit, and says which
allocation failed.`,
		Example: `  # the model's usual batch sizes, on the default board
  vprof sweep --model redimnet-b2

  # where does an 8 GB board end in half precision?
  vprof sweep --model redimnet-b2 --amp fp16 --gpu rtx-3070 --batch 4..64+4

  # to a file for a program and to another for people
  vprof sweep --model redimnet-b2 --export b2.json --export b2.md`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSweep(cmd.Context(), o) },
	}
	o.c.register(cmd, a)
	o.c.registerAllocConf()
	o.batch.register(cmd, "the model's own")
	o.board.register(cmd, "`board` to simulate (see vprof gpus)")
	o.out.register(cmd)
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "no progress on standard error")
	return cmd
}

func runSweep(ctx context.Context, o *sweepOptions) error {
	lab, m, c, err := o.c.lab(o.app)
	if err != nil {
		return err
	}
	gpu, err := o.board.board()
	if err != nil {
		return err
	}
	batches, err := o.batch.sizes(presets(m, c))
	if err != nil {
		return err
	}
	if err := o.out.open(); err != nil {
		return err
	}
	bar := newProgress(o.app, o.quiet)
	started := o.app.now().UTC()
	r, err := lab.Sweep(ctx, gpu, batches, func(r *report.Report) error {
		stamp(r, started)
		bar.step("%s: %d of %d batch sizes", m.Name, len(r.Points), len(batches))
		return o.out.save(r)
	})
	if r == nil || (err != nil && !errors.Is(err, context.Canceled)) {
		return err
	}
	// An interrupted sweep shows what it has.
	stamp(r, started)
	return errors.Join(err, o.out.print(r))
}

// presets are the batch sizes to try when none are given.
func presets(m models.Model, c models.Case) []int {
	if len(m.Batches) == 0 {
		return []int{c.Batch}
	}
	return slices.Sorted(slices.Values(m.Batches))
}
