package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/advise/systems"
	"github.com/vprof/vprof/bench/advise/trainers"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/models"
)

// noSearchedFlags returns no flags, for commands that use every setting of the file.
func noSearchedFlags() []string { return nil }

// acceptTrainer makes a command accept the configuration of a trainer as its arguments. It sets
// the flags from the configuration, except the flags whose values the command searches itself.
func (f *caseFlags) acceptTrainer(cmd *cobra.Command, a *app, searched func() []string) {
	cmd.Use += " [config...] [-- command]"
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if f.model != "" && len(args) > 0 && cmd.ArgsLenAtDash() < 0 && !looksLikeFile(args[0]) {
			return noArgs(cmd, args)
		}
		return nil
	}
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		file := cmd.Flags().Lookup("config-path")
		if len(args) == 0 && file != nil && f.model == "" && looksLikeFile(file.Value.String()) {
			args = []string{file.Value.String()} // without a model, the same as the file without the flag
			file.Changed = false
			if err := file.Value.Set(""); err != nil {
				return err
			}
		}
		if len(args) == 0 {
			return nil
		}
		if cmd.ArgsLenAtDash() < 0 && !looksLikeFile(args[0]) {
			return notAFileError(cmd, a, args)
		}
		defer input.BeginReading()()
		at := cmd.ArgsLenAtDash()
		run := cmd.Flags().Lookup("run") // runs a command instead of reading it, as a placeholder does
		if at == 0 && (slices.ContainsFunc(args, placeholder.MatchString) || run != nil && run.Changed) {
			return f.useScript(cmd, args)
		}
		if err := f.openTrainer(cmd, a, args, at); err != nil {
			return err
		}
		if f.trainer == nil { // a project's file, which is read when the model is known
			return nil
		}
		return f.applyTrainer(cmd, a, searched())
	}
}

// openTrainer reads a trainer's configuration from files, or from a command after --, which is at argument at.
func (f *caseFlags) openTrainer(cmd *cobra.Command, a *app, args []string, at int) (err error) {
	switch {
	case at > 0:
		return usagef("%s: give either files, or a command after --, not both", cmd.CommandPath())
	case at == 0:
		f.trainer, err = trainers.Command(args, f.patch["objective"].Text)
		var wrong *input.FormatError
		switch {
		case errors.As(err, &wrong) && wrong.Reason == trainers.NoTraining:
			return cmp.Or(scriptAsModelError(cmd, args), err)
		case err == nil && f.trainer.Script != "" && (f.model == "" || f.trainer.Trainer == ""):
			return scriptAsModelError(cmd, args)
		}
		return err
	}
	f.trainer, err = trainers.Open(args, f.patch["objective"].Text)
	if err == nil {
		return nil
	}
	if ran := runOfFiles(a, args); ran != nil {
		f.trainer = nil
		return f.useRun(cmd, args[0], ran)
	}
	model, ok := systems.ModelOfConfig(args[0])
	keys := cmd.Flags().Lookup("map")
	if s, known, _ := systems.Lookup(f.model); ok || known && s.Config != "" || keys != nil && keys.Changed {
		f.trainer = nil
		return f.useProjectFile(cmd, args, model)
	}
	return err
}

// notAFileError returns an error for an argument that is not a trainer's file, and describes what it may be.
func notAFileError(cmd *cobra.Command, a *app, args []string) error {
	if err := scriptAsModelError(cmd, args); err != nil {
		return err
	}
	if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
		return usagef("%s is a folder; name a file in it, or ask what its code needs with \"vprof card %[1]s\"",
			args[0])
	}
	hint := "; a model is named by --model " + args[0]
	if _, err := a.models().Lookup(args[0]); err != nil {
		hint = fmt.Sprintf("; as --model: %v", err)
	}
	return usagef("%s accepts flags and trainers' files (.yaml, .json, .toml, .sh), not %q%s", cmd.CommandPath(),
		args[0], hint)
}

// looksLikeFile reports whether an argument looks like a file, and not like a mistyped flag or a model.
func looksLikeFile(arg string) bool {
	kinds := []string{".yaml", ".yml", ".json", ".toml", ".sh", ".bash", ".slurm", ".sbatch"}
	return !strings.HasPrefix(arg, "hf:") && slices.Contains(kinds, strings.ToLower(filepath.Ext(arg)))
}

// runOfFiles returns the run of a command if the only file is a result of vprof run; nil for other files.
func runOfFiles(a *app, files []string) *report.Report {
	if len(files) != 1 {
		return nil
	}
	data, name, err := a.readAll(files[0])
	if err != nil {
		return nil
	}
	all, err := report.Read(name, bytes.NewReader(data))
	if err != nil || len(all) != 1 || all[0].Script == nil {
		return nil
	}
	return all[0]
}

// useRun stores a run for a verb that judges it. Verbs that plan need the steps, which only a recording has.
func (f *caseFlags) useRun(cmd *cobra.Command, file string, ran *report.Report) error {
	if cmd.Name() != "smoke" {
		return usagef("%s: holds the peaks of a command, but not its steps; record the steps with \"vprof run "+
			"--record run.vprof -- %s\", and use %s --model run.vprof", file, strings.Join(ran.Script.Command, " "),
			cmd.CommandPath())
	}
	f.judgedRun = ran
	return nil
}

