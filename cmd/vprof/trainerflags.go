package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/advise/systems"
	"github.com/vprof/vprof/bench/advise/trainers"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
)

// takesTrainer makes a command take the configuration of a trainer as its arguments:
// what it says is then set as flags, but for those that the command searches itself.
func (f *caseFlags) takesTrainer(cmd *cobra.Command, a *app, searched ...string) {
	cmd.Use += " [config...] [-- command]"
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if f.model != "" && len(args) > 0 && cmd.ArgsLenAtDash() < 0 && !looksLikeFile(args[0]) {
			return noArgs(cmd, args)
		}
		return nil
	}
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if cmd.ArgsLenAtDash() < 0 && !looksLikeFile(args[0]) {
			return noFile(cmd, a, args)
		}
		defer a.reads()()
		var err error
		if at := cmd.ArgsLenAtDash(); at >= 0 {
			if at > 0 {
				return usagef("%s: give files before --, or a command behind it, not both", cmd.CommandPath())
			}
			if isRun(cmd, args[at:]) {
				return f.takeScript(cmd, args[at:])
			}
			if f.trainer, err = trainers.Command(args[at:]); err != nil {
				return cmp.Or(asScript(cmd, args[at:]), err)
			}
		} else {
			f.trainer, err = trainers.Open(args)
		}
		if model, ok := systems.Of(args[0]); ok && err != nil {
			return usagef("%s is the configuration of a project that vprof knows by its model: vprof smoke --model "+
				"%s --config-path %s", args[0], model, args[0])
		}
		if err != nil {
			return err
		}
		return f.follow(cmd, a, searched)
	}
}

// noFile says what an argument may be that is no file of a trainer.
func noFile(cmd *cobra.Command, a *app, args []string) error {
	if err := asScript(cmd, args); err != nil {
		return err
	}
	hint := ""
	if _, err := a.models().Lookup(args[0]); err == nil {
		hint = fmt.Sprintf("; a model is named by --model %s", args[0])
	}
	return usagef("%s takes flags, and files of trainers (.yaml, .json, .sh), not %q%s", cmd.CommandPath(),
		args[0], hint)
}

// looksLikeFile tells a file from a mistyped flag.
func looksLikeFile(arg string) bool {
	return slices.ContainsFunc([]string{".yaml", ".yml", ".json", ".sh", ".bash", ".slurm", ".sbatch"},
		func(suffix string) bool {
			return strings.HasSuffix(strings.ToLower(arg), suffix)
		})
}

// described is the path of the description of a configuration's model, with that of its
// teacher.
func described(t *trainers.Config) (string, error) {
	path, err := t.Model.Find()
	if err != nil || t.Teacher.Name == "" {
		return path, err
	}
	teacher, err := t.Teacher.Find()
	return path + hfconfig.TeacherMark + teacher, err
}

// modelOf is the model that the trainer's configuration names, where no flag does, and the words that say so.
func (f *caseFlags) modelOf(t *trainers.Config) (words []string, err error) {
	switch {
	case f.model != "":
		return nil, nil
	case t.Model.Name == "":
		return nil, usagef("%s: says not which model is trained; name it with --model", t.File)
	}
	path, err := described(t)
	if err != nil {
		return nil, err
	}
	f.model = "hf:" + path
	return []string{"--model " + f.model}, nil
}

// follow sets the flags that the trainer's configuration stands for, and says so.
func (f *caseFlags) follow(cmd *cobra.Command, a *app, searched []string) error {
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
		given[s.Flag] = f.flags.Changed(s.Flag)
	}
	settings, err := f.shared(cmd, t.Settings)
	if err != nil {
		return err
	}
	settings = f.described(a, settings)
	for _, s := range settings {
		flag := f.flags.Lookup(s.Flag)
		name, _, _ := strings.Cut(s.Value, "=")
		switch {
		case slices.Contains(searched, s.Flag),
			given[s.Flag] && s.Flag != "set",
			s.Flag == trainers.ImageSize && !f.onImages(a):
			continue
		case s.Flag == "set" && slices.ContainsFunc(f.settings.pairs, func(pair string) bool {
			return strings.HasPrefix(pair, name+"=")
		}):
			continue
		case s.Flag == "set" && trainers.OfSome(name) && !f.has(a, name):
			continue
		case s.Flag == "set" && name == trainers.Eager && !f.has(a, name):
			if m, err := a.models().Lookup(f.model); err == nil && !m.Levers.Eager {
				return s.Wrong("vprof does not describe the eager attention of %s; plan it with the attention that "+
					"it is loaded with", f.model)
			}
			continue
		case s.Flag == "set" && name == trainers.Flex && !f.has(a, name):
			return s.Wrong("vprof does not describe flex_attention for %s, or transformers has none; plan it with "+
				"another attention", f.model)
		case flag == nil:
			return s.Wrong("needs --%s %s, which %s does not have", s.Flag, s.Value, cmd.CommandPath())
		}
		if of, ok := flag.Value.(*fieldFlag); ok && s.Change.Field != nil {
			of.patch.Set(s.Change)
			flag.Changed = true
		} else if err := f.flags.Set(s.Flag, s.Value); err != nil {
			return s.Wrong("%q is no value of --%s", s.Value, s.Flag)
		}
		f.followed = append(f.followed, s.Flag)
		words = append(words, "--"+s.Flag+separator(flag.NoOptDefVal)+s.Value)
	}
	say(a, t, words)
	return nil
}

