package cli

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/reference/eventlist"
)

func newEventsCmd(a *app) *cobra.Command {
	var (
		flags  caseFlags
		target gpuFlags
		batch  int
		steps  int
	)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List every allocation and free of the recorded training steps",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("batch") && batch < 1 {
				return usagef("--batch: %d is not a batch size; the smallest is 1", batch)
			}
			if steps < 1 {
				return usagef("--steps: %d is not a number of steps; the smallest is 1", steps)
			}
			setup, c, err := flags.newSetup(a)
			if err != nil {
				return err
			}
			gpu, err := target.oneGPU()
			if err != nil {
				return err
			}
			p, err := setup.Events(cmd.Context(), gpu, cmp.Or(batch, c.Batch), steps)
			if err != nil {
				return err
			}
			if err := eventlist.Write(a.stdout, p); err != nil {
				return fmt.Errorf("events: %w", err)
			}
			return nil
		},
	}
	flags.register(cmd, a)
	target.register(cmd, "`GPU` to record for (see vprof gpus)")
	cmd.Flags().IntVar(&batch, "batch", 0, "batch `size` (default: the model's own)")
	cmd.Flags().IntVar(&steps, "steps", 2,
		"training steps to record: the first, then those with the optimizer's state in place")
	return cmd
}
