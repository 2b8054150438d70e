package trainers

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
)

// fusedLoss is the setting that applies liger-kernel to the loss only, plainLoss the one for everything else.
const (
	fusedLoss = "fused-loss"
	plainLoss = "plain-loss=1"
)

// ModelSpec returns the --model value with which vprof opens the trained model and its teacher. The model's config.json
// must be on this machine.
func (c *Config) ModelSpec() (string, error) {
	path, err := c.Model.Find()
	if err != nil || c.Teacher.Name == "" {
		return hfconfig.Scheme + ":" + path, err
	}
	teacher, err := c.Teacher.Find()
	return hfconfig.Scheme + ":" + path + hfconfig.TeacherMark + teacher, err
}

// CaseSettings returns the settings for a number of GPUs; "" selects the file's number. If neither the file nor the
// caller names a strategy, the trainer's default is added. chosen reports whether the caller names one.
func (c *Config) CaseSettings(gpus string, chosen bool) ([]Setting, error) {
	var out []Setting
	for _, s := range c.Settings {
		if gpus == "" && s.Flag == "gpus" {
			gpus = s.Value
		}
	}
	if f := c.unknownCount; gpus == "" && f.value != "" {
		return nil, c.withFile(f.from).fault("is %s, which only the machine with the GPUs knows; give their number "+
			"with --gpus N", f.value)
	}
	for _, s := range c.Settings {
		switch {
		case s.Flag == "gpus" && s.Value == "1", s.Flag == "strategy" && gpus == "1":
			continue
		case s.Flag == "strategy" && gpus == "" && !chosen:
			return nil,
				s.Fault("several GPUs share the work (%s), and no file says how many; say so with --gpus N", s.Value)
		}
		if s.Flag == "strategy" {
			s.Value, chosen = c.stageOptions(s.Value, gpus), true
		}
		out = append(out, s)
	}
	if n, err := strconv.Atoi(gpus); err == nil && n > 1 && !chosen && c.SeveralGPUs != "" {
		out = append(out, Setting{Flag: "strategy", Value: c.SeveralGPUs, From: Key{File: c.File}})
	}
	return out, nil
}

// SuitedSettings returns the settings that apply to a model. It drops settings that the model lacks. Attention that
// vprof cannot record for this model is an error. liger-kernel layers that it cannot record become a note.
func (c *Config) SuitedSettings(m models.Model, settings []Setting) ([]Setting, error) {
	has := func(name string) bool {
		return slices.ContainsFunc(m.Settings, func(s models.Setting) bool { return s.Name == name })
	}
	var out []Setting
	for _, s := range c.ligerSettings(m, has(fusedLoss), settings) {
		if s.Flag == ImageSize && !has(ImageSize) {
			continue
		}
		name, _, _ := strings.Cut(s.Value, "=")
		if s.Flag == "set" && !has(name) {
			switch {
			case IsProjectSetting(name):
				continue
			case name == eagerAttention && m.Supports.EagerAttention:
				continue
			case name == eagerAttention:
				return nil, s.Fault("vprof does not describe the eager attention of %s; plan it with the attention "+
					"that it is loaded with", m.Name)
			case name == flexAttention:
				return nil, s.Fault("vprof does not describe flex_attention for %s, or transformers has none; plan it "+
					"with another attention", m.Name)
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// ligerSettings reduces the liger-kernel setting to what vprof can record for the model: mostly the loss.
func (c *Config) ligerSettings(m models.Model, lossDescribed bool, settings []Setting) []Setting {
	if m.Supports.Liger || !lossDescribed {
		return settings
	}
	sets := func(value string) bool {
		return slices.ContainsFunc(settings, func(s Setting) bool { return s.Flag == "set" && s.Value == value })
	}
	lossLeft, lossTaken := sets(plainLoss), sets(fusedLoss+"=1")
	var out []Setting
	for _, s := range settings {
		note := ""
		switch {
		case lossLeft && s.Flag == "set" && s.Value == plainLoss:
			continue
		case lossLeft && s.Flag == "liger":
			note = "vprof does not describe liger-kernel's norms and feed-forward layers for this model, which keep " +
				"less than what is planned"
		case s.Flag == "liger" && s.Value == "true":
			note = "vprof describes liger-kernel's loss for this model and not its norms and feed-forward layers, " +
				"which keep less than what is planned"
			s.Flag, s.Value, s.Change = "set", fusedLoss+"=1", models.Change{}
		}
		c.Notes.If(note != "", "%v: %s", s.From, note)
		if note == "" || !lossLeft && !lossTaken {
			out = append(out, s)
		}
	}
	return out
}

// Apply applies the settings, including the batch size, to a case.
func Apply(settings []Setting, c *models.Case) error {
	patch := models.Patch{}
	own := models.Settings{} // the case may share its map with the model's default
	maps.Copy(own, c.Settings)
	c.Settings = own
	for _, s := range settings {
		switch f := models.FieldNamed(s.Flag); {
		case s.Change.Field != nil:
			patch.Set(s.Change)
		case s.Flag == "batch":
			n, err := strconv.Atoi(s.Value)
			if err != nil {
				return s.Fault("invalid batch size %q: need a whole number", s.Value)
			}
			c.Batch = n
		case s.Flag == "set":
			name, text, _ := strings.Cut(s.Value, "=")
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return s.Fault("invalid value %q of the setting %s: need a whole number", text, name)
			}
			c.Settings[name] = n
		case f != nil:
			change, err := f.Parse(s.Value)
			if err != nil {
				return s.Fault("%v", err)
			}
			patch.Set(change)
		default:
			return s.Fault("needs --%s %s, which a case has not", s.Flag, s.Value)
		}
	}
	patch.Apply(c)
	return nil
}
