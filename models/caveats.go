package models

import (
	"fmt"
)

// Caveats are what a user must know of a complete case that its figures do not
// show, a sentence each without its full stop.
func (m Model) Caveats(c Case) []string {
	var caveats []string
	for _, s := range m.Settings {
		if v, given := c.Settings[s.Name]; s.Inert != "" && given && v != s.Default {
			caveats = append(caveats, fmt.Sprintf("%s does not change memory: %s", s.Name, s.Inert))
		}
	}
	if s, err := c.Release(); err == nil && s.Note() != "" {
		caveats = append(caveats, s.Note())
	}
	caveats = append(caveats, c.leverCaveats(&c)...)
	if m.Caveat != nil {
		caveats = append(caveats, m.Caveat(c)...)
	}
	return caveats
}

// StageNote says what is trained in one of the model's stages.
func (m Model) StageNote(stage string) string {
	if note := m.Trains[stage]; note != "" {
		return note
	}
	switch stage {
	case "full":
		return "all parameters"
	case "head":
		return "the last layer alone"
	}
	return ""
}
