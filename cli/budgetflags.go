package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/experiment/fit"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/nearest"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/planner"
)

// marginPresets are the presets: the upper ends of the utilization that speech and
// text projects give for their settings of these names.
var marginPresets = map[string]float64{"conservative": 0.40, "balanced": 0.50, "aggressive": 0.65, "ultra": 0.85}

func presetNames() []string {
	names := slices.Collect(maps.Keys(marginPresets))
	slices.SortFunc(names, func(a, b string) int { return int(100*marginPresets[a]) - int(100*marginPresets[b]) })
	return names
}

// budgetFlags are the flags for how much of a GPU may be filled.
type budgetFlags struct {
	flags *pflag.FlagSet
	// margin and risk are the values of --safety-margin and --risk. preset is the name of the margin if the user gave
	// one, such as balanced.
	margin, risk, preset string
}

func (b *budgetFlags) register(cmd *cobra.Command) {
	b.flags = cmd.Flags()
	b.flags.StringVar(&b.margin, "safety-margin", fmt.Sprint(planner.DefaultMargin),
		"largest `share` of the GPU's memory that a step may need, or a name: "+strings.Join(presetNames(), ", "))
	b.flags.StringVar(&b.risk, "risk", "",
		"accepted `probability` that a step runs out of memory, like 1%, instead of --safety-margin")
	completeFlag(cmd, "safety-margin", presetNames)
}

func (b *budgetFlags) budget() (planner.Budget, error) {
	if b.flags.Changed("safety-margin") && b.flags.Changed("risk") {
		return planner.Budget{}, usagef("--safety-margin and --risk set the same limit; give only one of them")
	}
	out := planner.Budget{Memory: 1}
	var err error
	if b.flags.Changed("risk") {
		if out.Risk, err = parseShare(b.risk); err != nil {
			return out, usagef("--risk: %w", err)
		}
		if out.Risk == 0 {
			return out, usagef("--risk: need a probability above 0, like 1%%")
		}
	} else if margin, named := marginPresets[b.margin]; named {
		out.Margin, b.preset = margin, b.margin
	} else if out.Margin, err = parseShare(b.margin); err != nil {
		return out, usagef("--safety-margin: %w%s; names: %s", err, nearest.Hint(b.margin, presetNames(), 1),
			strings.Join(presetNames(), ", "))
	}
	if err := out.Check(); err != nil {
		return out, usageError{err}
	}
	return out, nil
}

// parseShare reads "1%" or "0.01".
func parseShare(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil {
		return 0, fmt.Errorf("invalid %q: need a share like 1%% or 0.01", s)
	}
	if percent {
		v /= 100
	}
	return v, nil
}

// parseSize reads an amount of memory that a flag gives, in bytes; empty is zero.
func parseSize(flag, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := bytesize.ParseMemory(s)
	if err != nil {
		return 0, usagef("%s: %w", flag, err)
	}
	return n, nil
}

// parseMemory reads an amount of memory, or a share of a GPU's memory like 70%, in bytes.
func parseMemory(s string, gpu int64) (int64, error) {
	percent, ok := strings.CutSuffix(s, "%")
	if !ok {
		return bytesize.ParseMemory(s)
	}
	part, err := strconv.ParseFloat(percent, 64)
	if err != nil || !(part > 0 && part <= 100) {
		return 0, fmt.Errorf("invalid %q: need a share of the GPU from 0%% to 100%%", s)
	}
	return int64(part / 100 * float64(gpu)), nil
}

// searchFlags are the flags of searches for a batch size: a case, GPUs of the catalog
// or of this machine, and how much of them may be filled.
type searchFlags struct {
	c      caseFlags
	target gpuFlags
	budget budgetFlags
	local  localFlags
}

func (f *searchFlags) register(cmd *cobra.Command, a *app, gpuUsage string) {
	f.c.register(cmd, a)
	f.c.ranks.usesLinkSpeed = true
	f.c.registerAllocConf()
	f.target.register(cmd, gpuUsage)
	f.target.registerHostMemory()
	f.budget.register(cmd)
	f.local.register(cmd, &f.target)
}

// search returns the search for a single case. The caller closes local, which holds the measured GPU, even after an
// error.
func (f *searchFlags) search(a *app, m models.Model, c models.Case) (fit.Search, error) {
	s := fit.Search{Model: m, Cases: []models.Case{c}}
	var err error
	if s.Budget, err = f.budget.budget(); err != nil {
		return s, err
	}
	if s.GPUs, s.Others, err = f.local.gpus(a, &f.target); err != nil {
		return s, err
	}
	s.GPUs = f.c.ranks.withLinkSpeed(s.GPUs)
	s.Device = f.local.device
	s.Evidence, err = f.c.readEvidence(a)
	return s, err
}
