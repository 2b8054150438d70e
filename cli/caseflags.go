package cli

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/advise/trainers"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/internal/requirements"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
	"github.com/vprof/vprof/models/pt2"
	"github.com/vprof/vprof/profiler/stack"
)

// caseFlags are the flags that choose a case: one for each field of the table of package
// models. A flag that is not given leaves the choice to the model.
type caseFlags struct {
	model, torch string
	stack        stackFlag
	// patch holds the values that the flags set, except for several GPUs, the release and --set.
	patch models.Patch
	// isCalibrate reports whether the command is calibrate, whose stack also has the driver.
	isCalibrate bool
	settings    settingFlags
	ranks       rankFlags
	// ownRankFlags reports whether the command defines the flags for several GPUs itself, or supports one GPU only.
	ownRankFlags bool
	coefficients coefficientFlag
	flags        *pflag.FlagSet
	// trainer is the trainer's configuration that sets flags; nil if there is none.
	trainer *trainers.Config
	// flagsSetByTrainer are the flags that the trainer's configuration has set.
	flagsSetByTrainer []string
	// config is the configuration of the user's project, without a path if there is none.
	config *configuration
	// script is a command with a {batch} that is run; nil if there is none.
	script []string
	// judgedRun is the run in a result file of vprof run, if the verb judges that run; else nil.
	judgedRun *report.Report
}

// fieldFlag is the flag of a field of a case.
type fieldFlag struct {
	field *models.Field
	patch models.Patch
}

// String returns the text of the flag's value, for [pflag.Value].
func (f *fieldFlag) String() string {
	if f.field == nil {
		return ""
	}
	return f.patch[f.field.Name].Text
}

// Set parses the text of the field, for [pflag.Value]. An empty text is left to [emptyFlag].
func (f *fieldFlag) Set(text string) error {
	if strings.TrimSpace(text) == "" {
		delete(f.patch, f.field.Name)
		return nil
	}
	change, err := f.field.Parse(text)
	if err != nil { // names are in lower case: BF16 is bf16
		if lower, again := f.field.Parse(strings.ToLower(text)); again == nil {
			change, err = lower, nil
		}
	}
	if err == nil {
		f.patch.Set(change)
	}
	return err
}

// Type returns the kind of value that help shows, for [pflag.Value].
func (f *fieldFlag) Type() string {
	if strings.Contains(f.field.Usage, "`") {
		return "text"
	}
	return "bool"
}

func (f *caseFlags) register(cmd *cobra.Command, a *app) {
	f.flags, f.patch, f.config = cmd.Flags(), models.Patch{}, &configuration{}
	f.flags.Var(&setOnceFlag{target: &f.model}, "model", "model to train: a `name` (see vprof models), "+
		"hf:Qwen/Qwen3-8B or hf:config.json for transformers, model.pt2 of torch.export, or a recorded run.vprof")
	f.flags.StringVar(&f.torch, "torch", "",
		models.FieldNamed("torch").Usage+
			"; auto reads it from a .pt2 model, or else from uv.lock, requirements.txt or pyproject.toml beside "+
			projectFile+" (default: "+stack.Default().Release()+")")
	f.flags.Var(&f.stack, "stack", models.FieldNamed("stack").Usage+" (default: the newest known)")
	for i := range models.Fields() {
		field := &models.Fields()[i]
		if field.Name != "" && !field.SetOnly && !slices.Contains(separateFlags, field.Name) {
			f.addField(cmd, field)
		}
	}
	f.settings.register(f.flags)
	if !f.ownRankFlags {
		f.ranks.register(cmd)
	}
	f.complete(cmd, a)
}

// separateFlags are the fields whose flags accept more than a value of the field, or are not on every verb.
var separateFlags = []string{"torch", "stack", "gpus", "strategy", "alloc-conf"}

// completionValues are the values of fields whose values the table does not list.
var completionValues = map[string]func() []string{"task": hfconfig.Tasks, "loss": pt2.Losses}

func (f *caseFlags) addField(cmd *cobra.Command, field *models.Field) {
	values := field.Values
	if all := completionValues[field.Name]; all != nil {
		values = all
	}
	var words []string
	if values != nil {
		words = values()
	}
	flag := f.flags.VarPF(&fieldFlag{field, f.patch}, field.Name, "", field.Help(words))
	flag.NoOptDefVal = field.BareValue
	if values != nil {
		completeFlag(cmd, field.Name, values)
	}
}

// complete registers shell completion for values that depend on the model.
func (f *caseFlags) complete(cmd *cobra.Command, a *app) {
	completeFlag(cmd, "torch", func() []string { return append(stack.Releases(), autoRelease) })
	completeFlag(cmd, "model", func() []string { return a.models().Names() })
	completeFlag(cmd, "set", func() []string {
		names := lists.Map(settableFields(), func(f *models.Field) string { return f.Name + "=" })
		if m, err := a.models().Lookup(f.model); err == nil {
			for _, s := range m.Settings {
				names = append(names, s.Name+"=")
			}
		}
		return names
	})
	completeFlag(cmd, "stage", func() []string {
		m, err := a.models().Lookup(f.model)
		if err != nil {
			return nil
		}
		return m.Stages
	})
}

