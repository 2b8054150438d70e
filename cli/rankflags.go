package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/experiment/fit"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// rankFlags describe how several GPUs train together, and the rank to estimate.
type rankFlags struct {
	flags    *pflag.FlagSet
	gpus     int
	strategy string
	rank     string
	link     float64
	// hasRankTable reports whether the verb can show a table of all ranks, usesLinkSpeed whether it uses --link.
	hasRankTable, usesLinkSpeed bool
}

func (f *rankFlags) register(cmd *cobra.Command) {
	f.registerGroup(cmd, models.DDP, models.FieldNamed("strategy").Help(nil))
	f.flags.StringVar(&f.rank, "rank", "",
		"estimate rank `n`; vprof plan also accepts all, for a table of all ranks (default: the rank that needs most)")
	completeFlag(cmd, "strategy", models.Strategies)
}

// registerGroup makes the flags that do not name a rank.
func (f *rankFlags) registerGroup(cmd *cobra.Command, strategy, usage string) {
	f.flags = cmd.Flags()
	f.flags.IntVar(&f.gpus, "gpus", 1, models.FieldNamed("gpus").Usage)
	f.flags.StringVar(&f.strategy, "strategy", strategy, usage)
	f.flags.Float64Var(&f.link, "link", 0,
		"speed of a GPU's link to the others, in `GB/s` (default: the GPU's NVLink, else PCIe)")
}

// check refuses impossible numbers, and flags for several GPUs if there is only one.
func (f *rankFlags) check() error {
	if f.gpus < 1 {
		return usagef("--gpus: %d is not a number of GPUs; need 1 or more", f.gpus)
	}
	if f.link < 0 || f.flags.Changed("link") && !(f.link > 0) {
		return usagef("--link: %v: need GB/s above 0, such as 450 for an H100's NVLink", f.link)
	}
	if f.flags.Changed("link") && !f.usesLinkSpeed {
		return usagef("--link: this command uses the GPU's own link speed; leave --link out (only plan, smoke, time " +
			"and fit accept it)")
	}
	if f.gpus > 1 || f.isOneGPU() {
		return nil
	}
	return f.refuseRankFlags()
}

func (f *rankFlags) refuseRankFlags() error {
	return refuseFlags(f.flags, "--%s applies to several GPUs; give their number with --gpus, 2 or more (DeepSpeed's "+
		"zero1 to zero3 also train on one)", "strategy", "rank", "link")
}

// isOneGPU reports whether the strategy also works with one GPU: DeepSpeed's engine does.
func (f *rankFlags) isOneGPU() bool {
	s, err := models.ParseStrategy(f.strategy)
	return f.flags.Changed("gpus") && f.flags.Changed("strategy") && err == nil && s.IsDeepSpeed() &&
		!f.flags.Changed("link")
}

func (f *rankFlags) apply(c *models.Case) error {
	if f.flags == nil {
		return nil
	}
	if err := f.check(); err != nil || f.gpus == 1 && !f.isOneGPU() {
		return err
	}
	s, err := models.ParseStrategy(f.strategy)
	if err != nil {
		return usagef("--strategy: %w", err)
	}
	if f.flags.Changed("rank") && f.rank != allRanks {
		rank, err := strconv.ParseInt(f.rank, 10, 64)
		if err != nil {
			return usagef("--rank: invalid %q: need a number or %s", f.rank, allRanks)
		}
		if rank < 0 || rank >= int64(f.gpus) {
			return usagef("--rank: there is no rank %d of %d GPUs; ranks begin with 0", rank, f.gpus)
		}
		if s.Rank != nil && *s.Rank != rank {
			return usagef("--rank is %d, and --strategy has rank=%d; give one of them", rank, *s.Rank)
		}
		s.Rank = &rank
	}
	if f.rank == allRanks && !f.hasRankTable {
		return usagef("--rank all works only with vprof plan; name one rank, like --rank 0")
	}
	if f.rank == allRanks && s.Rank != nil {
		return usagef("--rank %s shows all ranks, and --strategy has rank=N; leave out one of them", allRanks)
	}
	c.GPUs, c.Strategy = f.gpus, &s
	return nil
}

// allRanks is the value of --rank that selects all ranks that differ.
const allRanks = "all"

func (f *rankFlags) withLinkSpeed(gpus []device.GPU) []device.GPU {
	if f.link > 0 {
		for i := range gpus {
			gpus[i].LinkBandwidth = f.link * 1e9
		}
	}
	return gpus
}

// groupFlags are the flags of a search on several GPUs, which may also search strategies.
type groupFlags struct{ rankFlags }

func (g *groupFlags) register(cmd *cobra.Command) {
	g.usesLinkSpeed = true
	g.registerGroup(cmd, fit.AutoStrategy, "how the ranks share the work, by `name` and options: "+
		strings.Join(models.Strategies(), ", ")+" (see vprof help strategies); auto searches them")
	completeFlag(cmd, "strategy", func() []string { return append([]string{fit.AutoStrategy}, models.Strategies()...) })
}

func (g *groupFlags) apply(s *fit.Search) error {
	if g.gpus == 1 {
		return g.refuseRankFlags()
	}
	if err := g.check(); err != nil {
		return err
	}
	if s.Device != nil {
		return usagef("--profile and --device run on one GPU; leave them out, or leave out --gpus")
	}
	s.GPUs = g.withLinkSpeed(s.GPUs)
	s.Ranks = report.Parallel{GPUs: g.gpus, Strategy: g.strategy}
	var cases []models.Case
	for _, c := range s.Cases {
		texts := []string{g.strategy}
		if g.strategy == fit.AutoStrategy {
			texts = fit.StrategiesFor(s.Model, c, g.gpus)
		}
		for _, text := range texts {
			strategy, err := models.ParseStrategy(text)
			if err != nil {
				return usagef("--strategy: %w", err)
			}
			c.GPUs, c.Strategy = g.gpus, &strategy
			if _, err := s.Model.Complete(c); err != nil && !s.Model.SupportsRanks {
				return err
			}
			cases = append(cases, c)
		}
	}
	s.Cases = cases
	return nil
}
