package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/experiment/fit"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/planner/parallel"
)

// groupFlags are the flags for training on several GPUs.
type groupFlags struct {
	flags      *pflag.FlagSet
	gpus       int
	strategy   string
	bucketView bool
	links      float64
}

// formulas are the strategies that are arithmetic on the replay of one GPU.
func formulas() []string {
	var names []string
	for _, s := range parallel.Strategies() {
		if !slices.Contains(models.Strategies(), string(s)) {
			names = append(names, string(s))
		}
	}
	return names
}

func (g *groupFlags) register(cmd *cobra.Command) {
	g.flags = cmd.Flags()
	g.flags.IntVar(&g.gpus, "gpus", 1, "train on `n` GPUs of the kind")
	g.flags.StringVar(&g.strategy, "strategy", fit.AnyStrategy,
		"how they share the work, by `name` and options: "+strings.Join(models.Strategies(), ", ")+
			" are recorded (see vprof help strategies), "+strings.Join(formulas(), ", ")+
			" are formulas; auto searches the recorded ones")
	g.flags.BoolVar(&g.bucketView, "bucket-view", false, "DDP with gradient_as_bucket_view")
	g.flags.Float64Var(&g.links, "link", 0,
		"speed at which a GPU sends to others, in `GB/s` (default: the board's NVLink, else PCIe)")
	g.flags.Float64Var(&g.links, "links", 0, "the same")
	_ = g.flags.MarkHidden("links")
	complete(cmd, "strategy", func() []string {
		return append(append([]string{fit.AnyStrategy}, models.Strategies()...), formulas()...)
	})
}

// apply puts the group into a search: into its cases, or as a formula where the model's
// ranks cannot be recorded.
func (g *groupFlags) apply(s *fit.Search) error {
	if g.gpus == 1 {
		for _, name := range []string{"strategy", "bucket-view", "link", "links"} {
			if g.flags.Changed(name) {
				return usagef("--%s is about several GPUs; say how many with --gpus", name)
			}
		}
		return nil
	}
	if s.Device != nil {
		return usagef("--profile and --device measure on one GPU; leave them away with --gpus")
	}
	if g.flags.Changed("link") || g.flags.Changed("links") {
		if !(g.links > 0) {
			return usagef("--link: links of %v GB/s move nothing", g.links)
		}
		for i := range s.GPUs {
			s.GPUs[i].Link = g.links * 1e9
		}
	}
	name, _, _ := strings.Cut(g.strategy, ":")
	if name == "fsdp" {
		_, err := models.ParseStrategy(name)
		return usagef("--strategy: %w", err)
	}
	if slices.Contains(formulas(), name) || !s.Model.Distributes {
		return g.formula(s)
	}
	return g.record(s)
}

// formula makes the search one by arithmetic.
func (g *groupFlags) formula(s *fit.Search) error {
	name := g.strategy
	if name == fit.AnyStrategy {
		name = string(parallel.DDP)
	}
	s.Parallel = parallel.Setup{
		GPUs: g.gpus, Strategy: parallel.Strategy(name), BucketView: g.bucketView,
		Bandwidth: s.GPUs[0].Link,
	}
	if err := s.Parallel.Check(); err != nil {
		return usageError{err}
	}
	return nil
}

// record gives every case each strategy of the search.
func (g *groupFlags) record(s *fit.Search) error {
	if g.gpus < 1 {
		return usagef("--gpus: %d is not a number of GPUs", g.gpus)
	}
	s.Ranks = report.Parallel{GPUs: g.gpus, Strategy: g.strategy}
	var cases []models.Case
	for _, c := range s.Cases {
		texts := []string{g.strategy}
		if g.strategy == fit.AnyStrategy {
			texts = fit.StrategiesFor(s.Model, c, g.gpus)
		}
		for _, text := range texts {
			strategy, err := models.ParseStrategy(text)
			if err != nil {
				return usagef("--strategy: %w", err)
			}
			strategy.BucketView = strategy.BucketView || g.bucketView && strategy.Name != models.FSDP2
			c.GPUs, c.Strategy = g.gpus, &strategy
			cases = append(cases, c)
		}
	}
	s.Cases = cases
	return nil
}
