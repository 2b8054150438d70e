package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/advise/configfile"
	"github.com/vprof/vprof/bench/advise/systems"
	"github.com/vprof/vprof/bench/advise/trainers"
	"github.com/vprof/vprof/bench/experiment/fit"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/models"
)

// applyFlags write a recommendation into a project's files.
type applyFlags struct {
	flags         *pflag.FlagSet
	apply, dryRun bool
	config        string
	mapPairs      []string
	// trainer is the trainer's configuration to write into; nil without one. fixed reports
	// whether the user has set a flag in addition to it.
	trainer     *trainers.Config
	isFixedFlag func(flag string) bool
}

func (f *applyFlags) register(cmd *cobra.Command) {
	f.flags = cmd.Flags()
	f.flags.BoolVar(&f.apply, "apply", false,
		"write the recommendation into the project's configuration, with a .backup of each file")
	f.flags.BoolVar(&f.dryRun, "dry-run", false, "with --apply: show the changes without writing them")
	f.flags.StringVar(&f.config, "config-path", "",
		"the project's configuration `file` (default with --apply: the usual path in the model's project)")
	f.flags.StringArrayVar(&f.mapPairs, "map", nil,
		"with --apply: write a value to this key of a YAML, TOML or JSON file, as `name=path.to.key`; names: "+
			strings.Join(systems.Names(), ", ")+" (effective batch size), or a setting of the model (repeatable)")
}

// check refuses flags that contradict each other.
func (f *applyFlags) check(gpus int) error {
	if !f.apply {
		return refuseFlags(f.flags, "--%s works only with --apply", "dry-run", "map")
	}
	switch {
	case gpus > 1:
		return usagef("--apply: a configuration file is written for one GPU; choose it with --gpu")
	case f.trainer != nil && f.config != "" && len(f.mapPairs) == 0:
		return usagef("--config-path: --apply writes the recommendation into %s; remove --config-path", f.trainer.File)
	case len(f.mapPairs) > 0 && f.config == "":
		return usagef("--map names keys of a configuration file; name the file with --config-path")
	}
	return nil
}

// path returns the file of a system that is written.
func (f *applyFlags) path(s systems.Project) string { return cmp.Or(f.config, s.Config) }

// takeFileValues fixes in the case the values that the user's file keeps: those outside of --map, and the precision and
// checkpointing of a project. The recommendation must be safe with the rest of the file unchanged. It returns the names
// of the fixed fields.
func (f *applyFlags) takeFileValues(m models.Model, c *models.Case) (held map[string]bool, err error) {
	held = map[string]bool{}
	if s, values, found, err := f.file(m); found || err != nil {
		for _, name := range []string{"amp", "checkpointing"} {
			_, read := values[name]
			held[name] = !f.flags.Changed(name) && (read || !s.Supports(name))
		}
		if err == nil {
			err = setFileValues(c, values, func(name string) bool { return !held[name] })
		}
		return held, err
	}
	if !f.apply || len(f.mapPairs) == 0 {
		return held, nil
	}
	values, err := systems.ReadCommonKeys(f.config, f.mapPairs)
	if err != nil {
		return nil, usageError{err}
	}
	for _, name := range []string{"amp", "checkpointing", "accumulate"} {
		held[name] = !systems.IsMapped(f.mapPairs, name) && !f.flags.Changed(name)
	}
	return held, setFileValues(c, values, func(name string) bool { return !held[name] })
}

// samePrecisionSpeed is the share of the best speed above which the user's own precision is kept.
const samePrecisionSpeed = 0.99

// preferPrecision returns the choice with the precision of the user's file if it is about as fast.
func (f *applyFlags) preferPrecision(fit *report.Fit, best report.Choice) report.Choice {
	if !systems.IsMapped(f.mapPairs, "amp") {
		return best
	}
	pairs := slices.DeleteFunc(slices.Clone(f.mapPairs), func(pair string) bool {
		return !strings.HasPrefix(pair, "amp=")
	})
	values, err := systems.ReadMapped(f.config, pairs)
	if err != nil {
		return best // writing describes what is wrong
	}
	amp, err := models.ParseAutocast(fmt.Sprint(values["amp"]))
	if err != nil {
		return best
	}
	c, ok := bestChoice(fit, best.Device, func(c report.Choice) bool { return c.Case.AMP == amp })
	if ok && c.SamplesPerSecond >= samePrecisionSpeed*best.SamplesPerSecond {
		return c
	}
	return best
}

func bestChoice(fit *report.Fit, device string, wanted func(report.Choice) bool) (report.Choice, bool) {
	some := *fit
	some.Choices = slices.DeleteFunc(slices.Clone(fit.Choices), func(c report.Choice) bool { return !wanted(c) })
	return some.Overall(device)
}

// chooseBest returns the choice to write: safe in all stages and, for settings that the project
// does not offer, with its authors' values.
func (f *applyFlags) chooseBest(fit *report.Fit, s systems.Project) (c report.Choice, note string, err error) {
	device := fit.Devices[0].Name
	if len(f.mapPairs) == 0 && (!s.Supports("amp") || !s.Supports("checkpointing")) {
		if c, ok := bestChoice(fit, device, func(c report.Choice) bool { return c.IsAuthorsOwn }); ok {
			return c, "", nil
		}
		note = s.Project + " does not read its " + strings.Join(s.Unread, " and ") +
			"; make sure that your code sets them"
		if left := s.UnwrittenKeys(); len(left) > 0 {
			note += "; unchanged: " + strings.Join(left, " and ")
		}
	}
	c, ok := fit.Overall(device)
	if !ok {
		return c, "", errors.New("no configuration fits in every stage of training; choose one stage with --stage")
	}
	return f.preferPrecision(fit, c), note, nil
}

