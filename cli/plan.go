package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/fleet"
	"github.com/vprof/vprof/bench/job"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

type planOptions struct {
	app    *app
	c      caseFlags
	batch  batchFlag
	target gpuFlags
	// auto plans for this machine's GPU.
	auto bool
	part shardFlags
	out  output
	// lengths holds the lengths of samples, an epoch of which is replayed.
	lengths lengthFlags
	// request is the scheduler in whose syntax the memory is requested; empty for none.
	request string
	// requestFile is a file of requests as JSON (see [request]); empty for none. requestLines reports whether it has
	// one request per line.
	requestFile  string
	requestLines bool
}

func newPlanCmd(a *app) *cobra.Command {
	cmd, _ := planCmd(a)
	return cmd
}

// planCmd returns the command with its options, which other verbs use to plan cases.
func planCmd(a *app) (*cobra.Command, *planOptions) {
	o := &planOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Estimate the memory of a training step, component by component",
		RunE:  func(cmd *cobra.Command, _ []string) error { return runPlan(cmd, o) },
	}
	o.c.register(cmd, a)
	o.c.ranks.hasRankTable, o.c.ranks.usesLinkSpeed = true, true
	o.c.acceptTrainer(cmd, a, noSearchedFlags)
	o.c.registerAllocConf()
	o.batch.register(cmd, "the model's own batch")
	o.target.register(cmd, "`GPUs`: a list like rtx-3060,a100-80, or all (see vprof gpus)")
	o.target.registerHostMemory()
	cmd.Flags().BoolVar(&o.auto, "auto", false, autoUsage)
	o.lengths.register(cmd)
	o.part.register(cmd.Flags(), "request", "auto")
	cmd.Flags().StringVar(&o.request, "request", "",
		"print the memory to request from a `scheduler`, by the upper end of the estimate: "+
			strings.Join(fleet.Requests(), ", "))
	completeFlag(cmd, "request", fleet.Requests)
	cmd.Flags().StringVar(&o.requestFile, "json-request", "", "answer the request in a JSON `file` (- for standard "+
		"input): an object with options by name, and trainers' files under \"files\"")
	cmd.Flags().BoolVar(&o.requestLines, "json-lines", false, "with --json-request, read one request from each line")
	o.out.register(cmd)
	return cmd, o
}

func runPlan(cmd *cobra.Command, o *planOptions) error {
	ctx := cmd.Context()
	if o.requestFile != "" || o.requestLines {
		return o.answerRequests(ctx)
	}
	if o.request != "" && !slices.Contains(fleet.Requests(), o.request) {
		return usagef("--request: unknown request %q; use %s", o.request, strings.Join(fleet.Requests(), ", "))
	}
	m, cases, own, err := o.cases()
	if err != nil {
		return err
	}
	evidence, err := o.c.readEvidence(o.app)
	if err != nil {
		return err
	}
	gpus, err := o.gpus()
	if err != nil {
		return err
	}
	gpus = o.c.ranks.withLinkSpeed(gpus)
	batches, err := o.batch.sizes([]int{own})
	if err != nil {
		return err
	}
	lengths, err := o.lengths.read(cmd, &o.c, m)
	if err != nil {
		return err
	}
	if lengths != nil && len(cases) > 1 {
		return usagef("--lengths needs one release of PyTorch, and --torch %q names several; name one", o.c.torch)
	}
	here := &job.Local{Models: o.app.models(), Evidence: evidence.WithSharedSteps(gpus)}
	if o.c.ranks.rank == allRanks && o.c.ranks.gpus > 1 {
		return o.planRanks(ctx, here, m, cases, gpus, batches)
	}
	jobs := make([][]job.Job, len(cases))
	of := make([]models.Case, len(cases))
	for i, c := range cases {
		parts, err := o.c.curriculumParts(m, c.Case)
		if err != nil {
			return err
		}
		of[i] = c.Case
		jobs[i] = job.Plan(c, gpus, batches)
		for j := range jobs[i] {
			jobs[i][j].Calibrated, jobs[i][j].Lengths, jobs[i][j].CurriculumParts = evidence.Calibrated, lengths, parts
		}
	}
	warnings := step.Unsupported(gpus, of...)
	if done, err := o.part.runShardIfSet(func() error {
		if len(jobs) > 1 {
			return usagef("--shard needs one release of PyTorch, and --torch %q names several; name one", o.c.torch)
		}
		return o.shard(ctx, here, jobs[0], warnings)
	}); done {
		return err
	}
	return o.run(ctx, here, jobs, warnings)
}