// say tells what a trainer's configuration was read as.
func say(a *app, t *trainers.Config, words []string) {
	printable.Fprintf(a.stderr, "vprof: %s is of %s (read as of %s): %d keys matter, %d do not\n", t.File, t.Trainer,
		t.Version, t.Mapped, t.Harmless)
	printable.Fprintf(a.stderr, "vprof: as flags: %s\n", strings.Join(words, " "))
	for _, note := range t.Notes {
		printable.Fprintf(a.stderr, "vprof: warning: %s\n", note)
	}
	for _, key := range t.Unknown {
		hint := ""
		if key.Near != "" {
			hint = fmt.Sprintf("; did you mean %s?", key.Near)
		}
		printable.Fprintf(a.stderr,
			"vprof: warning: %s: is no key of %s that vprof knows; it is left out of account%s\n", key.Key,
			t.Trainer, hint)
	}
}

// fixed reports whether the user has given a flag, and no trainer's configuration.
func (f *caseFlags) fixed(flag string) bool {
	return f.flags.Changed(flag) && !slices.Contains(f.followed, flag)
}

// has reports whether the model has a setting.
func (f *caseFlags) has(a *app, setting string) bool {
	m, err := a.models().Lookup(f.model)
	return err == nil && slices.ContainsFunc(m.Settings, func(s models.Setting) bool { return s.Name == setting })
}

// onImages tells whether the user has the model trained on images, of which it takes any size.
func (f *caseFlags) onImages(a *app) bool {
	return f.has(a, trainers.ImageSize) && slices.ContainsFunc(f.settings.pairs, func(pair string) bool {
		return strings.HasPrefix(pair, "images=") && pair != "images=0"
	})
}

// described leaves of liger-kernel what vprof describes for the model: of most the loss alone.
func (f *caseFlags) described(a *app, settings []trainers.Setting) []trainers.Setting {
	m, err := a.models().Lookup(f.model)
	if err != nil || m.Levers.Liger || !f.has(a, fusedLoss) {
		return settings
	}
	layersAlone := func(s trainers.Setting) bool { return s.Flag == "set" && s.Value == "plain-loss=1" }
	if slices.ContainsFunc(settings, layersAlone) {
		return slices.DeleteFunc(settings, func(s trainers.Setting) bool {
			if s.Flag == "liger" {
				f.trainer.Notes = append(f.trainer.Notes,
					fmt.Sprintf("%s: vprof does not describe liger-kernel's norms and feed-forward layers for this "+
						"model, which keep less than what is planned", s.From))
			}
			return s.Flag == "liger" || layersAlone(s)
		})
	}
	for i, s := range settings {
		if s.Flag == "liger" && s.Value == "true" && !f.flags.Changed("liger") {
			settings[i].Flag, settings[i].Value = "set", fusedLoss+"=1"
			f.trainer.Notes = append(f.trainer.Notes,
				fmt.Sprintf("%s: vprof describes liger-kernel's loss for this model and not its norms and "+
					"feed-forward layers, which keep less than what is planned", s.From))
		}
	}
	return settings
}

// fusedLoss is the setting that computes the loss alone by liger-kernel.
const fusedLoss = "fused-loss"

// shared are the settings with those about several GPUs as the command takes them.
func (f *caseFlags) shared(cmd *cobra.Command, settings []trainers.Setting) ([]trainers.Setting, error) {
	gpus := ""
	for _, s := range settings {
		if s.Flag == "gpus" {
			gpus = s.Value
		}
	}
	if f.flags.Changed("gpus") {
		gpus = f.flags.Lookup("gpus").Value.String()
	}
	var out []trainers.Setting
	for _, s := range settings {
		switch {
		case s.Flag == "gpus" && s.Value == "1", s.Flag == "strategy" && gpus == "1":
			continue
		case s.Flag != "strategy" || f.flags.Changed("strategy"):
		case gpus == "":
			return nil,
				s.Wrong("several GPUs share the work (%s), and no file says how many; say so with --gpus N", s.Value)
		case cmd.Name() != "fit":
			if _, err := models.ParseStrategy(s.Value); err != nil {
				return nil, s.Wrong("vprof records %s, and not %s; vprof fit has a formula for it",
					strings.Join(models.Strategies(), ", "), s.Value)
			}
		}
		out = append(out, s)
	}
	shares := slices.ContainsFunc(out, func(s trainers.Setting) bool { return s.Flag == "strategy" })
	if n, err := strconv.Atoi(gpus); err == nil && n > 1 && !shares && !f.flags.Changed("strategy") &&
		f.trainer.Several != "" {
		out = append(out, trainers.Setting{
			Flag: "strategy", Value: f.trainer.Several,
			From: trainers.Key{File: f.trainer.File},
		})
	}
	return out, nil
}

// separator stands between a flag and its value on a command line.
func separator(noOption string) string {
	if noOption != "" {
		return "="
	}
	return " "
}

// blame puts an error about a case where the trainer's configuration says so.
func (f *caseFlags) blame(err error) error {
	var wrong *models.CaseError
	if f.trainer == nil || !errors.As(err, &wrong) {
		return err
	}
	for _, s := range f.trainer.Settings {
		name, _, _ := strings.Cut(s.Value, "=")
		if s.Flag == wrong.Field || s.Flag == "set" && name == wrong.Field {
			return s.Wrong("%v", wrong)
		}
	}
	return err
}
