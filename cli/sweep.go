package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/bench/job"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/profiler/device"
)

type sweepOptions struct {
	app    *app
	c      caseFlags
	batch  batchFlag
	target gpuFlags
	part   shardFlags
	out    output

	conditions     sweep.Conditions
	leaveFree      string
	leaveFreeBytes int64 // bytes
	tolerance      string
	toleranceShare float64 // of --tolerance
	resume         string
	unfinished     *report.Report  // what resume holds
	unusableGPU    *report.Warning // says of a GPU that is here why it is not used
}

func newSweepCmd(a *app) *cobra.Command {
	o := &sweepOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Estimate and run batch size after batch size until one does not fit",
		RunE:  func(cmd *cobra.Command, _ []string) error { return runSweep(cmd, o) },
	}
	o.c.register(cmd, a)
	o.c.acceptTrainer(cmd, a, func() []string { return []string{"batch"} })
	o.c.registerAllocConf()
	o.batch.register(cmd, "the model's own")
	o.target.register(cmd, "simulate this `GPU`, as --device sim:NAME does (see vprof gpus)")
	o.target.registerHostMemory()
	o.target.registerDevice(cmd, "`device` to run on: cuda:0, or sim:NAME for a simulated GPU (default: the first "+
		"GPU if this vprof can use it, else sim:"+defaultGPU+")")
	o.out.register(cmd)
	f := cmd.Flags()
	o.part.register(f, "resume", "find-max")
	f.BoolVar(&o.conditions.FindMax, "find-max", false, "continue by bisection to the largest batch that runs")
	f.IntVar(&o.conditions.WarmUp, "warm-up", 1, "untimed `runs` of every batch size before the timed ones (real GPUs)")
	f.IntVar(&o.conditions.Repeat, "repeat", 5, "timed `runs` of every batch size (real GPUs)")
	f.BoolVar(&o.conditions.Verify, "verify", false,
		"first write a pattern into every tensor and check that it is not overwritten (real GPUs)")
	f.StringVar(&o.leaveFree, "leave", "", "leave memory of this `size` free on a GPU, like 1GiB or 0 (default: 1GiB "+
		"if other processes compute on it, 512MiB with a display, else 0)")
	f.StringVar(&o.tolerance, "tolerance", "", "exit with code 3 if a measurement differs from its estimate by "+
		"more than this `difference`, like 2% (default: the verdict allows 5%, and the code stays 0)")
	f.StringVar(&o.resume, "resume", "", "resume the sweep in `file` (JSON or JSON Lines), and write to it")
	return cmd
}

func runSweep(cmd *cobra.Command, o *sweepOptions) error {
	if o.c.script != nil {
		return runSweepScript(cmd.Context(), o)
	}
	m, c, err := o.c.resolve(o.app)
	if err != nil {
		return err
	}
	o.out.setOrigins(m, o.c.origins(m, c))
	here := &job.Local{Models: o.app.models()}
	if here.Evidence, err = o.c.readEvidence(o.app); err != nil {
		return err
	}
	usual := slices.Sorted(slices.Values(m.Batches))
	if len(usual) == 0 {
		usual = []int{c.Batch}
	}
	batches, err := o.batch.sizes(usual)
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	target, err := o.target.target()
	if err != nil {
		return err
	}
	if target.GPU != nil && o.conditions.Verify {
		return o.verifyError(step.SimName(*target.GPU))
	}
	here.Open, here.Resumed = o.openDevice, o.unfinished
	j := job.Sweep(report.CaseOf(m, c), target, batches, o.conditions)
	j.Calibrated = here.Evidence.Calibrated
	if j.CurriculumParts, err = o.c.curriculumParts(m, c); err != nil {
		return err
	}
	if done, err := o.part.runShardIfSet(func() error { return o.shard(cmd.Context(), here, j) }); done {
		return err
	}
	bar := startProgress(o.app, false)
	started := o.app.now().UTC()
	r, err := here.Run(cmd.Context(), j, func(r *report.Report) error {
		o.addProvenance(r, started)
		bar.step("batch sizes", len(r.Points), max(len(batches), len(r.Points)))
		return o.out.save(r)
	})
	bar.end()
	if r == nil || (err != nil && len(r.Points) == 0 && !errors.Is(err, context.Canceled)) {
		return err
	}
	// An interrupted sweep shows the results so far.
	o.addProvenance(r, started)
	if d := r.Devices; target.Device == job.AutoDevice && len(d) > 0 && !d[0].HasDriver() {
		o.out.defaultGPU = o.target.byDefault(d[0].Title)
	}
	return errors.Join(err, o.out.print(r), o.verdict(r))
}

