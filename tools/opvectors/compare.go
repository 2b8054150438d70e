package opvectors

import (
	"fmt"
	"slices"
	"strings"
)

// compare returns a description of the first difference; empty if there is none.
func compare(phase string, want, got []string) string {
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			return fmt.Sprintf("%s event %d\n   want %s\n   got  %s", phase, i, strings.Join(want, " "),
				strings.Join(got, " "))
		}
	}
	return ""
}

// sortedTail sorts the frees at the end of the events.
func sortedTail(events []string) []string {
	i := len(events)
	for i > 0 && events[i-1][0] == '-' {
		i--
	}
	out := slices.Clone(events)
	slices.Sort(out[i:])
	return out
}

// sortedRuns sorts each run of consecutive frees.
func sortedRuns(events []string) []string {
	out := slices.Clone(events)
	for i := 0; i < len(out); i++ {
		from := i
		for i < len(out) && out[i][0] == '-' {
			i++
		}
		slices.Sort(out[from:i])
	}
	return out
}

// difference compares events, except for orders that PyTorch does not define.
func (v *Vector) difference(phase string, want, got []string) string {
	return compare(phase, v.unordered(phase, want), v.unordered(phase, got))
}

// unordered sorts frees whose order PyTorch does not define: autocast's cache frees its copies in the order of a hash
// map keyed by address. It does so at the end of forward, and in backward when a checkpoint leaves the autocast region
// of its recomputation.
func (v *Vector) unordered(phase string, events []string) []string {
	switch {
	case v.Regime == "fp32":
		return events
	case phase == "forward":
		return sortedTail(events)
	case strings.HasPrefix(v.Op, "checkpoint") && strings.HasPrefix(v.Regime, "amp"):
		return sortedRuns(events)
	default:
		return events
	}
}
