package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
)

// output is the destination of a command's result: standard output in one format, and any number of files.
type output struct {
	app     *app
	format  string
	exports []string
	wide    bool
	// modelDefaults names the settings that decide the need of a step and that the user left to the model.
	modelDefaults string
	// origins are the sources of settings, set by verbs that choose settings; other verbs keep the sources in files.
	origins   report.Origins
	fromModel bool
	// defaultGPU is the GPU that was chosen by default, with the reason; empty if the user chose one.
	defaultGPU string

	reportFormat report.Format
	files        []report.Export
}

// register adds the flags of the output to a command. They are checked before the command runs.
func (o *output) register(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.open(); err != nil {
			return err
		}
		return run(cmd, args)
	}
	f := cmd.Flags()
	f.StringVar(&o.format, "format", string(report.Table), "output `format`: "+strings.Join(report.Formats(), ", "))
	f.StringArrayVar(&o.exports, "export", nil, "also write the result to `file`, like run.json or run.md (repeatable)")
	f.BoolVar(&o.wide, "wide", false, "show all columns of tables, however narrow the terminal is")
	completeFlag(cmd, "format", report.Formats)
	return cmd
}

// open checks the format, and that the files can be written.
func (o *output) open() (err error) {
	if o.reportFormat, err = report.ParseFormat(o.format); err != nil {
		return usagef("--format: %w", err)
	}
	o.files, err = report.Exports(o.exports)
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("--export: %w", err) // the command line is right, and the machine is not
	case err != nil:
		return usagef("--export: %w", err)
	}
	return nil
}

// alsoWrite adds a file that the verb itself writes, in addition to --export.
func (o *output) alsoWrite(file string) error {
	o.exports = append(o.exports, file)
	return o.open()
}

func (o *output) save(d report.Document) error {
	if d, ok := d.(interface{ SetOrigins(report.Origins) }); ok && o.fromModel {
		d.SetOrigins(o.origins)
	}
	for _, f := range o.files {
		if err := f.Write(d); err != nil {
			return err
		}
	}
	return nil
}

func (o *output) print(d report.Document) error {
	o.app.printed = d
	if o.reportFormat == report.Table {
		err := report.WriteTable(o.app.stdout, d, o.layout())
		if err == nil && o.defaultGPU != "" {
			_, err = fmt.Fprintf(o.app.stdout, "judged on an %s\n", o.defaultGPU)
		}
		return err
	}
	return report.Write(o.app.stdout, o.reportFormat, d)
}

// pipedWidth is the width of tables in files and pipes, in characters.
const pipedWidth = 120

// layout returns the layout of tables on standard output: as wide as the terminal or COLUMNS, or without a limit.
func (o *output) layout() report.Layout {
	l := report.Layout{Color: o.app.colored(), Defaults: o.modelDefaults}
	if o.wide {
		return l
	}
	l.Width = cmp.Or(o.app.width(), pipedWidth)
	return l
}

// width returns how many columns standard output has: the terminal's, or COLUMNS; zero for no limit.
func (a *app) width() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if out, isFile := a.stdout.(*os.File); isFile {
		if n, _, err := term.GetSize(int(out.Fd())); err == nil {
			return n
		}
	}
	return 0
}

func (o *output) setOrigins(m models.Model, origins report.Origins) {
	o.origins, o.fromModel, o.modelDefaults = origins, true, defaultsText(m, origins)
}

// finish writes everything once.
func (o *output) finish(d report.Document) error {
	if err := o.save(d); err != nil {
		return err
	}
	return o.print(d)
}

// withProgress runs a verb under a line of progress, and writes its result.
func (o *output) withProgress(do func(progress.Func) (report.Document, error)) error {
	bar := startProgress(o.app, false)
	d, err := do(bar.step)
	bar.end()
	if err != nil {
		return err
	}
	return o.finish(d)
}

func (o *output) showDocument(cmd *cobra.Command, make func(args []string) (report.Document, error)) *cobra.Command {
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		d, err := make(args)
		if err != nil {
			return err
		}
		return o.finish(d)
	}
	return o.register(cmd)
}

// isCompleting reports whether this process completes a command line for a shell. Only then completions are registered:
// cobra keeps them, with their commands, until the process ends.
var isCompleting atomic.Bool

// completeFlag offers words for the values of a flag in shell completion.
func completeFlag(cmd *cobra.Command, flag string, words func() []string) {
	if !isCompleting.Load() {
		return
	}
	// The only error is a flag that does not exist, a bug that any test shows.
	if err := cmd.RegisterFlagCompletionFunc(flag,
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return words(), cobra.ShellCompDirectiveNoFileComp
		}); err != nil {
		panic(err)
	}
}