func (o *planOptions) answerRequests(ctx context.Context) error {
	if o.requestFile == "" {
		return usagef("--json-lines needs the requests; name their file with --json-request FILE (- for standard " +
			"input)")
	}
	f, name, err := o.app.open(o.requestFile)
	if err != nil {
		return err
	}
	defer f.Close()
	defer input.BeginReading()()
	return o.app.answerPlans(ctx, f, name, o.requestLines)
}

// gpus returns the GPUs that the flags name, or this machine's with the memory that other processes leave free.
func (o *planOptions) gpus() ([]device.GPU, error) {
	if !o.auto {
		gpus, err := o.target.gpus()
		o.out.defaultGPU = o.target.defaultGPU(gpus)
		return gpus, err
	}
	if _, err := o.target.resolveDevice(true, "--auto takes"); err != nil {
		return nil, err
	}
	found, err := o.app.detect(0)
	if err != nil {
		return nil, err
	}
	gpu := found.GPU
	if gpu.Memory -= found.OtherProcessBytes; gpu.Memory <= gpu.Context {
		return nil, negativeVerdict{fmt.Errorf("other processes use %s of the memory of %s, which leaves none for "+
			"training", bytesize.Format(found.OtherProcessBytes), gpu.Product)}
	}
	gpu, err = o.target.withHostMemory(gpu)
	return []device.GPU{gpu}, err
}

// run runs the jobs of each release and shows their reports.
func (o *planOptions) run(ctx context.Context, here *job.Local, jobs [][]job.Job, warnings []report.Warning) error {
	plans, err := o.plan(ctx, here, jobs, warnings)
	switch {
	case err != nil:
		return err
	case o.request != "":
		return o.printRequests(plans)
	case len(plans) == 1:
		err = o.out.finish(plans[0])
	default:
		err = o.out.finish(plans)
	}
	var answer report.Response
	answer.FillFrom(plans...)
	if err == nil && !slices.ContainsFunc(answer.Points, func(p report.ResponsePoint) bool { return p.Safe }) {
		fmt.Fprintln(o.app.stderr, "vprof: nothing of this is safe; vprof fit with the same model and GPU finds a "+
			"batch that is, fit --levers settings that need less memory")
	}
	return err
}

// cases returns the case of the flags for each release of PyTorch of --torch, its model, and its training batch size.
func (o *planOptions) cases() (m models.Model, cases []report.Case, batch int, err error) {
	for release := range strings.SplitSeq(o.c.torch, ",") {
		flags := o.c
		flags.torch = strings.TrimSpace(release)
		var c models.Case
		if m, c, err = flags.resolve(o.app); err != nil {
			return m, nil, 0, err
		}
		if slices.ContainsFunc(cases, func(other report.Case) bool { return other.Torch == c.Torch }) {
			return m, nil, 0, usagef("--torch: PyTorch %s is named twice in %q; remove one", c.ReleaseName(), o.c.torch)
		}
		cases, batch = append(cases, report.CaseOf(m, c)), c.Batch
		o.out.setOrigins(m, o.c.origins(m, c))
	}
	return m, cases, batch, nil
}

func (o *planOptions) plan(ctx context.Context, here *job.Local, releases [][]job.Job,
	warnings []report.Warning,
) (report.Releases, error) {
	started := o.app.now().UTC()
	bar := startProgress(o.app, false)
	defer bar.end()
	here.Progress = bar.step
	o.sendEarlyReports(ctx, here, releases[0][0])
	var plans report.Releases
	for _, jobs := range releases {
		r, err := job.RunAll(ctx, here, jobs, bar.step)
		if err != nil {
			return nil, err
		}
		if len(releases) == 1 {
			if o.app.onPartialPlan != nil {
				o.app.onPartialPlan(r)
			}
			if err := o.addStackRanges(ctx, here, r, jobs, bar.step); err != nil {
				return nil, err
			}
		}
		r.Warnings = append(r.Warnings, warnings...)
		o.app.addProvenance(r, started)
		plans = append(plans, r)
	}
	return plans, nil
}

// sendEarlyReports sends what is known early of a job's first batch to a program that asked for incomplete results.
func (o *planOptions) sendEarlyReports(ctx context.Context, here *job.Local, j job.Job) {
	if o.app.onPartialPlan == nil || j.Lengths != nil || j.CurriculumParts != nil {
		return
	}
	if setup, err := step.NewFromReport(here.Models, j.Case, here.Evidence); err == nil {
		_ = judge.EarlyReports(ctx, setup, *j.Target.GPU, j.Batches[0], o.app.onPartialPlan)
	}
}

