package report

// Origins says of the settings that decide what a step takes where their values come from: options, a file, or the
// model, since nobody named them.
type Origins struct {
	Given    []string `json:"given,omitempty"`
	FromFile []string `json:"from_file,omitempty"`
	Assumed  []string `json:"assumed,omitempty"`
}

// SetOrigins notes where settings come from.
func (r *Report) SetOrigins(o Origins) { r.Origins = o }

// SetOrigins notes where settings come from.
func (f *Fit) SetOrigins(o Origins) { f.Origins = o }

// SetOrigins notes where settings come from.
func (s *Smoke) SetOrigins(o Origins) { s.Origins = o }

// SetOrigins notes where settings come from.
func (t *Times) SetOrigins(o Origins) { t.Origins = o }
