package cli

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/advise/systems"
	"github.com/vprof/vprof/bench/experiment/fit"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/options"
	"github.com/vprof/vprof/models"
)

// checkBatches returns an error for batch flags that are out of range or contradict each other.
func (o *fitOptions) checkBatches() error {
	if o.effectiveBatch < 0 || o.maxBatch < 1 {
		return usagef("--target-effective-batch and --max-batch: need 1 or more samples")
	}
	isZero := o.batch < 1 && o.c.flags.Changed("batch")
	if isZero || o.multiple < 1 || max(o.batch, o.multiple) > models.MaxBatch {
		return usagef("--batch and --batch-multiple: need 1 to %d samples", models.MaxBatch)
	}
	if o.batch > 0 && (o.effectiveBatch > 0 || o.multiple > 1 || o.c.flags.Changed("max-batch")) {
		return usagef("--batch names the one batch size to try; leave out --target-effective-batch, --batch-multiple " +
			"and --max-batch")
	}
	if o.effectiveBatch > 0 && o.c.flags.Changed("accumulate") {
		return usagef("--accumulate and --target-effective-batch contradict each other; give one")
	}
	return nil
}

// search returns the search that the flags describe.
func (o *fitOptions) search(ctx context.Context) (s fit.Search, err error) {
	if err := o.checkBatches(); err != nil {
		return s, err
	}
	if err := o.checkSearch(); err != nil {
		return s, err
	}
	if err := o.open(); err != nil {
		return s, err
	}
	m, c, err := o.c.resolve(o.app)
	if err != nil {
		return s, err
	}
	if o.apply.apply && o.c.trainer != nil && o.group.strategy == fit.AutoStrategy {
		o.group.strategy = models.DDP // which the file leaves unchanged
	}
	if t := o.c.trainer; t != nil && o.effectiveBatch == 0 && o.searchAxis != fit.SeqLen &&
		!o.c.flags.Changed("accumulate") {
		o.effectiveBatch = t.Effective(o.group.gpus) // what is learned should stay as it is
	}
	if s.Parts, err = o.keepEffectiveBatch(m); err != nil {
		return s, err
	}
	if o.effectiveBatch < 0 || o.effectiveBatch > maxEffectiveBatch {
		return s, usagef("--target-effective-batch: %d samples are too many; the largest number is %d",
			o.effectiveBatch, maxEffectiveBatch)
	}
	parts := s.Parts
	if s, err = o.searchFlags.search(o.app, m, c); err != nil {
		return s, err
	}
	s.Parts = parts
	if s.MeasuredSpeed, err = o.measured.correctedEfficiency(ctx, m, c, o.batch, &s); err != nil {
		return s, err
	}
	if s.UnreadReason, err = unreadByProject(m); err != nil {
		return s, err
	}
	o.out.defaultGPU = o.target.defaultGPU(s.GPUs)
	s.TrySavings, s.Effective, s.MaxBatch = o.trySavings, o.effectiveBatch, min(o.maxBatch, models.MaxBatch)
	s.Batch, s.Multiple, s.SeqLen = o.batch, o.multiple, o.searchAxis == fit.SeqLen
	if s.SeqLen && s.Batch == 0 {
		s.Batch = max(1, c.Batch)
	}
	if s.Multiple == 1 {
		s.Multiple = 0 // any
	}
	if err := o.apply.check(len(s.GPUs)); err != nil {
		return s, err
	}
	if s.Cases, err = o.cases(m, c, &s); err != nil {
		return s, err
	}
	origins := o.c.origins(m, s.Cases...)
	origins.Assumed = slices.DeleteFunc(origins.Assumed, func(n string) bool { return s.SeqLen && n == fit.SeqLen })
	o.out.setOrigins(m, origins)
	if err := o.group.apply(&s); err != nil {
		return s, err
	}
	return s, nil
}

// open opens the configuration of the user's project, which sets all values that are not searched.
func (o *fitOptions) open() error {
	if o.c.trainer != nil || len(o.apply.mapPairs) > 0 {
		return nil
	}
	k := o.c.config
	k.path, k.searched = o.apply.config, true
	if s, known, err := systems.Lookup(o.c.model); o.apply.apply && k.path == "" && known {
		if _, missing := os.Stat(s.Config); missing != nil || err != nil {
			return err // writing describes what is missing
		}
		k.path = s.Config
	}
	return nil
}

// keepEffectiveBatch fixes the samples of an optimizer step to the number in the project's file. It returns the other
// parts of the curriculum, which train with the same batch.
func (o *fitOptions) keepEffectiveBatch(m models.Model) ([]models.Settings, error) {
	s, found, err := o.apply.project(m)
	if err != nil || !found {
		return nil, err
	}
	batch, _ := o.c.config.values["batch"].(int64)
	micro, _ := o.c.config.values["accumulate"].(int64)
	n := batch * micro
	if o.effectiveBatch == 0 && !o.c.flags.Changed("accumulate") && o.batch == 0 && n > 0 && n <= maxEffectiveBatch {
		o.effectiveBatch = int(n)
	}
	written, err := s.ReadStages(o.apply.path(s), true)
	if err != nil {
		return nil, usageError{err}
	}
	given, err := o.c.givenSettings()
	if err != nil {
		return nil, err
	}
	parts := curriculum(m, written, func(setting string) bool {
		_, is := given[setting]
		return is || slices.ContainsFunc(o.tune, func(t string) bool {
			name, _, _ := strings.Cut(t, "=")
			return strings.ReplaceAll(name, "_", "-") == setting
		})
	})
	slices.SortStableFunc(parts, func(a, b step.Part) int { // the one that most likely needs most first
		return cmp.Compare(sumOfSettings(b.Settings), sumOfSettings(a.Settings))
	})
	return lists.Map(parts, func(p step.Part) models.Settings { return p.Settings }), nil
}

