package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/vprof/vprof/bench/advise/systems"
	"github.com/vprof/vprof/bench/experiment/fit"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/page"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/planner"
)

type fitOptions struct {
	app *app
	searchFlags
	apply applyFlags
	tune  []string
	// searchAxis is the searched setting of --search: batch or seq-len.
	searchAxis string
	// trySavings adds the memory-saving options of fine-tuning to the search.
	trySavings bool
	group      groupFlags

	effectiveBatch, maxBatch int
	batch, multiple          int
	measured                 measuredFlag
	lengths                  lengthFlags
	part                     shardFlags
	// page is the HTML file that is also written; empty for none.
	page string
	out  output
}

func newFitCmd(a *app) *cobra.Command {
	o := &fitOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "fit",
		Short: "Find the largest safe batch for a model on a GPU",
		RunE:  func(cmd *cobra.Command, _ []string) error { return runFit(cmd, o) },
	}
	o.c.ownRankFlags = true
	o.register(cmd, a, "`GPUs`: one like rtx-3060, a list, or all (see vprof gpus)")
	o.c.acceptTrainer(cmd, a, o.searched)
	o.apply.caseFlags = &o.c
	o.apply.register(cmd)
	o.group.register(cmd)
	f := cmd.Flags()
	f.StringVar(&o.searchAxis, "search", "batch",
		"`what` to maximize: batch, or seq-len, the longest sequence that fits at --batch")
	completeFlag(cmd, "search", func() []string { return searchedFields })
	f.IntVar(&o.effectiveBatch, "target-effective-batch", 0,
		"number `n` of samples in an optimizer step, reached by accumulation (default: any)")
	f.IntVar(&o.maxBatch, "max-batch", planner.MaxSearchedBatch, "largest batch `n` to try")
	f.IntVar(&o.batch, "batch", 0,
		"show which configurations fit batch `n`, and their speed (default: the largest batch of each)")
	f.IntVar(&o.multiple, "batch-multiple", 1, "try only batches that are multiples of `n`, such as 8 for tensor cores")
	f.StringArrayVar(&o.tune, "tune", nil,
		"also search values of a model's setting, as `name=values` like n-negatives=8..24+8 (repeatable)")
	f.BoolVar(&o.trySavings, "levers", false, "search the memory-saving options: liger-kernel, 8-bit and paged "+
		"optimizers, the optimizer in backward, quantized layers, offload; and explain what each saves")
	f.StringVar(&o.page, "page", "", "also write an HTML page to `file`")
	o.measured.register(f)
	o.lengths.register(cmd)
	o.part.register(f, "lengths", "page", "apply", "auto", "profile", "device")
	return o.out.register(cmd)
}

var searchedFields = []string{"batch", fit.SeqLen}

// searched returns the flags that a trainer's configuration does not set, since fit searches their values.
func (o *fitOptions) searched() []string {
	if o.searchAxis == fit.SeqLen {
		return []string{fit.SeqLen, "checkpointing"}
	}
	return []string{"batch", "accumulate", "checkpointing"}
}

func runFit(cmd *cobra.Command, o *fitOptions) (err error) {
	defer func() { err = errors.Join(err, o.local.close()) }()
	ctx := cmd.Context()
	if o.c.script != nil {
		return runFitScript(ctx, o)
	}
	s, err := o.search(ctx)
	if err != nil {
		return err
	}
	if s.Lengths, err = o.lengths.read(cmd, &o.c, s.Model); err != nil {
		return err
	}
	if s.Lengths != nil && s.SeqLen {
		return usagef("--lengths and --search seq-len both set the longest sequence; give one of them")
	}
	if s.Lengths != nil && (len(s.GPUs) > 1 || s.Device != nil || s.Ranks.Strategy == fit.AutoStrategy) {
		return usagef("--lengths works with one simulated GPU and one strategy; name " +
			"one with --gpu, and leave out --device, --profile and --strategy auto")
	}
	if done, err := o.part.runShardIfSet(func() error { return o.shard(ctx, s) }); done {
		return err
	}
	f, err := o.run(ctx, s)
	if err != nil {
		return err
	}
	if err := o.out.finish(f); err != nil {
		return err
	}
	if o.page != "" {
		if err := report.WriteFile(o.page, (&page.Fit{Fit: f}).Write); err != nil {
			return err
		}
	}
	if err := verdictOf(f, o.noFitAdvice()); err != nil {
		return err
	}
	if o.apply.apply {
		return o.apply.run(ctx, &o.out, f)
	}
	return nil
}

// verdictOf returns an error if nothing fits, with advice on what else to try.
func verdictOf(f *report.Fit, advice string) error {
	if !slices.ContainsFunc(f.Choices, report.Choice.Fits) {
		return negativeVerdict{fmt.Errorf("%s does not fit; %s", f.Model, advice)}
	}
	return nil
}

