package stack

import (
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/trace"
)

// release is the differences of a release of PyTorch from the one before.
type release struct {
	// Versions are what PyPI's wheel of the release asks for.
	Versions
	// asked are the versions of cuDNN whose choices hold from this release on, the
	// nearest of those that were asked last and before it those that it was compared
	// with: of each lies here where its answers differ from those before it, and of
	// [complete] all. Nil if they are those of the release before.
	asked []string
	// askedFor is the compute capability that was asked about; empty for all of
	// those whose answers differ.
	askedFor string
	// change makes the rules of the release of those of the one before; nil if
	// nothing changes.
	change func(*trace.Rules)
	// settings changes the rules for allocator settings; nil if nothing changes.
	settings func(*allocator.Rules)
}

// releases are all that are known, oldest first. A new one goes to the end.
var releases = []release{
	torch2_08,
	{
		Versions: Versions{Torch: "2.9", CUDA: "12.8", CuDNN: "9.10", CuBLAS: "12.8", Transformers: "5.23"},
		settings: func(r *allocator.Rules) { r.MaxSplitAbove = false },
	},
	{
		Versions: Versions{Torch: "2.10", CUDA: "12.8", CuDNN: "9.10", CuBLAS: "12.8", Transformers: "5.23"},
		settings: func(r *allocator.Rules) { r.Unknown = []string{"large_segment_size_mb"} },
	},
	torch2_11,
	torch2_12,
	{
		Versions: Versions{Torch: "2.13", CUDA: "13.0", CuDNN: "9.20", Transformers: "5.23"},
		change: func(r *trace.Rules) {
			r.LinearLoss = trace.LinearLossRules{Known: true, Halved: true, Materializes: true}
		},
	},
	{
		Versions: Versions{Torch: "2.14", CUDA: "13.0", CuDNN: "9.24", Transformers: "5.23"},
		asked:    []string{"9.26", "9.24"},
		change:   func(r *trace.Rules) { r.LinearLoss = trace.LinearLossRules{Known: true} },
	},
	torch2_15,
}

// complete is the version of cuDNN that was asked about every architecture.
const complete = "9.19"

// known are the stacks of releases.
var known = func() []*Stack {
	var all []*Stack
	var rules trace.Rules
	partOf := ""
	var settings allocator.Rules
	nearest := ""
	for _, r := range releases {
		if r.asked != nil {
			nearest, partOf = r.asked[len(r.asked)-1], r.askedFor
			rules.Convolutions = convolutions(append([]string{complete}, r.asked...)...)
		}
		if r.change != nil {
			r.change(&rules)
		}
		if r.settings != nil {
			r.settings(&settings)
		}
		all = append(all, &Stack{
			allocator: settings, versions: r.Versions, rulesOf: r.Torch, cudnnOf: nearest,
			askedFor: partOf, rules: rules,
		})
	}
	return all
}()
