package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/profiler/device"
)

// modelFlags are flags of smoke that mean nothing for a command that is run.
var modelFlags = []string{
	"model", "config-path", "map", "longest", "lengths", "validation-batch", "device", "auto", "profile",
	"other-processes", "risk",
}

// runScript is smoke of a command that is run.
func (o *smokeOptions) runScript(cmd *cobra.Command) error {
	for _, name := range modelFlags {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is about models; a command is run as it is, on the board of --gpu", name)
		}
	}
	values := settingValues(o.c.settings.pairs)
	if o.batch > 0 {
		values["batch"] = strconv.Itoa(o.batch)
	}
	words, err := substitute(o.c.script, values)
	if err != nil {
		return err
	}
	budget, err := o.budget.budget()
	if err != nil {
		return err
	}
	before, tolerance, err := o.begin()
	if err != nil {
		return err
	}
	runs := &runOptions{app: o.app, board: o.board, rank: "0", steps: "3", out: o.out}
	runs.command = script.Command{Args: words, Until: o.until, GPUs: 1}
	if err := runs.check(); err != nil {
		return err
	}
	if runs.command.Board, err = o.board.board(); err != nil {
		return err
	}
	o.out.defaultBoard = o.board.defaultBoard([]device.GPU{runs.command.Board})
	started := o.app.now().UTC()
	outcome, err := runs.execute(cmd.Context(), runs.command)
	if err != nil {
		return err
	}
	r, err := outcome.Report(cmd.Context())
	if err != nil {
		return err
	}
	if ended := endOf(outcome, r, false); ended != nil && outcome.Kind() != script.OutOfMemory {
		return ended
	}
	return o.judge(outcome.Smoke(r, budget, max(o.batch, 1)), started, before, tolerance)
}
