package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
)

// namedSettings returns the settings that have a flag of their own.
func namedSettings() []string {
	var names []string
	for _, f := range models.Fields() {
		if f.JSON == "settings" && f.Name != "" {
			names = append(names, f.Name)
		}
	}
	return names
}

// settingFlags are --set name=value for the numbers that a model leaves to the case. The usual
// ones have a flag each, too.
type settingFlags struct {
	flags *pflag.FlagSet
	pairs []string
	// fromFile are values that a project's file gives.
	fromFile map[string]any
}

func (f *settingFlags) register(flags *pflag.FlagSet) {
	f.flags = flags
	flags.StringArrayVar(&f.pairs, "set", nil,
		"another setting of the model, as `name=value` (see vprof models show); may be repeated")
}

// values returns the settings given; nil if there are none.
func (f *settingFlags) values() (models.Settings, error) {
	s, err := f.pairValues("--set")
	if err != nil || len(s) == 0 {
		return nil, err
	}
	for _, name := range namedSettings() {
		if _, twice := s[name]; twice && f.flags.Changed(name) {
			return nil, usagef("--%s: given with --set, too", name)
		}
	}
	return s, nil
}

// pairValues returns the settings given as name=value, by a flag of that name.
func (f *settingFlags) pairValues(flag string) (models.Settings, error) {
	s := models.Settings{}
	for _, pair := range f.pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usagef("%s: %q is not name=value", flag, pair)
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, usagef("%s %s: %q is not a whole number", flag, name, value)
		}
		if _, twice := s[name]; twice {
			return nil, usagef("%s %s: given twice", flag, name)
		}
		s[name] = n
	}
	return s, nil
}

// origins says of the settings that decide what a step takes where they come from: flags, a file, or the model, where
// they were not searched in the cases either.
func (f *caseFlags) origins(m models.Model, cases ...models.Case) report.Origins {
	given, _ := f.givenSettings() // an error has been told by then
	var out report.Origins
	named := namedSettings()
	flags := len(named)
	for _, s := range m.Settings {
		named = lists.Union(named, s.Name)
	}
	for at, name := range named {
		i := slices.IndexFunc(m.Settings, func(s models.Setting) bool { return s.Name == name && s.Inert == "" })
		if i < 0 {
			continue
		}
		_, isGiven := given[name]
		_, isTaken := f.settings.fromFile[name]
		chosen := func(c models.Case) bool {
			v, given := c.Settings[name]
			return given && v != m.Settings[i].Default
		}
		switch {
		case isGiven:
			out.Given = append(out.Given, name)
		case isTaken:
			out.FromFile = append(out.FromFile, name)
		case at < flags && m.Settings[i].Default != 0 && // zero is a lever that is not turned
			!slices.ContainsFunc(cases, chosen):
			out.Assumed = append(out.Assumed, name)
		}
	}
	return out
}

// defaults says which settings were left to the model; empty if none that decide were.
func defaults(m models.Model, from report.Origins) string {
	words := lists.Map(from.Assumed, func(name string) string {
		s, _ := lists.First(m.Settings, func(s models.Setting) bool { return s.Name == name })
		return fmt.Sprintf("%s %d", name, s.Default)
	})
	if len(words) == 0 {
		return ""
	}
	return "by default " + strings.Join(words, ", ")
}
