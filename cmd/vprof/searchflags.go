package main

import (
	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/fit"
	"github.com/vprof/vprof/models"
)

// searchFlags are the flags of searches for a batch size: a case, boards of the catalog
// or of this machine, and how much of them may be filled.
type searchFlags struct {
	c      caseFlags
	board  boardFlags
	budget budgetFlags
	local  localFlags
}

func (f *searchFlags) register(cmd *cobra.Command, a *app, boardUsage string) {
	f.c.register(cmd, a)
	f.c.ranks.linkable = true
	f.c.registerAllocConf()
	f.board.register(cmd, boardUsage)
	f.budget.register(cmd)
	f.local.register(cmd)
}

// search makes the search for a single case. A board to measure on is then open, and
// local closes it, even after an error.
func (f *searchFlags) search(a *app, m models.Model, c models.Case) (fit.Search, error) {
	s := fit.Search{Model: m, Cases: []models.Case{c}}
	var err error
	if s.Budget, err = f.budget.budget(); err != nil {
		return s, err
	}
	if s.GPUs, s.Others, err = f.local.boards(a, &f.board); err != nil {
		return s, err
	}
	s.GPUs = f.c.ranks.linked(s.GPUs)
	s.Device = f.local.device
	s.Evidence, err = f.c.evidence(a)
	return s, err
}
