package cli

import (
	"maps"
	"slices"

	"github.com/vprof/vprof/bench/advise/systems"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/models"
)

// curriculum returns the parts of a project's curriculum that differ in memory, each once. Settings of the model's own
// parts that are fixed stay as they are.
func curriculum(m models.Model, parts []systems.StageSettings, fixed func(setting string) bool) (out []step.Part) {
	for _, p := range parts {
		settings := models.Settings{}
		for _, s := range m.Settings {
			n, has := p.Settings[s.Name]
			if has && s.Inert == "" && (p.Model != m.Name || !fixed(s.Name)) {
				settings[s.Name] = n
			}
		}
		if !slices.ContainsFunc(out, func(q step.Part) bool { return maps.Equal(q.Settings, settings) }) {
			out = append(out, step.Part{Name: p.Name, Settings: settings})
		}
	}
	return out
}

// curriculumParts returns the parts of the configuration's curriculum whose settings differ from the case's.
func (f *caseFlags) curriculumParts(m models.Model, c models.Case) ([]step.Part, error) {
	given, err := f.givenSettings()
	if err != nil {
		return nil, err
	}
	c, err = m.Complete(c)
	parts := curriculum(m, f.config.parts, func(setting string) bool { _, is := given[setting]; return is })
	return slices.DeleteFunc(parts, func(p step.Part) bool {
		all := maps.Clone(c.Settings)
		maps.Copy(all, p.Settings)
		return maps.Equal(all, c.Settings)
	}), err
}

// project returns the system of a model whose configuration is read or written; found is false if there is none.
func (f *applyFlags) project(m models.Model) (s systems.Project, found bool, err error) {
	if !f.apply && f.config == "" || len(f.mapPairs) > 0 || f.trainer() != nil {
		return s, false, nil
	}
	return systems.Lookup(m.Name)
}
