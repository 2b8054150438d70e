package main

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
	"github.com/vprof/vprof/bench/experiment/sweep"
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
	// levers says to search the levers of fine-tuning, too.
	levers bool
	group  groupFlags

	effective, maxBatch int
	batch, multiple     int
	formula             string
	lengths             lengthFlags
	part                shardFlags
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
	o.c.alone = true
	o.register(cmd, a, "`boards`: one like rtx-3060, a list, or all (see vprof gpus)")
	o.c.takesTrainer(cmd, a, "batch", "accumulate", "checkpointing")
	o.apply.register(cmd)
	o.group.register(cmd)
	f := cmd.Flags()
	f.IntVar(&o.effective, "target-effective-batch", 0, "samples `n` that an optimizer step should see (default: any; the accumulation stays)")
	f.IntVar(&o.maxBatch, "max-batch", planner.SearchedBatch, "largest batch `n` to try")
	f.IntVar(&o.batch, "batch", 0, "which configurations hold batch `n`, and how fast they are (default: the largest batch of each)")
	f.IntVar(&o.multiple, "batch-multiple", 1, "batches that are multiples of `n`, 8 for tensor cores")
	f.StringArrayVar(&o.tune, "tune", nil, "also search a setting of the model, as `name=values` with values like 8..24+8 (repeatable)")
	f.BoolVar(&o.levers, "levers", false, "search what makes fine-tuning fit instead: liger-kernel, 8-bit and paged optimizers, the optimizer in backward, quantized layers, offload; and explain what each saves")
	f.StringVar(&o.formula, "formula", "", "`guide`: also what the project's own script would say, where it has one")
	complete(cmd, "formula", func() []string { return []string{"guide"} })
	hide(f, "formula")
	f.StringVar(&o.page, "page", "", "also write an HTML page to `file`")
	o.lengths.register(cmd)
	o.part.register(f, "lengths", "formula", "page", "apply", "auto", "profile", "device")
	o.out.register(cmd)
	return cmd
}

