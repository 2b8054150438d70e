// Package bisect finds which package of a Python environment, and which release, changed a script's memory.
package bisect

import (
	"errors"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
)

// ErrUnusable reports that an environment cannot run the script, as with incompatible packages.
var ErrUnusable = errors.New("the script does not run in this environment")

// ValueChange is a change of the value between two neighboring positions. Unusable positions may lie between them.
type ValueChange struct {
	Low, High     int
	Before, After int64
}

// ChangeSearch finds the positions of a sequence at which a computed value changes.
type ChangeSearch struct {
	// Equal reports whether two values count as the same.
	Equal func(a, b int64) bool
	// OnRemaining is called before each value is computed, with the number of values still to compute if each open
	// range contains one change.
	OnRemaining func(values int)
}

// maxTries is the number of positions to try in a range whose middle is unusable.
const maxTries = 5

// FindChanges returns the changes of the value from position 0 to the last, in order. If value returns [ErrUnusable],
// the position is skipped; other errors end the search. Both ends must be usable. Changes that cancel out are missed.
func (s *ChangeSearch) FindChanges(last int, value func(position int) (int64, error)) ([]ValueChange, error) {
	s.OnRemaining(2 + maxTriesAmong(last))
	first, err := value(0)
	if err != nil {
		return nil, err
	}
	s.OnRemaining(1 + maxTriesAmong(last))
	end, err := value(last)
	if err != nil {
		return nil, err
	}
	var found []ValueChange
	open := []ValueChange{{0, last, first, end}}
	for len(open) > 0 {
		r := open[len(open)-1]
		open = open[:len(open)-1]
		if s.Equal(r.Before, r.After) {
			continue
		}
		at, middle, err := s.valueBetween(r, open, value)
		if err != nil {
			return nil, err
		}
		if at < 0 {
			found = append(found, r)
			continue
		}
		open = append(open, ValueChange{at, r.High, middle, r.After}, ValueChange{r.Low, at, r.Before, middle})
	}
	return found, nil
}

// valueBetween returns the usable position nearest to the middle of a range, with its value; -1 if there is none.
func (s *ChangeSearch) valueBetween(
	r ValueChange, open []ValueChange, of func(int) (int64, error),
) (position int, value int64, err error) {
	inside := lists.Make(r.High-r.Low-1, func(i int) int { return r.Low + 1 + i })
	off := func(i int) int { return max(2*i-r.Low-r.High, r.Low+r.High-2*i) }
	slices.SortStableFunc(inside, func(a, b int) int { return off(a) - off(b) })
	for _, i := range inside[:min(len(inside), maxTries)] {
		n := maxTriesAmong(r.High - r.Low)
		for _, other := range open {
			if !s.Equal(other.Before, other.After) {
				n += maxTriesAmong(other.High - other.Low)
			}
		}
		s.OnRemaining(n)
		value, err := of(i)
		if !errors.Is(err, ErrUnusable) {
			return i, value, err
		}
	}
	return -1, 0, nil
}

// maxTriesAmong returns the number of values to compute to find one change among the given number of neighbors.
func maxTriesAmong(neighbors int) int { return bits.Len(uint(max(neighbors-1, 0))) }

// ReleaseChange is a package whose release differs between two environments.
type ReleaseChange struct{ Package, Old, New string }

// String returns the change as "trl 1.15 -> 1.16".
func (c ReleaseChange) String() string { return c.Package + " " + c.Old + " -> " + c.New }

// Pins maps names of packages to releases.
type Pins map[string]string

// Changes returns the packages whose releases differ between two environments, sorted by name.
func Changes(before, after Pins) (all []ReleaseChange) {
	for name, release := range before {
		if now, ok := after[name]; ok && CompareReleases(release, now) != 0 {
			all = append(all, ReleaseChange{name, release, now})
		}
	}
	slices.SortFunc(all, func(a, b ReleaseChange) int { return strings.Compare(a.Package, b.Package) })
	return all
}

// ReleasesBetween returns a package's releases from the old to the new one, both included, without pre-releases.
func (c ReleaseChange) ReleasesBetween(releases []string) []string {
	low, high := c.Old, c.New
	down := CompareReleases(low, high) > 0
	if down {
		low, high = high, low
	}
	all := append([]string{low, high}, lists.Filter(releases, func(r string) bool {
		words := releaseParser.FindAllString(strings.ToLower(r), -1)
		return !slices.ContainsFunc(words, func(w string) bool { return preReleaseRanks[w] < 0 }) &&
			CompareReleases(low, r) < 0 && CompareReleases(r, high) < 0
	})...)
	slices.SortFunc(all, CompareReleases)
	all = slices.CompactFunc(all, func(a, b string) bool { return CompareReleases(a, b) == 0 })
	if down {
		slices.Reverse(all)
	}
	return all
}