// registerAllocConf adds the flags that only replays use: allocator settings and coefficients.
func (f *caseFlags) registerAllocConf() {
	f.coefficients.register(f.flags)
	field := models.FieldNamed("alloc-conf")
	f.flags.Var(&fieldFlag{field, f.patch}, field.Name, field.Usage)
}

func (f *caseFlags) resolve(a *app) (models.Model, models.Case, error) {
	if f.model == "" {
		return models.Model{}, models.Case{}, usagef(`--model is missing (list the models with "vprof models")`)
	}
	defer input.BeginReading()()
	m, err := a.models().Lookup(f.model)
	if err != nil {
		return models.Model{}, models.Case{}, err
	}
	c := m.Default
	c.Model = m.Name
	if c.Torch, err = f.torchRelease(m); err != nil {
		return m, c, err
	}
	if c.Settings, err = f.settings.values(f.patch); err != nil {
		return m, c, err
	}
	c.Stack = f.libraries()
	f.patch.Apply(&c)
	if err := f.ranks.apply(&c); err != nil {
		return m, c, err
	}
	m, c, err = a.models().Complete(m, c)
	if err == nil && f.config.path != "" {
		c, err = f.withFileValues(a, m, c)
	}
	return m, c, cmp.Or(f.withTrainerKey(err), f.checkStack(a, c))
}

// givenSettings returns the settings of the model that flags choose; nil if there are none.
func (f *caseFlags) givenSettings() (models.Settings, error) {
	own, err := f.settings.values(f.patch)
	c := models.Case{Settings: own}
	f.patch.Apply(&c)
	return c.Settings, err
}

// readEvidence returns the residuals and coefficients that estimates use.
func (f *caseFlags) readEvidence(a *app) (step.Evidence, error) {
	calibrated, err := f.coefficients.selection()
	missed := func(err error) { printable.Fprintf(a.stderr, "vprof: %v; the default coefficients are used\n", err) }
	return step.Evidence{Trials: a.trials, Residuals: a.residuals, Calibrated: calibrated, OnMissing: missed}, err
}

func (f *caseFlags) newSetup(a *app) (*step.Setup, models.Case, error) {
	m, c, err := f.resolve(a)
	if err != nil {
		return nil, c, err
	}
	e, err := f.readEvidence(a)
	if err != nil {
		return nil, c, err
	}
	setup, err := step.New(m, c, e)
	return setup, c, err
}

// batchFlag is a list of batch sizes.
type batchFlag struct{ list string }

func (f *batchFlag) register(cmd *cobra.Command, otherwise string) {
	cmd.Flags().Var(&setOnceFlag{target: &f.list}, "batch",
		"batch sizes: a `list` like 8,16,32 or ranges like 8..128x2, 8..64+8 and 1..8 (default: "+otherwise+")")
}

// sizes returns the given batch sizes, or the default sizes if none are given.
func (f *batchFlag) sizes(otherwise []int) ([]int, error) {
	if f.list == "" {
		return otherwise, nil
	}
	sizes, err := sweep.ParseBatches(f.list)
	if err != nil {
		return nil, usagef("--batch: %w", err)
	}
	return sizes, nil
}

// joinOptionalValues rewrites "--checkpointing reentrant" as "--checkpointing=reentrant", for all flags whose value is
// optional. Words that are not a value of the flag stay arguments.
func joinOptionalValues(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		name, long := strings.CutPrefix(args[i], "--")
		if long && name == "" { // a user's command follows
			return append(out, args[i:]...)
		}
		if field := models.FieldNamed(name); long && field != nil && field.BareValue != "" && i+1 < len(args) &&
			!strings.HasPrefix(args[i+1], "-") {
			if _, err := field.Parse(args[i+1]); err == nil || strings.Contains(args[i+1], "=") {
				out = append(out, args[i]+"="+args[i+1])
				i++
				continue
			}
		}
		out = append(out, args[i])
	}
	return out
}

// autoRelease is the value of --torch that finds the release by itself.
const autoRelease = "auto"

// torchRelease returns the release of PyTorch that the flags name, or else the release of a recorded run.
func (f *caseFlags) torchRelease(m models.Model) (string, error) {
	if f.torch == "" && f.stack.torch == "" && m.Recorded {
		return m.Default.Torch, nil
	}
	name := cmp.Or(f.torch, f.stack.torch, stack.Default().Release())
	if name == autoRelease {
		var err error
		if name, err = installedTorchRelease(m); err != nil {
			return "", err
		}
	}
	release, err := models.ParseRelease(name)
	if err != nil {
		return "", usagef("--torch: %w", err)
	}
	return release, nil
}

// installedTorchRelease returns the release that wrote the model's file, or else the one that the project requires: in
// the folder with the project file, here or above, or in this folder.
func installedTorchRelease(m models.Model) (string, error) {
	if m.Torch != "" {
		return m.Torch, nil
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	release, err := requirements.Find(cmp.Or(projectFolder(here), here), "torch")
	if errors.Is(err, requirements.ErrNotFound) {
		return "", usagef("--torch auto: %w; name the release, like --torch %s", err, stack.Default().Release())
	}
	return release, err
}