func runFit(cmd *cobra.Command, o *fitOptions) (err error) {
	defer func() { err = errors.Join(err, o.local.close()) }()
	ctx := cmd.Context()
	if o.c.script != nil {
		return runFitScript(ctx, o)
	}
	s, err := o.search()
	if err != nil {
		return err
	}
	if s.Lengths, err = o.lengths.read(cmd, &o.c, s.Model); err != nil {
		return err
	}
	if s.Lengths != nil && (len(s.GPUs) > 1 || s.Device != nil || s.Parallel.GPUs > 1 || s.Ranks.Strategy == fit.AnyStrategy) {
		return usagef("--lengths: epochs are replayed for one simulated board and a strategy that is recorded; name one with --gpu, and leave out --device, --profile and --strategy auto")
	}
	if part, err := o.part.open(); part || err != nil {
		if err != nil {
			return err
		}
		return o.shard(ctx, s)
	}
	if err := o.out.open(); err != nil {
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
	if err := verdictOf(f, o.wayOut()); err != nil {
		return err
	}
	if o.apply.apply {
		return o.apply.run(ctx, &o.out, f)
	}
	return nil
}

// verdictOf is an error if nothing fits, which says what else could be tried.
func verdictOf(f *report.Fit, wayOut string) error {
	if !slices.ContainsFunc(f.Choices, report.Choice.Fits) {
		return negative{fmt.Errorf("%s does not fit; %s", f.Model, wayOut)}
	}
	return nil
}

// wayOut advises which further flags of fit may find a configuration that fits.
func (o *fitOptions) wayOut() string {
	switch {
	case !o.levers:
		return "--levers also tries liger-kernel, 8-bit and paged optimizers, quantized layers and offload"
	case o.apply.apply && o.c.trainer != nil:
		return fmt.Sprintf("without --apply, levers are tried, too, that %s has no keys for", o.c.trainer.Trainer)
	}
	return "try shorter sequences, several GPUs (--gpus N --strategy auto) or a larger board (--gpu all)"
}

func (o *fitOptions) run(ctx context.Context, s fit.Search) (*report.Fit, error) {
	started := o.app.now().UTC()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Beside the search, whose last configurations do not keep all cores busy.
	s.Slots = fit.NewSlots()
	var profiles []report.Profile
	var beside errgroup.Group
	if curriculum := s; o.formula == "" {
		beside.Go(func() (err error) {
			profiles, err = o.profiles(ctx, curriculum)
			return err
		})
	}
	bar := startProgress(o.app, false)
	s.Progress = bar.step
	f, err := fit.Run(ctx, s)
	if err != nil {
		cancel()
	}
	besideErr := beside.Wait()
	bar.end()
	if err != nil {
		return nil, err
	}
	f.Tool, f.Started, f.Budget.Preset = tool(), started.Truncate(time.Second), o.budget.preset
	if o.formula == "guide" {
		return f, o.script(ctx, s, f)
	}
	if err := warnOfUnread(f); err != nil {
		return nil, err
	}
	f.Profiles = profiles
	return f, besideErr
}

// profiles are recommendations for the project's curriculum, where it has one.
func (o *fitOptions) profiles(ctx context.Context, s fit.Search) ([]report.Profile, error) {
	if s.Model.Script == nil || len(s.GPUs) != 1 || s.Device != nil {
		return nil, nil
	}
	return fit.Profiles(ctx, s, o.app.models().Lookup)
}

// fitHead is what the parts of a search have in common.
type fitHead struct {
	Fit    report.Fit `json:"fit"`
	Stages []string   `json:"stages"`
}

// shard searches a part of the configurations on all boards.
func (o *fitOptions) shard(ctx context.Context, s fit.Search) error {
	head := s.Head()
	head.Budget.Preset = o.budget.preset
	p, err := planOf("fit", len(s.Cases), []any{head, s.Cases, s.GPUs, s.Calibrated})
	if err != nil {
		return err
	}
	head.Started = o.app.now().UTC().Truncate(time.Second)
	return o.part.run(ctx, o.app, p, fitHead{head, s.Model.Stages}, func(ctx context.Context, from, to int, _ json.RawMessage, _ func(any) error) (int, any, error) {
		mine := s
		mine.Whole = len(s.Cases)
		mine.Cases = s.Cases[from:to]
		part, err := fit.RunPart(ctx, mine)
		if err == nil && from == 0 {
			part.Profiles, err = o.profiles(ctx, s)
		}
		return to - from, part, err
	})
}

// warnOfUnread says where a recommendation is of what the model's own trainer
// cannot be told to do.
func warnOfUnread(f *report.Fit) error {
	s, known, err := systems.Lookup(f.Model)
	if err != nil || !known || s.Reads("amp") && s.Reads("checkpointing") {
		return err
	}
	for _, c := range f.Choices {
		if c.Recommended && !c.Own {
			f.Warnings = append(f.Warnings, report.Warning{
				What: fmt.Sprintf("%s does not read its %s: what differs from \"as its authors train it\" needs a change of its code", s.Project, strings.Join(s.Unread, " and ")),
				Hint: "--apply writes what it can do as it is",
			})
			return nil
		}
	}
	return nil
}

// search is what the flags ask for.
func (o *fitOptions) search() (s fit.Search, err error) {
	if o.formula != "" && o.formula != "guide" {
		return s, usagef("--formula: there is no formula %q; use guide", o.formula)
	}
	if o.effective < 0 || o.maxBatch < 1 {
		return s, usagef("--target-effective-batch and --max-batch are numbers of samples; the smallest is 1")
	}
	if o.batch < 0 || o.batch > models.MaxBatch || o.multiple < 1 || o.multiple > models.MaxBatch {
		return s, usagef("--batch and --batch-multiple are numbers of samples; the smallest is 1, the largest %d", models.MaxBatch)
	}
	if o.batch > 0 && (o.effective > 0 || o.multiple > 1 || o.c.flags.Changed("max-batch")) {
		return s, usagef("--batch names the one batch to try; leave --target-effective-batch, --batch-multiple and --max-batch out")
	}
	if o.effective > 0 && o.c.flags.Changed("accumulate") {
		return s, usagef("--accumulate and --target-effective-batch contradict each other; give one")
	}
	m, c, err := o.c.resolve(o.app)
	if err != nil {
		return s, err
	}
	o.apply.trainer, o.apply.fixed = o.c.trainer, o.c.fixed
	if t := o.c.trainer; t != nil && o.effective == 0 && !o.c.flags.Changed("accumulate") {
		o.effective = t.Effective(o.group.gpus) // what is learned should stay as it is
	}
	if o.effective < 0 || o.effective > mostEffective {
		return s, usagef("--target-effective-batch: %d is more samples than any step sees; the largest is %d", o.effective, mostEffective)
	}
	if s, err = o.searchFlags.search(o.app, m, c); err != nil {
		return s, err
	}
	o.out.unchosen = o.local.unchosen(&o.board, s.GPUs)
	s.Levers, s.Effective, s.MaxBatch = o.levers, o.effective, min(o.maxBatch, models.MaxBatch)
	s.Batch, s.Multiple = o.batch, o.multiple
	if s.Multiple == 1 {
		s.Multiple = 0 // any
	}
	if err := o.apply.check(len(s.GPUs)); err != nil {
		return s, err
	}
	if s.Cases, err = o.cases(m, c); err != nil {
		return s, err
	}
	o.out.defaults = o.c.defaults(m, s.Cases...)
	if err := o.group.apply(&s); err != nil {
		return s, err
	}
	for i, c := range s.Cases {
		s.Cases[i] = o.out.judged(m, c)
	}
	return s, nil
}

// recomputed has the cases whose layers a search of levers has checkpointed do it as the
// trainer does, and leaves out those where that cannot be.
func (o *fitOptions) recomputed(m models.Model, c models.Case, cases []models.Case) (out []models.Case) {
	for _, k := range cases {
		if o.c.trainer != nil && k.Checkpointing && !c.Checkpointing {
			k.Recompute = o.c.trainer.Recompute()
			if _, err := m.Complete(k); err != nil {
				continue
			}
		}
		out = append(out, k)
	}
	return out
}

// cases are the configurations: everything that no flag fixes.
func (o *fitOptions) cases(m models.Model, c models.Case) ([]models.Case, error) {
	held, err := o.apply.hold(&c)
	if err != nil {
		return nil, err
	}
	if held["accumulate"] && o.effective > 0 {
		return nil, usagef("--target-effective-batch: say where the file has the number of micro-batches, with --map accumulate=path.to.key")
	}
	if o.levers {
		if len(o.tune) > 0 {
			return nil, usagef("--levers and --tune: search one of the two")
		}
		cases := fit.Levered(m, c, func(flag string) bool { return o.c.fixed(flag) || held[flag] || o.apply.cannot(flag) })
		return o.recomputed(m, c, cases), nil
	}
	stages, amps, recompute := m.Stages, c.Precisions(), []bool{false, true}
	if o.c.flags.Changed("stage") || c.LoRA != nil || o.c.trainer != nil { // adapters belong to one stage, and so do trainers
		stages = []string{c.Stage}
	}
	if o.c.flags.Changed("amp") || held["amp"] {
		amps = []models.Autocast{c.AMP}
	}
	how := map[bool]string{true: c.Recompute}
	if o.c.flags.Changed("checkpointing") || held["checkpointing"] {
		recompute = []bool{c.Checkpointing}
	} else if o.c.trainer != nil {
		how[true] = o.c.trainer.Recompute()
	}
	tuned, err := o.tuned(c.Settings)
	if err != nil {
		return nil, err
	}
	var cases []models.Case
	for _, stage := range stages {
		for _, settings := range tuned {
			for _, amp := range amps {
				for _, checkpointing := range recompute {
					k := c
					k.Stage, k.Settings, k.AMP, k.Checkpointing = stage, settings, amp, checkpointing
					k.Recompute = how[checkpointing]
					cases = append(cases, k)
				}
			}
		}
	}
	return cases, nil
}

// tuned are the settings of the case with every combination of tuned values.
func (o *fitOptions) tuned(settings models.Settings) ([]models.Settings, error) {
	all := []models.Settings{settings}
	for _, t := range o.tune {
		name, list, ok := strings.Cut(t, "=")
		name = strings.ReplaceAll(name, "_", "-") // as Python has it
		if !ok || name == "" {
			return nil, usagef("--tune: %q is not name=values", t)
		}
		if strings.Contains(list, "..") && !strings.ContainsAny(list, "x+") {
			list += "+1"
		}
		values, err := sweep.ParseBatches(list)
		if err != nil {
			return nil, usagef("--tune %s: %w", name, err)
		}
		var next []models.Settings
		for _, s := range all {
			for _, v := range values {
				k := models.Settings{name: int64(v)}
				for n, v := range s {
					if n != name {
						k[n] = v
					}
				}
				next = append(next, k)
			}
		}
		if all = next; len(all) > maxTuned {
			return nil, usagef("--tune: more than %d combinations of values", maxTuned)
		}
	}
	return all, nil
}

// mostEffective is the largest number of samples of a step that is accepted.
const mostEffective = 1 << 30

// maxTuned is how many combinations of settings a search goes through at most.
const maxTuned = 256

// scripted are the models whose projects have a script.
func (o *fitOptions) scripted() []string {
	var names []string
	for _, m := range o.app.models().All() {
		if m.Script != nil {
			names = append(names, m.Name)
		}
	}
	return names
}

// script adds what the script of the model's project says, and what is true of it.
func (o *fitOptions) script(ctx context.Context, s fit.Search, f *report.Fit) (err error) {
	if s.Model.Script == nil {
		return usagef("--formula guide: only %s come from a project with such a script", strings.Join(o.scripted(), ", "))
	}
	if len(s.GPUs) != 1 {
		return usagef("--formula guide: name one board with --gpu")
	}
	f.Guide, err = fit.Script(ctx, s, o.app.models().Lookup)
	return err
}