func sumOfSettings(s models.Settings) (n int64) {
	for _, v := range s {
		n += v
	}
	return n
}

// checkSearch refuses an unknown --search, and flags that do not go with --search seq-len.
func (o *fitOptions) checkSearch() error {
	switch {
	case !slices.Contains(searchedFields, o.searchAxis):
		return usagef("--search: vprof cannot search for %q; use %s",
			o.searchAxis, strings.Join(searchedFields, " or "))
	case o.searchAxis != fit.SeqLen:
		return nil
	case o.effectiveBatch > 0 || o.multiple > 1 || o.c.flags.Changed("max-batch"):
		return usagef("--search seq-len keeps the batch size (--batch); leave out --target-effective-batch, " +
			"--batch-multiple and --max-batch")
	case o.c.isFixed(fit.SeqLen):
		return usagef("--search seq-len finds the length itself; leave out --seq-len, or --search")
	case o.apply.apply:
		return usagef("--apply writes batch sizes only; leave it out, and write the length that --search seq-len " +
			"finds into the file yourself")
	case o.group.gpus > 1 && o.group.strategy == fit.AutoStrategy:
		return usagef("--search seq-len tries one strategy; name it in place of --strategy auto")
	}
	return refuseFlags(o.c.flags, "--search seq-len works only on simulated GPUs; leave out --%s", "device", "profile")
}

// withTrainerCheckpointing sets the trainer's kind of checkpointing in checkpointed cases, and drops impossible ones.
func (o *fitOptions) withTrainerCheckpointing(m models.Model, c models.Case, cases []models.Case) (out []models.Case) {
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

// cases returns the configurations to search: all values of every setting that no flag fixes.
func (o *fitOptions) cases(m models.Model, c models.Case, s *fit.Search) ([]models.Case, error) {
	held, err := o.apply.takeFileValues(m, &c)
	if err != nil {
		return nil, err
	}
	if held["accumulate"] && o.effectiveBatch > 0 {
		return nil, usagef("--target-effective-batch: name the file's key for the number of accumulation steps with " +
			"--map accumulate=path.to.key")
	}
	if o.trySavings {
		if len(o.tune) > 0 {
			return nil, usagef("--levers and --tune exclude each other; give one")
		}
		return o.savingCases(m, c, held, s), nil
	}
	stages, amps, recompute := m.Stages, c.AutocastChoices(), []bool{false, true}
	// adapters and trainers belong to one stage
	if o.c.flags.Changed("stage") || c.LoRA != nil || o.c.trainer != nil {
		stages = []string{c.Stage}
	}
	if o.c.flags.Changed("amp") || held["amp"] {
		amps = []models.Autocast{c.AMP}
	}
	how := map[bool]models.Recompute{true: c.Recompute}
	if o.c.flags.Changed("checkpointing") || held["checkpointing"] {
		recompute = []bool{c.Checkpointing}
	} else if o.c.trainer != nil {
		how[true] = o.c.trainer.Recompute()
	}
	tuned, err := o.tunedSettings(c.Settings)
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

// savingCases returns the combinations of memory-saving options, and sets the precisions in which to search the best.
func (o *fitOptions) savingCases(m models.Model, c models.Case, held map[string]bool, s *fit.Search) []models.Case {
	fixed := func(flag string) bool {
		t := o.apply.trainer()
		hasNoKey := o.apply.apply && t != nil && flag != "checkpointing" && !t.CanSet(flag)
		return o.c.isFixed(flag) || held[flag] || hasNoKey
	}
	if !fixed("amp") {
		s.Precisions = c.AutocastChoices()
	}
	return o.withTrainerCheckpointing(m, c, fit.SavingCases(m, c, fixed))
}

// tunedSettings returns the settings of the case with every combination of tuned values.
func (o *fitOptions) tunedSettings(settings models.Settings) ([]models.Settings, error) {
	all := []models.Settings{settings}
	for _, t := range o.tune {
		name, list, ok := strings.Cut(t, "=")
		name = strings.ReplaceAll(name, "_", "-") // as in Python
		if !ok || name == "" {
			return nil, usagef("--tune: invalid %q: need NAME=VALUES, like seq-len=512,1024", t)
		}
		values, err := tunedValues(list)
		if err != nil {
			return nil, usagef("--tune %s: %w", name, err)
		}
		var next []models.Settings
		for _, s := range all {
			for _, v := range values {
				k := models.Settings{}
				maps.Copy(k, s)
				k[name] = v
				next = append(next, k)
			}
		}
		if all = next; len(all) > maxTunedCases {
			return nil, usagef("--tune: the values make more than %d combinations; give fewer", maxTunedCases)
		}
	}
	return all, nil
}

// tunedValues reads values of a setting: whole numbers, which may be zero, and ranges as batch sizes have them.
func tunedValues(list string) (values []int64, err error) {
	for item := range strings.SplitSeq(list, ",") {
		next := []int64{0}
		if strings.Contains(item, "..") {
			sizes, wrong := sweep.ParseBatches(item)
			next, err = lists.Map(sizes, func(n int) int64 { return int64(n) }), wrong
		} else {
			next[0], err = options.ParseInteger(strings.TrimSpace(item), 1024)
		}
		if err != nil {
			return nil, err
		}
		values = append(values, next...)
	}
	return lists.Union(nil, values...), nil
}

const maxEffectiveBatch = 1 << 30

const maxTunedCases = 256