// verdict returns an error if --tolerance is given and the GPU differs from the estimates by more.
func (o *sweepOptions) verdict(r *report.Report) error {
	if o.tolerance == "" || r.Agreement == nil || !r.Agreement.ExceedsTolerance() {
		return nil
	}
	return negativeVerdict{fmt.Errorf("measurements differ from the estimates by more than %s (--tolerance): %v",
		o.tolerance, *r.Agreement)}
}

// addProvenance adds the time, the version, the origins of settings and an unused GPU to a report.
func (o *sweepOptions) addProvenance(r *report.Report, started time.Time) {
	o.app.addProvenance(r, started)
	r.SetOrigins(o.out.origins)
	if o.unusableGPU != nil {
		r.Warn(*o.unusableGPU)
	}
	if a, ok := r.AgreementWithin(o.toleranceShare); ok {
		r.Agreement = &a
	}
}

// openDevice opens the device of the sweep, which must support the flags.
func (o *sweepOptions) openDevice(name string) (d device.Device, err error) {
	if name == job.AutoDevice {
		d, o.unusableGPU, err = o.app.firstDevice()
	} else {
		d, err = o.app.namedDevice(name)
	}
	if err != nil {
		return nil, err
	}
	if _, ok := d.(device.Verifier); o.conditions.Verify && !ok {
		return nil, errors.Join(o.verifyError(d.Name()), d.Close())
	}
	if limiter, ok := d.(device.Limiter); ok && o.leaveFree != "" {
		limiter.LeaveFree(o.leaveFreeBytes)
	} else {
		reserveForOthers(d)
	}
	return d, nil
}

func (*sweepOptions) verifyError(device string) error {
	return usagef("--verify: %s is simulated and has no memory to write to; use a real GPU (--device cuda:0)", device)
}

// check reads the file to resume, and refuses flags that contradict each other.
func (o *sweepOptions) check() error {
	const most = 1000
	for flag, n := range map[string]int{"--warm-up": o.conditions.WarmUp, "--repeat": o.conditions.Repeat - 1} {
		if n < 0 || n > most {
			return usagef("%s: the number is too large; need at most %d runs", flag, most)
		}
	}
	var err error
	if o.leaveFreeBytes, err = parseSize("--leave", o.leaveFree); err != nil {
		return err
	}
	if o.toleranceShare, err = parseTolerance(cmp.Or(o.tolerance, "5%")); err != nil {
		return usagef("--tolerance: %w", err)
	}
	if o.resume == "" {
		return nil
	}
	if f, err := report.FormatOf(o.resume); err != nil || f != report.JSON && f != report.JSONL {
		return usagef("--resume: %s: need a .json or .jsonl file, which vprof sweep --export writes", o.resume)
	}
	if o.unfinished, err = readUnfinishedSweep(o.resume); err != nil {
		return err
	}
	return o.out.alsoWrite(o.resume)
}

// readUnfinishedSweep reads an unfinished sweep from a file; nil if there is no file, or it has no batch size.
func readUnfinishedSweep(path string) (*report.Report, error) {
	file, err := input.OpenFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return nil, nil
	}
	reports, err := report.Read(path, file)
	if err != nil {
		return nil, err
	}
	if len(reports) != 1 {
		return nil, usagef("--resume: %s holds %d sweeps, and only one can be resumed; name a file with one",
			path, len(reports))
	}
	return reports[0], nil
}

// shard runs a part of the batch sizes, to the first that does not fit: no larger one would.
func (o *sweepOptions) shard(ctx context.Context, here *job.Local, j job.Job) error {
	j.Batches = slices.Compact(slices.Sorted(slices.Values(j.Batches)))
	p, err := newShardPlan("sweep", len(j.Batches), j)
	if err != nil {
		return err
	}
	return o.part.run(ctx, o.app, p, j.Batches,
		func(ctx context.Context, from, to int, partial json.RawMessage, keep func(any) error) (int, any, error) {
			part := j
			part.Batches = j.Batches[from:to]
			if partial != nil {
				here.Resumed = &report.Report{}
				if err := json.Unmarshal(partial, here.Resumed); err != nil {
					return 0, nil, err
				}
			}
			started := o.app.now().UTC()
			r, err := here.Run(ctx, part, func(r *report.Report) error {
				o.addProvenance(r, started)
				return keep(r)
			})
			if err != nil {
				return 0, nil, err
			}
			o.addProvenance(r, started)
			return to - from, r, nil
		})
}
