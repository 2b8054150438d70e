package main

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/calibration"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/planner/coefficients"
)

func newCoefficientsShowCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Show every coefficient of a file with its error and source",
		Args:  between(0, 1, "name one: a coefficients file"),
	}
	return (&output{app: a}).showing(cmd, func(args []string) (report.Document, error) {
		f, err := a.openCoefficients(args)
		if err != nil {
			return nil, err
		}
		return calibration.ShowCoefficients(f), nil
	})
}

func newCoefficientsDiffCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff OLD [NEW]",
		Short: "Compare two files, coefficient by coefficient",
		Args:  between(1, 2, "name one or two coefficients files"),
	}
	return (&output{app: a}).showing(cmd, func(args []string) (report.Document, error) {
		old, err := a.openCoefficients(args[:1])
		if err != nil {
			return nil, err
		}
		now, err := a.openCoefficients(args[1:])
		if err != nil {
			return nil, err
		}
		return calibration.DiffCoefficients(old, now), nil
	})
}

// openCoefficients reads the file named, or else the project's.
func (a *app) openCoefficients(args []string) (*coefficients.File, error) {
	if len(args) == 0 {
		f, _, err := (&coefficientFlag{}).load()
		if f == nil && err == nil {
			err = usagef("name a coefficients file: no %s here or above names one", projectFile)
		}
		return f, err
	}
	f, err := coefficients.Open(args[0])
	if errors.As(err, new(*fs.PathError)) {
		err = usageError{err}
	}
	return f, err
}
