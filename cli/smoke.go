package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/bench/experiment/smoke"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/profiler/device"
)

type smokeOptions struct {
	app *app
	searchFlags
	out output

	batch, validation int
	longestInputs     []string
	lengths           lengthFlags
	json              bool
	run               bool
	until             string
	baseline          string
	tolerance         string
}

func newSmokeCmd(a *app) *cobra.Command {
	o := &smokeOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "smoke",
		Short: "Test before training whether a configuration is safe on a GPU",
		RunE:  func(cmd *cobra.Command, _ []string) error { return runSmoke(cmd, o) },
	}
	o.register(cmd, a, "`GPU` to simulate (see vprof gpus)")
	o.c.acceptTrainer(cmd, a, noSearchedFlags)
	f := cmd.Flags()
	f.IntVar(&o.batch, "batch", 0, "batch size `n` (default: the configuration's, or the model's)")
	f.IntVar(&o.validation, "validation-batch", 0,
		"batch size `n` of validation (default: the project's, or that of training)")
	o.c.config.reported = true
	f.StringVar(&o.c.config.path, "config-path", "", "the project's configuration `file` to test")
	f.StringArrayVar(&o.c.config.mapPairs, "map", nil, "read a value from this key of --config-path, as "+
		"`name=path.to.key`; names: batch, accumulate, amp, checkpointing, or a setting of the model (repeatable)")
	f.StringArrayVar(&o.longestInputs, "longest", nil,
		"a setting of the model in the longest sample, as `name=value` like seq-len=4096 (repeatable)")
	o.lengths.register(cmd)
	f.BoolVar(&o.run, "run", false,
		"run the command after -- on the simulated GPU, as vprof run does, instead of reading its options")
	f.StringVar(&o.until, "until", "", "with --run, run until an `event`: eval, save or end")
	completeFlag(cmd, "until", func() []string { return untilValues })
	f.BoolVar(&o.json, "json", false, "short for --format json")
	f.StringVar(&o.baseline, "watch-baseline", "", "compare with an earlier result of --format json in `file`; "+
		"growth above --tolerance exits with code 3")
	f.StringVar(&o.tolerance, "tolerance", "1%", "largest accepted growth of memory since the baseline, as a `share` "+
		"like 2% or 0.02")
	return o.out.register(cmd)
}

func runSmoke(cmd *cobra.Command, o *smokeOptions) (err error) {
	switch {
	case o.c.script != nil:
		return o.runScript(cmd)
	case o.c.judgedRun != nil:
		return o.judgeRun(cmd)
	case o.run:
		return usagef("--run: name the command after --, for example: vprof smoke --run -- python train.py")
	}
	defer func() { err = errors.Join(err, o.local.close()) }()
	t, err := o.test()
	if err != nil {
		return err
	}
	if t.Lengths, err = o.lengths.read(cmd, &o.c, t.Model); err != nil {
		return err
	}
	before, tolerance, err := o.readBaseline()
	if err != nil {
		return err
	}
	started := o.app.now().UTC()
	bar := startProgress(o.app, false)
	t.Progress = bar.step
	s, err := smoke.Run(cmd.Context(), t)
	if err == nil && t.Device == nil {
		s.StackRange, err = o.c.reportedRange(cmd.Context(), t.Model, t.Case, t.Evidence, t.GPU, s.Batch, bar.step)
	}
	bar.end()
	if err != nil {
		return err
	}
	s.Warnings = append(o.c.config.ignoredValues, s.Warnings...)
	return o.judge(s, started, before, tolerance)
}

// judge compares a result with an earlier one and shows it. Its error names the check that is not safe.
func (o *smokeOptions) judge(s *report.Smoke, started time.Time, before *report.Smoke, tolerance float64) error {
	s.Tool, s.Started, s.Budget.Preset = vprofTool(), started.Truncate(time.Second), o.budget.preset
	if before != nil {
		if err := s.Compare(before, o.baseline, tolerance); err != nil {
			return usagef("--watch-baseline %s: %w", o.baseline, err)
		}
	}
	s.Passed = s.Safe && !s.Grown()
	if err := o.out.finish(s); err != nil {
		return err
	}
	switch {
	case !s.Safe && s.Command != nil:
		return negativeVerdict{fmt.Errorf("%s is not safe; find the largest safe batch with vprof fit and {batch} in "+
			"the command", s.Case.Model)}
	case !s.Safe:
		return negativeVerdict{fmt.Errorf("%s is not safe; vprof fit %s--levers finds options that make this one safe",
			s.Case.Model, phrase.If(s.LargestBatch > 0, "finds a safe batch, fit "))}
	case !s.Passed:
		return negativeVerdict{errors.New(s.Baseline.String())}
	}
	return nil
}