// run writes the recommended changes, or shows them with --dry-run.
func (f *applyFlags) run(ctx context.Context, o *output, fit *report.Fit) error {
	s, known, err := systems.Lookup(fit.Model)
	if err != nil {
		return err
	}
	if !known && len(f.mapPairs) == 0 && f.trainer == nil {
		return usagef("--apply: vprof does not know the configuration file of %s; name the file with --config-path "+
			"and its keys with --map batch=KEY", fit.Model)
	}
	c, note, err := f.chooseBest(fit, s)
	if err != nil {
		return negativeVerdict{err}
	}
	v := systems.Values{Case: c.Case.Case, Effective: c.EffectiveBatch}
	v.Batch = c.Batch
	to := o.app.stdout
	if o.reportFormat != report.Table && o.reportFormat != report.Markdown {
		to = o.app.stderr // standard output is for a program
	}
	fmt.Fprintf(to, "\nto apply: %s\n", fit.Recommendation(c))
	for _, line := range f.valuesNotInFile(c, note) {
		printable.Fprintf(o.app.stderr, "vprof: warning: %s\n", line)
	}
	if f.trainer != nil && len(f.mapPairs) == 0 && !f.trainer.Writable() {
		text, err := f.trainer.Paste(trainerValues(c))
		if err == nil {
			_, err = fmt.Fprintf(to, "\nset in the command of %s:\n\n%s\n", f.trainer.File, text)
		}
		return err
	}
	if f.trainer == nil && len(f.mapPairs) == 0 && s.Config == "" {
		return f.printValuesToPaste(to, s, v)
	}
	changes, err := f.changes(s, v, c)
	if err == nil {
		err = f.readBack(changes, c)
	}
	if err != nil {
		return usageError{err}
	}
	changed := 0
	for _, c := range changes {
		if !bytes.Equal(c.Before, c.After) {
			changed++
		}
		fmt.Fprint(to, c.Diff())
	}
	switch {
	case changed == 0:
		fmt.Fprintln(o.app.stderr, "vprof: the files have these values already")
		return nil
	case f.dryRun:
		fmt.Fprintln(o.app.stderr, "vprof: dry run, nothing was written")
		return nil
	}
	backups, err := configfile.Write(ctx, changes)
	if err != nil {
		return err
	}
	printable.Fprintf(o.app.stderr, "vprof: wrote %d of %d files; backups: %s\n", changed, len(changes),
		strings.Join(backups, ", "))
	return nil
}

// printValuesToPaste prints the settings to paste for projects without a configuration file.
func (f *applyFlags) printValuesToPaste(to io.Writer, s systems.Project, v systems.Values) error {
	text, err := s.Paste(v)
	if err != nil {
		return err
	}
	if f.config != "" {
		return usagef("--config-path: vprof does not edit %s of %s; leave out --config-path, and paste the printed "+
			"values into the file", s.ReplacedText, s.Project)
	}
	_, err = fmt.Fprintf(to, "\npaste into %s of %s:\n\n%s", s.ReplacedText, s.Project, text)
	return err
}

// unwritable reports whether the target file has no key for a memory-saving option, given by its flag.
func (f *applyFlags) unwritable(flag string) bool {
	return f.apply && f.trainer != nil && len(f.mapPairs) == 0 && flag != "checkpointing" && !f.trainer.CanSet(flag)
}

// trainerValues returns the values to write into a trainer's configuration.
func trainerValues(c report.Choice) trainers.Values {
	v := trainers.Values{
		Batch: c.Batch, Accumulate: c.Case.Accumulate, Checkpointing: c.Case.Checkpointing,
		Savings: map[string]string{},
	}
	turn := func(on bool, flag, value string) {
		if on {
			v.Savings[flag] = value
		}
	}
	k := &c.Case.Case
	turn(k.Liger, "liger", "true")
	turn(k.Offload, "offload", "true")
	turn(k.InBackward, "optimizer-in-backward", "true")
	turn(k.Quantize != "", "quantize", k.Quantize)
	turn(fit.HasSaving("optimizer", k), "optimizer", k.Optimizer)
	return v
}

// changes returns the files with their new contents.
func (f *applyFlags) changes(s systems.Project, v systems.Values, c report.Choice) ([]configfile.Change, error) {
	var files []systems.FileEdits
	var err error
	if f.trainer != nil && len(f.mapPairs) == 0 {
		edits, err := f.trainer.Edits(trainerValues(c))
		if err != nil {
			return nil, err
		}
		files = []systems.FileEdits{{Path: f.trainer.File, Edits: edits}}
	} else if len(f.mapPairs) > 0 {
		edits, err := systems.MappedEdits(f.mapPairs, v)
		if err != nil {
			return nil, fmt.Errorf("--map: %w", err)
		}
		files = []systems.FileEdits{{Path: f.config, Edits: edits}}
	} else if files, err = s.Files(f.path(s), v); err != nil {
		return nil, err
	}
	var changes []configfile.Change
	var wrong []error
	for _, file := range files {
		c, err := configfile.Prepare(file.Path, file.Edits)
		switch {
		case err == nil:
			changes = append(changes, c)
		case file.Optional && errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, fs.ErrNotExist):
			wrong = append(wrong, fmt.Errorf("%w (name the file with --config-path)", err))
		default:
			wrong = append(wrong, err)
		}
	}
	return changes, errors.Join(wrong...)
}