// noFitAdvice advises which further flags of fit may find a configuration that fits.
func (o *fitOptions) noFitAdvice() string {
	switch {
	case !o.trySavings:
		return "--levers also tries liger-kernel, 8-bit and paged optimizers, quantized layers and offload"
	case o.apply.apply && o.c.trainer != nil:
		return fmt.Sprintf("without --apply, levers are tried, too, that %s has no keys for", o.c.trainer.Trainer)
	}
	return "try shorter sequences, several GPUs (--gpus N --strategy auto) or a larger GPU (--gpu all)"
}

func (o *fitOptions) run(ctx context.Context, s fit.Search) (*report.Fit, error) {
	started := o.app.now().UTC()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Runs in parallel with the search, whose last configurations do not keep all cores busy.
	s.Slots = fit.NewSlots()
	var profiles []report.Profile
	var background errgroup.Group
	curriculum := s
	background.Go(func() (err error) {
		profiles, err = o.profiles(ctx, curriculum)
		return err
	})
	bar := startProgress(o.app, false)
	s.Progress = bar.step
	f, err := fit.Run(ctx, s)
	if err == nil && s.Device == nil {
		err = o.addStackRanges(ctx, s, f)
	}
	if err != nil {
		cancel()
	}
	profilesErr := background.Wait()
	bar.end()
	if err != nil {
		return nil, err
	}
	f.Tool, f.Started, f.Budget.Preset = vprofTool(), started.Truncate(time.Second), o.budget.preset
	f.Profiles = profiles
	return f, profilesErr
}

// addStackRanges gives choices recommended for the one GPU of a search the range of runs that others report.
func (o *fitOptions) addStackRanges(ctx context.Context, s fit.Search, f *report.Fit) (err error) {
	for i := range f.Choices {
		if c := &f.Choices[i]; c.Recommended && len(s.GPUs) == 1 && err == nil {
			c.StackRange, err = o.c.reportedRange(ctx, s.Model, c.Case.Case, s.Evidence, s.GPUs[0], c.Batch, s.Progress)
		}
	}
	return err
}

// profiles returns recommendations for the parts of the project's curriculum, if it has one.
func (o *fitOptions) profiles(ctx context.Context, s fit.Search) ([]report.Profile, error) {
	if s.Model.Curriculum == nil || len(s.GPUs) != 1 || s.Device != nil || len(s.Parts) > 0 {
		return nil, nil // parts that train with one batch have no other
	}
	return fit.Profiles(ctx, s, o.app.models().Lookup)
}

// fitShardHeader holds the data that all parts of a search share.
type fitShardHeader struct {
	Fit    report.Fit `json:"fit"`
	Stages []string   `json:"stages"`
}

// shard searches a part of the configurations on all GPUs.
func (o *fitOptions) shard(ctx context.Context, s fit.Search) error {
	head := s.CommonResult()
	head.Budget.Preset = o.budget.preset
	p, err := newShardPlan("fit", len(s.Cases), []any{head, s.Cases, s.GPUs, s.Calibrated, s.MeasuredSpeed})
	if err != nil {
		return err
	}
	head.Started = o.app.now().UTC().Truncate(time.Second)
	head.SetOrigins(o.out.origins)
	return o.part.run(ctx, o.app, p, fitShardHeader{head, s.Model.Stages},
		func(ctx context.Context, from, to int, _ json.RawMessage, _ func(any) error) (int, any, error) {
			mine := s
			mine.CaseCount = len(s.Cases)
			mine.Cases = s.Cases[from:to]
			part, err := fit.RunPart(ctx, mine)
			if err == nil && from == 0 {
				part.Profiles, err = o.profiles(ctx, s)
			}
			return to - from, part, err
		})
}

// unreadByProject returns a function with the reason why the project of a model cannot train a configuration: its code
// does not read a precision or checkpointing other than its own. It is nil if the code reads both, or no project is
// known.
func unreadByProject(m models.Model) (func(models.Case) string, error) {
	s, known, err := systems.Lookup(m.Name)
	if err != nil || !known || s.Supports("amp") && s.Supports("checkpointing") {
		return nil, err
	}
	own, err := m.Complete(m.Default)
	return func(c models.Case) string {
		var words []string
		if c.AMP != own.AMP && !s.Supports("amp") {
			words = append(words, "precision")
		}
		if c.Checkpointing != own.Checkpointing && !s.Supports("checkpointing") {
			words = append(words, "checkpointing")
		}
		if len(words) == 0 {
			return ""
		}
		return fmt.Sprintf("needs a change of the code: %s does not read its %s", s.Project,
			strings.Join(words, " and "))
	}, err
}
