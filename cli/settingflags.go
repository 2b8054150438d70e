package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/options"
	"github.com/vprof/vprof/models"
)

// modelSettingNames returns the settings of models that have a row in the table of fields.
func modelSettingNames() []string {
	var names []string
	for _, f := range models.Fields() {
		if f.JSON == "settings" && f.Name != "" {
			names = append(names, f.Name)
		}
	}
	return names
}

// settableFields returns the fields that --set accepts and that are not settings of models.
func settableFields() (all []*models.Field) {
	fields := models.Fields()
	for i := range fields {
		if fields[i].SetOnly && fields[i].JSON != "settings" {
			all = append(all, &fields[i])
		}
	}
	return all
}

// settingFlags are --set name=value, for rarely needed options and for numbers that a model leaves to the case.
type settingFlags struct {
	flags *pflag.FlagSet
	pairs []string
}

func (f *settingFlags) register(flags *pflag.FlagSet) {
	f.flags = flags
	flags.StringArrayVar(&f.pairs, "set", nil, "set an option that has no flag (see vprof help options) or a setting "+
		"of the model (see vprof models show), as `name=value` (repeatable)")
}

func (f *settingFlags) sets(name string) bool {
	return slices.ContainsFunc(f.pairs, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
}

// values puts the options given into a patch and returns the settings of the model; nil if there are none.
func (f *settingFlags) values(patch models.Patch) (models.Settings, error) {
	s, err := f.read("--set", patch)
	if err != nil || len(s) == 0 {
		return nil, err
	}
	for _, name := range modelSettingNames() {
		if _, twice := s[name]; twice && f.flags.Changed(name) {
			return nil, usagef("--%s is also given by --set; remove one of them", name)
		}
	}
	return s, nil
}

// read puts a flag's name=value options into a patch, which may be nil, and returns the others, which are numbers.
func (f *settingFlags) read(flag string, patch models.Patch) (models.Settings, error) {
	s, seen := models.Settings{}, map[string]bool{}
	for _, pair := range f.pairs {
		name, value, ok := strings.Cut(pair, "=")
		at := slices.IndexFunc(settableFields(), func(f *models.Field) bool { return patch != nil && f.Name == name })
		if at >= 0 && !ok {
			value = settableFields()[at].BareValue
			ok = value != ""
		}
		switch {
		case !ok || name == "" || strings.TrimSpace(value) == "":
			return nil, usagef("%s: invalid %q: need name=value", flag, pair)
		case seen[name]:
			return nil, usagef("%s: %s is given twice; remove one", flag, name)
		}
		seen[name] = true
		if at >= 0 {
			if err := (&fieldFlag{settableFields()[at], patch}).Set(value); err != nil {
				return nil, usagef("%s %s: %w", flag, name, err)
			}
			continue
		}
		if f.flags.Lookup(name) != nil && !slices.Contains(modelSettingNames(), name) {
			return nil, usagef("%s: %s is a flag of its own; write --%s %s", flag, name, name, value)
		}
		n, err := options.ParseInteger(value, 1024)
		if err != nil {
			return nil, usagef("%s %s: %w", flag, name, err)
		}
		s[name] = n
	}
	return s, nil
}

// origins returns the sources of the settings that determine a step's need: flags, a file, or the model's defaults. It
// omits defaults of settings that vary among the cases.
func (f *caseFlags) origins(m models.Model, cases ...models.Case) report.Origins {
	given, _ := f.givenSettings() // an error has been told by then
	var out report.Origins
	named := modelSettingNames()
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
		_, isTaken := f.config.values[name]
		chosen := func(c models.Case) bool {
			v, given := c.Settings[name]
			return given && v != m.Settings[i].Default
		}
		switch {
		case isGiven:
			out.Given = append(out.Given, name)
		case isTaken:
			out.FromFile = append(out.FromFile, name)
		case at < flags && m.Settings[i].Default != 0 && // zero is a memory-saving option that is not turned
			!slices.ContainsFunc(cases, chosen):
			out.Assumed = append(out.Assumed, name)
		}
	}
	others := func(c models.Case) bool { return c.Stage != m.Stages[0] }
	if !f.flags.Changed("stage") && slices.Index(m.Stages, "full") > 0 && !slices.ContainsFunc(cases, others) {
		out.Assumed = append(out.Assumed, "stage") // of which others need more
	}
	return out
}

// defaultsText names the settings whose defaults determine the need; empty if there are none.
func defaultsText(m models.Model, from report.Origins) string {
	words := lists.Map(from.Assumed, func(name string) string {
		if name == "stage" {
			return "stage " + m.Stages[0] + " (--stage full needs more)"
		}
		s, _ := lists.First(m.Settings, func(s models.Setting) bool { return s.Name == name })
		return fmt.Sprintf("%s %d", name, s.Default)
	})
	if len(words) == 0 {
		return ""
	}
	return "by default " + strings.Join(words, ", ")
}