// modelOf sets the model that the trainer's configuration names, unless a flag does, and returns the flag.
func (f *caseFlags) modelOf(t *trainers.Config) (words []string, err error) {
	switch {
	case f.model != "":
		return nil, nil
	case t.Model.Name == "":
		return nil, usagef("%s: the file does not name the model; name it with --model", t.File)
	}
	if f.model, err = t.ModelSpec(); err != nil {
		return nil, err
	}
	return []string{"--model " + f.model}, nil
}

// applyTrainer sets the flags that correspond to the trainer's configuration, and reports them.
func (f *caseFlags) applyTrainer(cmd *cobra.Command, a *app, searched []string) error {
	t := f.trainer
	words, err := f.modelOf(t)
	if err != nil {
		return err
	}
	t.CheckRemoteCode(strings.TrimPrefix(f.model, "hf:"))
	if err := t.ChooseLayers(strings.TrimPrefix(f.model, "hf:")); err != nil {
		return err
	}
	given := map[string]bool{}
	for _, s := range t.Settings {
		given[s.Flag] = f.flags.Changed(s.Flag) || f.settings.sets(s.Flag)
	}
	settings, err := f.trainerSettings()
	if err != nil {
		return err
	}
	settings = slices.DeleteFunc(settings, func(s trainers.Setting) bool {
		name, _, _ := strings.Cut(s.Value, "=")
		set := s.Flag == "set"
		return slices.Contains(searched, s.Flag) || given[s.Flag] && !set ||
			s.Flag == trainers.ImageSize && !f.trainsOnImages() || set && f.settings.sets(name)
	})
	if m, unknown := a.models().Lookup(f.model); unknown == nil { // the case describes what is wrong with a model
		settings, err = t.SuitedSettings(m, settings)
	}
	if err != nil {
		return err
	}
	for _, s := range settings {
		flag, field := f.flags.Lookup(s.Flag), models.FieldNamed(s.Flag)
		if field != nil && field.SetOnly {
			f.patch.Set(s.Change)
			words = append(words, field.FlagArgs(s.Value)...)
			continue
		}
		if flag == nil {
			return s.Fault("needs --%s %s, which %s does not have", s.Flag, s.Value, cmd.CommandPath())
		}
		if of, ok := flag.Value.(*fieldFlag); ok && s.Change.Field != nil {
			of.patch.Set(s.Change)
			flag.Changed = true
		} else if err := f.flags.Set(s.Flag, s.Value); err != nil {
			return s.Fault("invalid value %q of --%s", s.Value, s.Flag)
		}
		f.flagsSetByTrainer = append(f.flagsSetByTrainer, s.Flag)
		separator := " "
		if flag.NoOptDefVal != "" {
			separator = "="
		}
		words = append(words, "--"+s.Flag+separator+s.Value)
	}
	printTrainer(a, t)
	printable.Fprintf(a.stderr, "vprof: as flags: %s\n", strings.Join(words, " "))
	return nil
}

func printTrainer(a *app, t *trainers.Config) {
	printable.Fprintf(a.stderr, "vprof: %s is a configuration of %s (keys as of %s); keys that affect memory: %d, "+
		"others: %d\n", t.File, t.Trainer, t.Version, t.Mapped, t.Harmless)
	for _, note := range t.Notes {
		printable.Fprintf(a.stderr, "vprof: warning: %s\n", note)
	}
	for _, key := range t.Unknown {
		hint := ""
		if key.Near != "" {
			hint = fmt.Sprintf("; did you mean %s?", key.Near)
		}
		printable.Fprintf(a.stderr, "vprof: warning: %s: is not a key of %s that vprof knows; it is ignored%s\n",
			key.Key, key.Trainer, hint)
	}
}

// isFixed reports whether the user has set a flag on the command line, and not by a trainer's configuration.
func (f *caseFlags) isFixed(flag string) bool {
	return f.flags.Changed(flag) && !slices.Contains(f.flagsSetByTrainer, flag)
}

// trainsOnImages reports whether the user sets images, in any number, so that the model trains on them.
func (f *caseFlags) trainsOnImages() bool {
	return slices.ContainsFunc(f.settings.pairs, func(pair string) bool {
		return strings.HasPrefix(pair, "images=") && pair != "images=0"
	})
}

// trainerSettings returns the trainer's settings; those about several GPUs are as the command's flags set them.
func (f *caseFlags) trainerSettings() ([]trainers.Setting, error) {
	gpus := ""
	if f.flags.Changed("gpus") {
		gpus = f.flags.Lookup("gpus").Value.String()
	}
	chosen := f.flags.Changed("strategy")
	settings, err := f.trainer.CaseSettings(gpus, chosen)
	for _, s := range settings {
		if s.Flag == "strategy" && !chosen {
			if _, err := models.ParseStrategy(s.Value); err != nil {
				return nil, s.Fault("vprof records %s, not %s; vprof run --gpus N -- COMMAND runs the script with it",
					strings.Join(models.Strategies(), ", "), s.Value)
			}
		}
	}
	return settings, err
}

// withTrainerKey turns an error about a case into one about the key of the trainer's configuration that set the value.
func (f *caseFlags) withTrainerKey(err error) error {
	var wrong *models.CaseError
	if f.trainer == nil || !errors.As(err, &wrong) {
		return err
	}
	for _, s := range f.trainer.Settings {
		name, _, _ := strings.Cut(s.Value, "=")
		if s.Flag == wrong.Field || s.Flag == "set" && name == wrong.Field {
			return s.Fault("%v", wrong)
		}
	}
	return err
}