// Cause is a package whose change of release changes the peak memory, possibly only together with other changes.
type Cause struct {
	ReleaseChange
	// RequiredChanges are changes of other packages without which the script does not run, or has the old peak.
	RequiredChanges []ReleaseChange
	Before, After   int64
	// Low and High are environments on both sides of the change, by package release, with the old and the new peak.
	Low, High Pins
}

// CauseFinder finds the packages that cause a change of peak memory between two environments.
type CauseFinder struct {
	// Old and New are the packages of the two environments.
	Old, New Pins
	// Peak returns the peak bytes of the script with the given releases; its errors are as in [ChangeSearch].
	Peak func(Pins) (int64, error)
	// Releases returns all releases of a package.
	Releases func(name string) ([]string, error)
	ChangeSearch
}

// FindCauses returns the packages whose release changes the peak, each with the two nearest releases between which it
// changes. It bisects the packages first, then the releases of each package found.
func (f *CauseFinder) FindCauses() ([]Cause, error) {
	changes := Changes(f.Old, f.New)
	at := func(position int) Pins { return f.mixedPins(changes, position) }
	steps, err := f.FindChanges(len(changes), func(position int) (int64, error) { return f.Peak(at(position)) })
	if err != nil {
		return nil, err
	}
	var all []Cause
	for _, step := range steps {
		low, high := at(step.Low), at(step.High)
		among := changes[step.Low:step.High]
		if len(among) > 1 { // what is between does not run
			if among, err = f.minimalChanges(among, high, step.After); err != nil {
				return nil, err
			}
		}
		if len(among) > 1 {
			all = append(all, Cause{among[0], among[1:], step.Before, step.After, low, high})
			continue
		}
		causes, err := f.causesByRelease(among[0], low)
		if err != nil {
			return nil, err
		}
		all = append(all, causes...)
	}
	return all, nil
}

// minimalChanges returns the changes without which the script does not run or has another peak. It repeatedly halves
// the list of changes. A half that is not needed is reverted in the releases.
func (f *CauseFinder) minimalChanges(changes []ReleaseChange, pins Pins, peak int64) ([]ReleaseChange, error) {
	fewer := withOldReleases(pins, changes)
	f.OnRemaining(2*len(changes) - 1)
	v, err := f.Peak(fewer)
	switch {
	case err == nil && f.Equal(v, peak):
		maps.Copy(pins, fewer)
		return nil, nil
	case err != nil && !errors.Is(err, ErrUnusable):
		return nil, err
	case len(changes) == 1:
		return changes, nil
	}
	half := len(changes) / 2
	first, err := f.minimalChanges(changes[:half:half], pins, peak)
	if err != nil {
		return nil, err
	}
	rest, err := f.minimalChanges(changes[half:], pins, peak)
	return append(first, rest...), err
}

func withOldReleases(pins Pins, changes []ReleaseChange) Pins {
	pins = maps.Clone(pins)
	for _, c := range changes {
		pins[c.Package] = c.Old
	}
	return pins
}

// causesByRelease returns the releases of one package at which the peak changes; beside has the other packages.
func (f *CauseFinder) causesByRelease(c ReleaseChange, beside Pins) ([]Cause, error) {
	all, err := f.Releases(c.Package)
	if err != nil {
		return nil, err
	}
	line := c.ReleasesBetween(all)
	at := func(position int) Pins {
		pins := maps.Clone(beside)
		pins[c.Package] = line[position]
		return pins
	}
	steps, err := f.FindChanges(len(line)-1, func(position int) (int64, error) { return f.Peak(at(position)) })
	if err != nil {
		return nil, err
	}
	var causes []Cause
	for _, s := range steps {
		causes = append(causes, Cause{
			ReleaseChange{c.Package, line[s.Low], line[s.High]}, nil, s.Before, s.After, at(s.Low), at(s.High),
		})
	}
	return causes, nil
}

// mixedPins returns the environment with the new releases of the first changes and the old releases of the rest. A
// package that only one environment has is always included, since the other environment does not use it.
func (f *CauseFinder) mixedPins(changes []ReleaseChange, newer int) Pins {
	pins := maps.Clone(f.Old)
	maps.Copy(pins, f.New)
	return withOldReleases(pins, changes[newer:])
}

// TestedEnvironments returns the old and the new environment as they are run.
func (f *CauseFinder) TestedEnvironments() (before, after Pins) {
	changes := Changes(f.Old, f.New)
	return f.mixedPins(changes, 0), f.mixedPins(changes, len(changes))
}
