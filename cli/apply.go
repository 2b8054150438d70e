package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
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
	// caseFlags are the flags of the case, with the trainer's configuration.
	caseFlags *caseFlags
}

// trainer returns the trainer's configuration to write; nil if the file belongs to no trainer.
func (f *applyFlags) trainer() *trainers.Config {
	if len(f.mapPairs) > 0 {
		return nil
	}
	return f.caseFlags.trainer
}

func (f *applyFlags) register(cmd *cobra.Command) {
	f.flags = cmd.Flags()
	f.flags.BoolVar(&f.apply, "apply", false,
		"write the recommendation into the project's configuration, with a .backup of each file")
	f.flags.BoolVar(&f.dryRun, "dry-run", false, "with --apply: show the changes without writing them")
	f.flags.StringVar(&f.config, "config-path", "",
		"the project's configuration `file` (default with --apply: the one in the folder of the model's project)")
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
	case f.trainer() != nil && f.config != "":
		return usagef("--config-path: --apply writes into %s; remove --config-path", f.trainer().File)
	case len(f.mapPairs) > 0 && f.config == "":
		return usagef("--map names keys of a configuration file; name the file with --config-path")
	}
	return nil
}

// path returns the project's configuration file to write: the one of --config-path, or the one that vprof finds.
func (f *applyFlags) path(s systems.Project) string { return cmp.Or(f.config, s.Config) }