// test returns the test that the flags and the configuration describe.
func (o *smokeOptions) test() (t smoke.Test, err error) {
	m, c, err := o.c.resolve(o.app)
	if err != nil {
		return t, err
	}
	if o.batch < 0 || o.validation < 0 {
		return t, usagef("--batch and --validation-batch: need 1 or more samples")
	}
	if len(o.c.config.mapPairs) > 0 && o.c.config.path == "" {
		return t, usagef("--map names keys of a configuration file; name the file with --config-path")
	}
	if o.batch > 0 {
		c.Batch = o.batch
	}
	o.out.setOrigins(m, o.c.origins(m, c))
	s, err := o.search(o.app, m, c)
	if err != nil {
		return t, err
	}
	o.out.defaultGPU = o.target.defaultGPU(s.GPUs)
	if len(s.GPUs) != 1 {
		return t, usagef("--gpu: a smoke test needs exactly one GPU; name one")
	}
	t = smoke.Test{
		Model: m, Case: c, GPU: s.GPUs[0], Budget: s.Budget, Others: s.Others, Evidence: s.Evidence, Device: s.Device,
		Validation: o.validation, SingleGPU: o.c.flags.Changed("stage"),
	}
	if t.Parts, err = o.c.curriculumParts(m, c); err != nil {
		return t, err
	}
	if len(o.longestInputs) > 0 {
		s := settingFlags{flags: o.c.flags, pairs: o.longestInputs}
		if t.LongestInputs, err = s.read("--longest", nil); err != nil {
			return t, err
		}
	}
	return t, nil
}

// readBaseline reads the earlier result to compare with; nil if no flag names one.
func (o *smokeOptions) readBaseline() (before *report.Smoke, tolerance float64, err error) {
	if tolerance, err = parseShare(o.tolerance); err != nil || tolerance < 0 {
		return nil, 0, usagef("--tolerance: invalid %q: need a share like 1%%", o.tolerance)
	}
	if o.baseline != "" {
		f, err := input.OpenFile(o.baseline)
		if err != nil {
			return nil, 0, usagef("--watch-baseline: %w; make it with vprof smoke --export FILE.json", err)
		}
		defer f.Close()
		if before, err = report.ReadSmoke(o.baseline, f); err != nil {
			return nil, 0, usagef("--watch-baseline %w", err)
		}
		if !before.Safe {
			return nil, 0, usagef("--watch-baseline %s: this result is not safe; a baseline must be the result of a "+
				"safe run", o.baseline)
		}
	}
	if o.json {
		o.out.reportFormat = report.JSON
	}
	return before, tolerance, nil
}

func (o *smokeOptions) judgeRun(cmd *cobra.Command) error {
	if err := refuseFlags(cmd.Flags(), "--%s describes a step to plan, but the file names a command that was run; "+
		"leave it out", append([]string{"gpu", "gpu-memory", "batch", "run", "until"}, modelFlags...)...); err != nil {
		return err
	}
	r := o.c.judgedRun
	if len(r.Points) == 0 || r.Points[0].Run == nil || len(r.Devices) == 0 {
		return usagef("%s: no verdict is possible, because the command %s before its first training step",
			o.c.flags.Arg(0), r.Script.Result)
	}
	budget, err := o.budget.budget()
	if err != nil {
		return err
	}
	before, tolerance, err := o.readBaseline()
	if err != nil {
		return err
	}
	return o.judge(script.Smoke(r, budget, 1), r.Started, before, tolerance)
}

// modelFlags are flags of smoke that mean nothing for a command that is run.
var modelFlags = []string{
	"model", "config-path", "map", "longest", "lengths", "validation-batch", "device", "auto", "profile", "host-memory",
	"other-processes", "risk",
}

func (o *smokeOptions) runScript(cmd *cobra.Command) error {
	if err := refuseFlags(cmd.Flags(), "--%s describes a model, but a command runs as it is; leave it out (--gpu "+
		"names the GPU)", modelFlags...); err != nil {
		return err
	}
	values := settingValues(o.c.settings.pairs)
	if o.batch > 0 {
		values["batch"] = strconv.Itoa(o.batch)
	}
	words, err := fillPlaceholders(o.c.script, values)
	if err != nil {
		return err
	}
	budget, err := o.budget.budget()
	if err != nil {
		return err
	}
	before, tolerance, err := o.readBaseline()
	if err != nil {
		return err
	}
	runs := &runOptions{app: o.app, target: o.target, rank: "0", out: o.out}
	runs.command = script.Command{Args: words, Until: o.until, GPUs: 1}
	if err := runs.check(); err != nil {
		return err
	}
	if runs.command.GPU, err = o.target.oneGPU(); err != nil {
		return err
	}
	o.out.defaultGPU = o.target.defaultGPU([]device.GPU{runs.command.GPU})
	started := o.app.now().UTC()
	outcome, err := runs.execute(cmd.Context(), runs.command)
	if err != nil {
		return err
	}
	r, err := outcome.Report(cmd.Context())
	if err != nil {
		return err
	}
	if ended := outcomeError(outcome, r); ended != nil && outcome.Kind() != script.OutOfMemory &&
		!r.Script.Growth.Fills() {
		return ended
	}
	return o.judge(script.Smoke(r, budget, max(o.batch, 1)), started, before, tolerance)
}
