package cli

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/experiment/fit"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/timing"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner/steptime"
)

// defaultTimeGPUs are the GPUs that a table has unless others are named: the ones in the projects' own guides.
const defaultTimeGPUs = "rtx-3060,rtx-5060-ti,rtx-3090,a100-40,a100-80"

type timeOptions struct {
	app      *app
	c        caseFlags
	target   gpuFlags
	budget   budgetFlags
	batch    int
	dataset  int64
	epochs   float64
	price    string
	measured measuredFlag
	stages   string
	out      output
}

func newTimeCmd(a *app) *cobra.Command {
	o := &timeOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "time",
		Short: "Estimate how long a step, an epoch and all training take, GPU by GPU",
		RunE:  func(cmd *cobra.Command, _ []string) error { return runTime(cmd.Context(), o) },
	}
	o.c.register(cmd, a)
	o.c.ranks.usesLinkSpeed = true
	o.c.acceptTrainer(cmd, a, noSearchedFlags)
	o.c.registerAllocConf()
	o.target.register(cmd, "`GPUs`: a list like rtx-3060,a100-80, or all (see vprof gpus)")
	o.target.registerHostMemory()
	o.budget.register(cmd)
	f := cmd.Flags()
	f.Lookup("gpu").DefValue = defaultTimeGPUs
	o.target.gpu = defaultTimeGPUs
	f.IntVar(&o.batch, "batch", 0, "batch `size` (default: the largest that is safe on each GPU)")
	f.Int64Var(&o.dataset, "dataset-size", 0, "number `n` of samples or sequences in an epoch, like 1.28M")
	f.Float64Var(&o.epochs, "epochs", 0, "number `n` of training epochs")
	f.StringVar(&o.price, "price", "", "`price` of a GPU, like 0.35/h or $0.35/h, for the cost of training (of one "+
		"epoch without --epochs); of several, rtx-4090=0.35/h,h100=2.50/h")
	o.measured.register(f)
	f.StringVar(&o.stages, "stages", "",
		"stages and their epochs, as a `list` like frozen:5,full:50 (instead of --stage and --epochs)")
	return o.out.register(cmd)
}

func runTime(ctx context.Context, o *timeOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	gpus, err := o.target.gpus()
	if err != nil {
		return err
	}
	gpus = o.c.ranks.withLinkSpeed(gpus)
	rated := func(g device.GPU) bool { return g.Peak.FP32 > 0 && g.Bandwidth > 0 }
	if !slices.ContainsFunc(gpus, rated) {
		return usagef("%s: times need the GPU's rates; add bandwidth_gb_per_s, fp32_tflops and others to %s",
			gpus[0].Name, cmp.Or(o.target.spec, "a file of --gpu-spec"))
	}
	budget, err := o.budget.budget()
	if err != nil {
		return err
	}
	stages, err := o.timedStages(gpus)
	if err != nil {
		return err
	}
	price, prices, err := o.hourlyPrices(gpus)
	if err != nil {
		return err
	}
	measured, err := o.measured.read(o.batch, len(gpus))
	if err != nil {
		return err
	}
	started := o.app.now().UTC()
	return o.out.withProgress(func(step progress.Func) (report.Document, error) {
		t := timing.Table{
			Stages: stages, Batch: o.batch, Budget: budget, Dataset: o.dataset, Measured: measured, Progress: step,
		}
		r, err := t.Run(ctx, gpus)
		if err == nil {
			r.Tool, r.Started = vprofTool(), started
			r.SetPrices(price, prices)
		}
		return r, err
	})
}

// measuredFlag is --measured.
type measuredFlag struct{ text string }

func (f *measuredFlag) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.text, "measured", "", "scale estimates to the measured `time` of a step with these options "+
		"(of the first stage) on the GPU, like 0.42s, or 0.42s@8 if measured at batch 8")
}

// read returns the measured step; zero if the flag is not given.
func (f *measuredFlag) read(batch, gpus int) (timing.Measured, error) {
	if f.text == "" {
		return timing.Measured{}, nil
	}
	text, at, other := strings.Cut(f.text, "@")
	d, err := time.ParseDuration(text)
	m := timing.Measured{Seconds: d.Seconds(), Batch: batch}
	if other && err == nil {
		m.Batch, err = strconv.Atoi(at)
	}
	switch {
	case err != nil || d <= 0 || m.Batch < 0 || m.Batch > 1<<20 || other && m.Batch == 0:
		return m, usagef("--measured: invalid %q: need the time of a step like 0.42s, or with its batch size like "+
			"0.42s@8", f.text)
	case m.Batch == 0:
		return m, usagef("--measured: the batch size of the measured step is missing; add --batch 8, or write %s@8",
			text)
	case gpus != 1:
		return m, usagef("--measured: a step is measured on one GPU, and %d are listed; name that GPU with --gpu", gpus)
	}
	return m, nil
}