// shard estimates a part of all GPUs and batch sizes; a GPU's are consecutive. Warnings cover all GPUs.
func (o *planOptions) shard(ctx context.Context, here *job.Local, jobs []job.Job, warnings []report.Warning) error {
	each := len(jobs[0].Batches)
	p, err := newShardPlan("plan", len(jobs)*each, jobs)
	if err != nil {
		return err
	}
	return o.part.run(ctx, o.app, p, warnings,
		func(ctx context.Context, from, to int, _ json.RawMessage, _ func(any) error) (int, any, error) {
			j := jobs[from/each]
			first := from % each
			j.Batches = j.Batches[first:min(first+to-from, each)]
			r, err := here.Run(ctx, j, func(*report.Report) error { return nil })
			if err != nil {
				return 0, nil, err
			}
			o.app.addProvenance(r, o.app.now().UTC())
			r.SetOrigins(o.out.origins)
			return len(j.Batches), r, nil
		})
}

// printRequests prints requests to a scheduler in place of the plans, which are only written to files.
func (o *planOptions) printRequests(plans report.Releases) error {
	var d report.Document = plans
	if len(plans) == 1 {
		d = plans[0]
	}
	if err := o.out.save(d); err != nil {
		return err
	}
	for _, r := range plans {
		if err := fleet.WriteRequests(o.app.stdout, r, o.request); err != nil {
			return err
		}
	}
	var answer report.Response
	if answer.FillFrom(plans...); answer.ExitCode != 0 {
		return negativeVerdict{errors.New("no row fits: a job with the printed request would run out of memory")}
	}
	return nil
}

func (o *planOptions) planRanks(ctx context.Context, here *job.Local, m models.Model, cases []report.Case,
	gpus []device.GPU, batches []int,
) error {
	switch {
	case len(cases) > 1:
		return usagef("--rank all shows one release of PyTorch, and --torch lists %d; name one", len(cases))
	case o.request != "":
		return usagef("--request needs one rank, and --rank %s shows several; name one with --rank N", allRanks)
	case o.lengths.source != "":
		return usagef("--lengths needs one rank; name it with --rank N")
	}
	if done, err := o.part.runShardIfSet(func() error {
		return usagef("--rank all cannot be split into shards; leave out --shard, or name one rank")
	}); done {
		return err
	}
	started := o.app.now().UTC()
	ranks, err := rankPlans(ctx, here, m, cases[0], gpus, batches)
	if err != nil {
		return err
	}
	warnings := step.Unsupported(gpus, cases[0].Case)
	for _, r := range ranks {
		r.Plan.Warnings = append(r.Plan.Warnings, warnings...)
		o.app.addProvenance(r.Plan, started)
	}
	return o.out.finish(ranks)
}

func rankPlans(ctx context.Context, here *job.Local, m models.Model, c report.Case, gpus []device.GPU,
	batches []int,
) (report.Ranks, error) {
	first := c.Case
	first.Batch = batches[0]
	found, err := m.DifferentRanks(first, step.RecorderGPU(gpus[0]), models.Options{Context: ctx})
	if err != nil {
		if errors.As(err, new(*models.CaseError)) || errors.Is(err, context.Canceled) {
			return nil, err
		}
		return nil, usageError{err}
	}
	var out report.Ranks
	for _, r := range found {
		strategy := *c.Strategy
		strategy.Rank = &r.First
		one := c
		one.Strategy = &strategy
		plan, err := job.RunAll(ctx, here, job.Plan(one, gpus, batches), nil)
		if err != nil {
			return nil, err
		}
		out = append(out, report.RankPlan{RankRange: r, Plan: plan})
	}
	out.Sort()
	return out, nil
}

// planDifferingRanks plans the differing ranks of a run's case, at one of its batch sizes; none if one GPU trains, or
// if there are too many ranks to compare.
func planDifferingRanks(ctx context.Context, a *app, r *report.Report, batch int) (report.Ranks, error) {
	if r.Case.Strategy == nil || len(r.Points) == 0 {
		return nil, nil
	}
	if batch == 0 {
		batch = largestFit(r)
	}
	setup, gpu, err := a.setupOf(r.Case, r.Devices[0])
	if err != nil {
		return nil, err
	}
	here := &job.Local{Models: a.models(), Evidence: step.Evidence{Residuals: a.residuals}}
	ranks, err := rankPlans(ctx, here, setup.Model(), r.Case, []device.GPU{gpu}, []int{batch})
	if errors.Is(err, context.Canceled) {
		return nil, err
	}
	if err != nil {
		return nil, nil //nolint:nilerr // the page says of the step what is wrong, and shows the rest
	}
	return ranks, nil
}
