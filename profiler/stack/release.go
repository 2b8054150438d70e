package stack

import "github.com/vprof/vprof/profiler/trace"

// release is what begins with a release of PyTorch.
type release struct {
	// Versions are what PyPI's wheel of the release asks for.
	Versions
	// change makes the rules of the release of those of the one before; nil if
	// nothing changes.
	change func(*trace.Rules)
}

// releases are all that are known, oldest first. A new one goes to the end.
var releases = []release{torch2_11}

// known are the stacks of releases.
var known = func() []*Stack {
	var all []*Stack
	var rules trace.Rules
	for _, r := range releases {
		if r.change != nil {
			r.change(&rules)
		}
		all = append(all, &Stack{versions: r.Versions, rulesOf: r.Torch, rules: rules})
	}
	return all
}()