// correctedEfficiency returns the GPU's efficiency, corrected so that a step of a case takes the measured time; nil
// without the flag.
func (f *measuredFlag) correctedEfficiency(ctx context.Context, m models.Model, c models.Case, batch int,
	of *fit.Search,
) (*steptime.Efficiency, error) {
	measured, err := f.read(batch, len(of.GPUs))
	if err != nil || measured.Batch == 0 {
		return nil, err
	}
	s, err := step.New(m, c, of.Evidence)
	if err != nil {
		return nil, err
	}
	speed, err := of.Speed(of.GPUs[0], m.Name)
	if err == nil {
		speed, err = measured.Correct(ctx, s, of.GPUs[0], speed)
	}
	return &speed, err
}

// hourlyPrices returns the price of a GPU-hour: one for all GPUs, or one for each that --price names.
func (o *timeOptions) hourlyPrices(gpus []device.GPU) (all float64, each map[string]float64, err error) {
	if !o.c.flags.Changed("price") {
		return 0, nil, nil
	}
	each = map[string]float64{}
	for item := range strings.SplitSeq(o.price, ",") {
		name, text, named := strings.Cut(strings.TrimSpace(item), "=")
		if !named {
			text = name
		}
		v, err := strconv.ParseFloat(strings.TrimLeft(strings.TrimSuffix(text, "/h"), "$€£"), 64)
		if err != nil || !(v > 0 && v <= 1e6) {
			return 0, nil, usagef("--price: invalid %q: need a price per hour like 0.35/h, or of one GPU like "+
				"rtx-4090=0.35/h", item)
		}
		if !named {
			all = v
			continue
		}
		gpu, err := device.Lookup(name)
		if err == nil && !slices.ContainsFunc(gpus, func(g device.GPU) bool { return g.Name == gpu.Name }) {
			err = errors.New("no such GPU is in --gpu; add it there, or leave its price out")
		}
		if err != nil {
			return 0, nil, usagef("--price %s: %w", name, err)
		}
		each[gpu.Name] = v
	}
	if o.dataset == 0 {
		return 0, nil, usagef("--price: the cost depends on the training time; add --dataset-size, and --epochs or " +
			"--stages for more than one epoch")
	}
	return all, each, nil
}

func (o *timeOptions) check() error {
	switch {
	case o.c.flags.Changed("batch") && (o.batch < 1 || o.batch > 1<<20):
		return usagef("--batch: %d is not a batch size; the smallest is 1", o.batch)
	case o.c.flags.Changed("dataset-size") && (o.dataset < 1 || o.dataset > 1<<50):
		return usagef("--dataset-size: %d: need 1 or more samples", o.dataset)
	case o.c.flags.Changed("epochs") && !(o.epochs > 0 && o.epochs <= 1e9):
		return usagef("--epochs: %v is out of range; need a number above 0 and up to 1e9", o.epochs)
	case o.stages != "" && (o.c.flags.Changed("epochs") || o.c.flags.Changed("stage")):
		return usagef("--stages names the stages and their epochs itself; leave out --stage and --epochs")
	case o.c.flags.Changed("price") && o.stages == "":
		o.epochs = cmp.Or(o.epochs, 1)
	}
	return nil
}

// timedStages returns the stages of training: the list of --stages, or the case's own.
func (o *timeOptions) timedStages(gpus []device.GPU) ([]timing.Stage, error) {
	if o.stages == "" {
		s, err := o.timedStage(gpus, "", o.epochs)
		return []timing.Stage{s}, err
	}
	var stages []timing.Stage
	for item := range strings.SplitSeq(o.stages, ",") {
		name, n, ok := strings.Cut(strings.TrimSpace(item), ":")
		epochs, err := strconv.ParseFloat(n, 64)
		if !ok || name == "" || err != nil || !(epochs > 0) || math.IsInf(epochs, 1) {
			return nil, usagef("--stages: invalid %q: need STAGE:EPOCHS, like full:50", item)
		}
		s, err := o.timedStage(gpus, name, epochs)
		if err != nil {
			return nil, err
		}
		stages = append(stages, s)
	}
	return stages, nil
}

func (o *timeOptions) timedStage(gpus []device.GPU, stage string, epochs float64) (timing.Stage, error) {
	flags := o.c
	if stage != "" {
		change, err := models.FieldNamed("stage").Parse(stage)
		if err != nil {
			return timing.Stage{}, err
		}
		flags.patch = maps.Clone(flags.patch)
		flags.patch.Set(change)
	}
	m, c, err := flags.resolve(o.app)
	if err != nil {
		return timing.Stage{}, err
	}
	evidence, err := flags.readEvidence(o.app)
	if err != nil {
		return timing.Stage{}, err
	}
	o.out.setOrigins(m, o.c.origins(m, c))
	if o.batch == 0 && o.c.config.path != "" {
		o.batch = c.Batch
	}
	out := timing.Stage{Name: c.Stage, Epochs: epochs}
	if out.Setup, err = step.New(m, c, evidence.WithSharedSteps(gpus)); err != nil {
		return out, err
	}
	parts, err := flags.curriculumParts(m, c)
	out.Setup = out.Setup.WithParts(parts)
	return out, err
}
