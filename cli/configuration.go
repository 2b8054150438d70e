package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/advise/systems"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/models"
)

// A configuration is the user's file for the training: a file of a project in package systems, or any file, with --map.
type configuration struct {
	path     string
	mapPairs []string // of --map
	// searched reports whether the verb searches the batch size and the curriculum's settings: the file may lack them.
	searched bool
	// reported reports whether the verb's result has the warnings, so that they are not printed on standard error, too.
	reported bool

	// values are the values of the file by vprof's names ("batch", "amp"); nil before the file is read.
	values map[string]any
	// parts are the parts of the project's curriculum, from the files beside it.
	parts []systems.StageSettings
	// ignoredValues are warnings about values of the file that the plan does not use.
	ignoredValues []report.Warning
}

// useProjectFile uses a project's file that package systems lists as the configuration. The model is the file's, unless
// a flag names one.
func (f *caseFlags) useProjectFile(cmd *cobra.Command, files []string, model string) error {
	switch {
	case len(files) > 1:
		return usagef("%s: several files are given; name one, and vprof finds the other files of %s",
			cmd.CommandPath(), files[0])
	case f.model == "" && strings.Contains(model, "*"):
		return usagef("%s: the file does not name its model; choose one with --model: %s", files[0], model)
	case f.model == "":
		f.model = model
	}
	flag := f.flags.Lookup("config-path")
	if flag == nil {
		f.config.path = files[0]
		return nil
	}
	if flag.Changed {
		return usagef("--config-path and the argument %s both name a configuration file; give only one", files[0])
	}
	return f.flags.Set("config-path", files[0])
}

// withFileValues returns the case with the configuration's values for all fields without a flag.
func (f *caseFlags) withFileValues(a *app, m models.Model, c models.Case) (models.Case, error) {
	k := f.config
	if k.values == nil {
		if err := k.read(m); err != nil {
			return c, usageError{err}
		}
		k.printUnusedValues(a)
	}
	if n, ok := k.values["batch"].(int64); ok {
		c.Batch = int(n)
	} else if flag := f.flags.Lookup("batch"); !k.searched && len(k.mapPairs) == 0 && flag != nil && !flag.Changed {
		s, _, err := systems.Lookup(m.Name)
		if err != nil {
			return c, err
		}
		return c, usagef("%s: the key %s is missing; add it, or name the batch size with --batch",
			k.path, s.Keys["batch"].Path)
	}
	if err := setFileValues(&c, k.values, f.flags.Changed); err != nil {
		return c, err
	}
	given, err := f.givenSettings()
	if err != nil {
		return c, err
	}
	c.Settings = maps.Clone(c.Settings)
	for _, s := range m.Settings {
		if n, ok := k.values[s.Name].(int64); ok && given[s.Name] == 0 {
			c.Settings[s.Name] = n
		}
	}
	return m.Complete(c)
}

// setFileValues sets a case's precision, checkpointing and micro-batches from a file's values, unless given.
func setFileValues(c *models.Case, values map[string]any, given func(name string) bool) (err error) {
	if amp, ok := values["amp"].(string); ok && !given("amp") {
		if c.AMP, err = models.ParseAutocast(amp); err != nil {
			return usageError{err}
		}
	}
	if on, ok := values["checkpointing"].(bool); ok && !given("checkpointing") {
		c.Checkpointing = on
	}
	if n, ok := values["accumulate"].(int64); ok && !given("accumulate") {
		c.Accumulate = int(n)
	}
	return nil
}

// read reads the file of a model: by --map, or by the keys of the model's project.
func (k *configuration) read(m models.Model) (err error) {
	if len(k.mapPairs) > 0 {
		if k.values, err = systems.ReadCommonKeys(k.path, k.mapPairs); err != nil {
			return err
		}
		mapped, err := systems.ReadMapped(k.path, k.mapPairs)
		if err != nil {
			return fmt.Errorf("--map: %w", err)
		}
		maps.Copy(k.values, mapped)
		return checkNames(m, k.values)
	}
	s, ok, err := systems.Lookup(m.Name)
	if err != nil {
		return err
	}
	if !ok || s.Config == "" {
		return fmt.Errorf("--config-path: vprof does not know the configuration files of %s; name their keys "+
			"with --map, or use flags", m.Name)
	}
	values, err := s.Read(k.path)
	if err != nil {
		return err
	}
	if k.parts, err = s.ReadStages(k.path, false); err != nil {
		return err
	}
	facts, unplanned, err := s.ReadOtherKeys(k.path, m.Name)
	if err != nil {
		return err
	}
	for _, u := range unplanned {
		what := fmt.Sprintf("%s: %s: is not read", k.path, u.Path)
		if u.Value != nil {
			what = fmt.Sprintf("%s: %s: %v is not planned", k.path, u.Path, u.Value)
		}
		k.ignoredValues = append(k.ignoredValues, report.Warning{What: what, Hint: u.Reason})
	}
	if !k.searched {
		maps.Copy(facts, systems.LargestSettings(k.parts, m.Name))
	}
	for name, n := range facts {
		values[name] = n
	}
	k.values = values
	return nil
}

// printUnusedValues prints on standard error which values of the file the result does not use.
func (k *configuration) printUnusedValues(a *app) {
	if k.reported {
		return
	}
	for _, w := range k.ignoredValues {
		printable.Fprintf(a.stderr, "vprof: warning: %s; %s\n", w.What, w.Hint)
	}
	if len(k.parts) > 1 && !k.searched {
		printable.Fprintf(a.stderr, "vprof: the verdict counts all %[2]d parts of the curriculum beside %[1]s, and "+
			"the figures describe one; vprof smoke %[1]s shows each\n", k.path, len(k.parts))
	}
}

func checkNames(m models.Model, values map[string]any) error {
	names := []string{"batch", "accumulate", "amp", "checkpointing"}
	for _, s := range m.Settings {
		names = append(names, s.Name)
	}
	for name, v := range values {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--map: vprof cannot read %q from a file; use one of %s", name, strings.Join(names, ", "))
		}
		if _, isNumber := v.(int64); !isNumber && !slices.Contains([]string{"amp", "checkpointing"}, name) {
			return fmt.Errorf("--map: %s: %v is not a whole number", name, v)
		}
	}
	return nil
}
