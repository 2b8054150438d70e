package replay

import "slices"

// A PhaseUsage is the memory in use in a phase of a run, or at its end.
type PhaseUsage struct {
	Usage
	// Missed says that the run ran out of memory before; Usage is then that of the
	// whole run.
	Missed bool
}

// Whole is the peak of the run.
func (r *Run) Whole() PhaseUsage { return PhaseUsage{r.Max, r.OOM != nil} }

// EndOf is the memory in use when the last phase of a step ends, or the last one of
// a name; zero if there is none.
func (r *Run) EndOf(step int, name string) PhaseUsage {
	if r.missed(step, name) {
		return PhaseUsage{r.Max, true}
	}
	for _, p := range slices.Backward(r.Phases) {
		if p.Step == step && (name == "" || p.Name == name) {
			return PhaseUsage{p.End, false}
		}
	}
	return PhaseUsage{}
}

// PeakOf is the highest usage in the phases of a step that have a name; a step
// without such a phase counts whole.
func (r *Run) PeakOf(step int, name string) PhaseUsage {
	if r.missed(step, name) {
		return PhaseUsage{r.Max, true}
	}
	var u Usage
	named := r.has(step, name)
	for _, p := range r.Phases {
		if p.Step == step && (!named || p.Name == name) {
			u.Requested, u.Allocated = max(u.Requested, p.Max.Requested), max(u.Allocated, p.Max.Allocated)
			u.Active, u.Reserved = max(u.Active, p.Max.Active), max(u.Reserved, p.Max.Reserved)
		}
	}
	return PhaseUsage{u, false}
}

// missed tells whether the run ended before a phase of a step did; before the
// step, if the phase has no name.
func (r *Run) missed(step int, name string) bool {
	if r.OOM == nil || r.OOM.Phase.Step > step {
		return false
	}
	return name == "" || !r.has(step, name)
}

// has tells whether a phase of this name ended in a step.
func (r *Run) has(step int, name string) bool {
	return slices.ContainsFunc(r.Phases, func(p Phase) bool { return p.Step == step && p.Name == name })
}
