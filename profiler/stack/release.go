package stack

import (
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/trace"
)

// release is the differences of a release of PyTorch from the one before.
type release struct {
	// Versions are the versions that PyPI's wheel of the release requires.
	Versions
	// cudnnVersions holds versions of cuDNN in the order in which their rules override each other: folder cudnn has all
	// rules of [complete], and only the differing ones of other versions. The last is the version nearest to the
	// release's own whose heuristics were queried. Nil if the rules are the former release's.
	cudnnVersions []string
	// cudnnOf is the only compute capability for which the last of them was queried; empty for all.
	cudnnOf string
	// change turns the rules of the former release into the rules of this one; nil if nothing changes.
	change func(*trace.Rules)
	// allocator changes the rules of the allocator; nil if they are as before.
	allocator func(*allocator.Rules)
	// settings are the allocator settings that came with the release.
	settings []string
}

// releases are all supported releases, oldest first. A new one is added at the end.
var releases = []release{
	torch2_08,
	{
		Versions:  Versions{Torch: "2.9", CUDA: "12.8", CuDNN: "9.10", CuBLAS: "12.8"},
		allocator: func(r *allocator.Rules) { r.MaxSplitAbove = false },
	},
	{
		Versions: Versions{Torch: "2.10", CUDA: "12.8", CuDNN: "9.10", CuBLAS: "12.8"},
		settings: []string{"per_process_memory_fraction"},
	},
	torch2_11,
	torch2_12,
	{
		Versions: Versions{Torch: "2.13", CUDA: "13.0", CuDNN: "9.20"},
		settings: []string{"pinned_max_cached_size_mb", "pinned_max_round_threshold_mb"},
		change: func(r *trace.Rules) {
			r.LinearLoss = trace.LinearLossRules{Known: true, Halved: true, Materializes: true}
		},
	},
	{
		Versions:      Versions{Torch: "2.14", CUDA: "13.0", CuDNN: "9.24"},
		cudnnVersions: []string{"9.26", "9.24"},
		change:        func(r *trace.Rules) { r.LinearLoss = trace.LinearLossRules{Known: true} },
	},
	torch2_15,
}

// completeRelease is the version of cuDNN whose heuristics were queried for every architecture.
const completeRelease = "9.19"

// knownStacks are the stacks of releases.
var knownStacks = func() []*Stack {
	var all []*Stack
	var rules trace.Rules
	var settings allocator.Rules
	rules.Libraries = rulesOf(nil)
	nearest, askedFor := "", ""
	for i, r := range releases {
		if r.cudnnVersions != nil {
			nearest, askedFor = r.cudnnVersions[len(r.cudnnVersions)-1], r.cudnnOf
			rules.Convolutions = convolutionRules(append([]string{completeRelease}, r.cudnnVersions...)...)
		}
		if r.change != nil {
			r.change(&rules)
		}
		if r.allocator != nil {
			r.allocator(&settings)
		}
		settings.UnknownSettings = nil
		for _, later := range releases[i+1:] {
			settings.UnknownSettings = append(settings.UnknownSettings, later.settings...)
		}
		all = append(all, &Stack{
			versions: r.Versions, rulesOf: r.Torch, cudnnOf: nearest, askedFor: askedFor, rules: rules,
			allocator: settings,
		})
	}
	return all
}()