// takeFileValues fixes in the case the values that the user's file keeps: those outside of --map, and the precision and
// checkpointing of a project. The recommendation must be safe with the rest of the file unchanged. It returns the names
// of the fixed fields.
func (f *applyFlags) takeFileValues(m models.Model, c *models.Case) (map[string]bool, error) {
	held := map[string]bool{}
	if s, found, err := f.project(m); found || err != nil {
		for _, name := range []string{"amp", "checkpointing"} {
			_, read := f.caseFlags.config.values[name]
			held[name] = !f.flags.Changed(name) && (read || !s.Supports(name))
		}
		return held, err
	}
	if len(f.mapPairs) == 0 {
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
	for _, pair := range f.mapPairs {
		values, err := systems.ReadMapped(f.config, []string{pair})
		amp, isNamed := values["amp"].(string)
		if err != nil || !isNamed { // writing describes what is wrong
			continue
		}
		c, ok := bestChoice(fit, best.Device, func(c report.Choice) bool { return c.Case.AMP.String() == amp })
		if ok && c.SamplesPerSecond >= samePrecisionSpeed*best.SamplesPerSecond {
			return c
		}
	}
	return best
}

func bestChoice(fit *report.Fit, device string, wanted func(report.Choice) bool) (report.Choice, bool) {
	some := *fit
	some.Choices = slices.DeleteFunc(slices.Clone(fit.Choices), func(c report.Choice) bool { return !wanted(c) })
	return some.Overall(device)
}

// chooseBest returns the choice to write: safe in all stages and, for settings that the project does not offer, with
// its authors' values.
func (f *applyFlags) chooseBest(a *app, fit *report.Fit, s systems.Project) (report.Choice, error) {
	device, wanted := fit.Devices[0].Name, func(report.Choice) bool { return true }
	if len(f.mapPairs) == 0 && len(s.Unread) > 0 {
		m, err := a.models().Lookup(fit.Model)
		if err != nil {
			return report.Choice{}, err
		}
		unread, err := unreadByProject(m)
		if err != nil {
			return report.Choice{}, err
		}
		wanted = func(c report.Choice) bool { return unread == nil || unread(c.Case.Case) == "" }
		if !slices.ContainsFunc(fit.Choices, wanted) {
			return report.Choice{}, usagef("nothing was written: %s does not read its %s; run fit without flags for "+
				"them", s.Project, strings.Join(s.Unread, " and "))
		}
	}
	c, ok := bestChoice(fit, device, wanted)
	if !ok {
		return c, negativeVerdict{errors.New("no configuration fits in every stage of training; choose a stage with " +
			"--stage")}
	}
	return f.preferPrecision(fit, c), nil
}

// run writes the recommended values, or with --dry-run shows the changes.
func (f *applyFlags) run(ctx context.Context, o *output, fit *report.Fit) error {
	s, known, err := systems.Lookup(fit.Model)
	if err != nil {
		return err
	}
	if !known && len(f.mapPairs) == 0 && f.trainer() == nil {
		return usagef("--apply: vprof does not know the configuration file of %s; name the file with --config-path "+
			"and its keys with --map batch=KEY", fit.Model)
	}
	c, err := f.chooseBest(o.app, fit, s)
	if err != nil {
		return err
	}
	to := o.app.stdout
	if o.reportFormat != report.Table && o.reportFormat != report.Markdown {
		to = o.app.stderr // standard output is for a program
	}
	fmt.Fprintf(to, "\nto apply: %s\n", fit.Recommendation(c))
	if f.trainer() != nil && !f.trainer().Writable() {
		values := f.trainerValues(c)
		text, err := f.trainer().Paste(values)
		if err == nil {
			_, err = f.readBack(ctx, o.app, nil, trainerFlags(values, c), c)
		}
		if err == nil {
			_, err = fmt.Fprintf(to, "\nset in the command of %s:\n\n%s\n", f.trainer().File, text)
		}
		return err
	}
	if f.trainer() == nil && len(f.mapPairs) == 0 && s.Config == "" {
		return f.printValuesToPaste(to, s, c)
	}
	changes, err := f.changes(s, c)
	if err != nil {
		return usageError{err}
	}
	command, err := f.readBack(ctx, o.app, changes, nil, c)
	if err != nil {
		return err
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
	printable.Fprintf(o.app.stderr, "vprof: wrote %d of %d files; backups: %s; safe by: %s\n", changed, len(changes),
		strings.Join(backups, ", "), command)
	return nil
}

// printValuesToPaste prints the settings to paste for projects without a configuration file.
func (f *applyFlags) printValuesToPaste(to io.Writer, s systems.Project, c report.Choice) error {
	text, err := s.Paste(systemValues(c))
	if err == nil && f.config != "" {
		return usagef("--config-path: vprof does not edit %s of %s; leave out --config-path, and paste the printed "+
			"values into the file", s.ReplacedText, s.Project)
	}
	if err == nil {
		_, err = fmt.Fprintf(to, "\npaste into %s of %s:\n\n%s", s.ReplacedText, s.Project, text)
	}
	return err
}

// systemValues returns the values to write into a project's files.
func systemValues(c report.Choice) systems.Values {
	v := systems.Values{Case: c.Case.Case, Effective: c.EffectiveBatch}
	v.Batch = c.Batch
	return v
}

// trainerValues returns the values to write into a trainer's configuration, from the choice and from the user's flags
// for which the trainer has keys.
func (f *applyFlags) trainerValues(c report.Choice) trainers.Values {
	v := trainers.Values{
		Batch: c.Batch, Accumulate: c.Case.Accumulate, Checkpointing: c.Case.Checkpointing,
		Savings: map[string]string{}, Given: map[string]string{},
	}
	give := func(flag, value string) {
		if f.trainer().HasKeys(flag, value) {
			v.Given[flag] = value
		}
	}
	f.flags.Visit(func(flag *pflag.Flag) {
		written := slices.Concat(flagsOutsideFiles, []string{"model", "batch", "accumulate", "checkpointing"})
		if f.caseFlags.isFixed(flag.Name) && !slices.Contains(written, flag.Name) {
			give(flag.Name, flag.Value.String())
		}
	})
	if c.SeqLen > 0 {
		give("seq-len", fmt.Sprint(c.SeqLen))
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
	maps.DeleteFunc(v.Given, func(flag, _ string) bool { return v.Savings[flag] != "" })
	return v
}

// trainerFlags returns the values of [applyFlags.trainerValues] as flags of vprof smoke.
func trainerFlags(v trainers.Values, c report.Choice) []string {
	args := []string{fmt.Sprintf("--batch=%d", v.Batch), fmt.Sprintf("--accumulate=%d", max(1, v.Accumulate))}
	args = append(args, "--checkpointing="+cmp.Or(string(c.Case.Recompute), fmt.Sprint(v.Checkpointing)))
	for _, values := range []map[string]string{v.Savings, v.Given} {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			args = append(args, "--"+name+"="+values[name])
		}
	}
	return args
}

// changes returns the changed files with their new contents.
func (f *applyFlags) changes(s systems.Project, c report.Choice) ([]configfile.Change, error) {
	files, err := []systems.FileEdits{{Path: f.config}}, error(nil)
	switch t := f.trainer(); {
	case t != nil:
		files[0].Path = t.File
		files[0].Edits, err = t.Edits(f.trainerValues(c))
	case len(f.mapPairs) > 0:
		if files[0].Edits, err = systems.MappedEdits(f.mapPairs, systemValues(c)); err != nil {
			err = fmt.Errorf("--map: %w", err)
		}
	default:
		files, err = s.Files(f.path(s), systemValues(c))
	}
	if err != nil {
		return nil, err
	}
	var changes []configfile.Change
	var wrong []error
	for _, file := range files {
		c, err := configfile.Prepare(file.Path, file.Edits)
		isMissing := errors.Is(err, fs.ErrNotExist)
		switch {
		case err == nil:
			changes = append(changes, c)
		case !isMissing:
			wrong = append(wrong, err)
		case !file.Optional:
			wrong = append(wrong, fmt.Errorf("%w (name the file with --config-path)", err))
		}
	}
	return changes, errors.Join(wrong...)
}
