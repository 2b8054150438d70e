package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/profiler/planner/parallel"
)

// groupFlags say how several GPUs share the work.
type groupFlags struct {
	flags      *pflag.FlagSet
	gpus       int
	strategy   string
	bucketView bool
	links      float64
}

func (g *groupFlags) register(cmd *cobra.Command) {
	var names []string
	for _, s := range parallel.Strategies() {
		names = append(names, string(s))
	}
	g.flags = cmd.Flags()
	g.flags.IntVar(&g.gpus, "gpus", 1, "train on `n` GPUs of the kind")
	g.flags.StringVar(&g.strategy, "strategy", string(parallel.DDP), "how they share the work, by `name`: "+strings.Join(names, ", "))
	g.flags.BoolVar(&g.bucketView, "bucket-view", false, "DDP with gradient_as_bucket_view")
	g.flags.Float64Var(&g.links, "links", 12, "speed of the links of a GPU in `GB/s`; 12 is PCIe 4.0 x8 in practice")
	complete(cmd, "strategy", func() []string { return names })
}

// setup is the group; a single GPU is its zero value.
func (g *groupFlags) setup(measured bool) (parallel.Setup, error) {
	s := parallel.Setup{GPUs: g.gpus, Strategy: parallel.Strategy(g.strategy), BucketView: g.bucketView, Bandwidth: g.links * 1e9}
	if err := s.Check(); err != nil {
		return s, usageError{err}
	}
	if g.gpus > 1 && measured {
		return s, usagef("--profile and --device measure on one GPU; leave them away with --gpus")
	}
	if g.gpus == 1 {
		for _, name := range []string{"strategy", "bucket-view", "links"} {
			if g.flags.Changed(name) {
				return s, usagef("--%s is about several GPUs; say how many with --gpus", name)
			}
		}
		return parallel.Setup{}, nil
	}
	return s, nil
}
