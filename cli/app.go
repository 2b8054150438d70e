package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/observe/monitor"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/hub"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/models/capture"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// app is the environment of commands: streams, clock, models and devices. Tests create their own.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	// color is the choice of --color.
	color string
	// offline is --offline, and quiet --quiet.
	offline, quiet bool
	now            func() time.Time
	// models opens the registry, which only some commands need.
	models func() *models.Registry
	// localCuDNN has cuDNN's answers about the convolutions of models from files; nil for none.
	localCuDNN *capture.LocalCuDNN
	// compiledSteps is the folder with recorded torch.compile steps of listed models; empty for none.
	compiledSteps string
	// residuals returns the errors of a model's replays compared with PyTorch.
	residuals step.ResidualsFunc
	// trials runs the trials of estimates; nil for this process.
	trials step.Executor
	// detect finds a GPU of this machine by its number. The error is a noGPUError.
	detect func(index int) (localGPU, error)
	// openGPU opens a GPU of this machine by its index. The error is a [*device.UnusableError].
	openGPU func(index int) (device.Device, error)
	// deviceFolder is /dev, whose files show GPUs even if their driver is missing.
	deviceFolder string
	// gpus opens NVML for monitor.
	gpus monitor.Source
	// onProgress receives the progress of long work, one call at a time; nil if no program asked for it.
	onProgress progress.Func
	// onPartialPlan receives a plan as far as it is known, before it is complete; nil if no program asked for it.
	onPartialPlan func(*report.Report)
	// printed is the document that the verb wrote to stdout.
	printed report.Document
	// onlyVerb creates the single verb of a request; nil creates all verbs.
	onlyVerb func(*app) *cobra.Command
}

// open opens a file of the command line, or standard input for "-", and returns its name for messages.
func (a *app) open(path string) (r io.ReadCloser, name string, err error) {
	if path == "-" {
		return io.NopCloser(a.stdin), "stdin", nil
	}
	f, err := input.OpenFile(path)
	if err != nil {
		return nil, path, usageError{err}
	}
	return f, path, nil
}

// newSystemApp returns the app of the running process. SOURCE_DATE_EPOCH, seconds since
// 1970, stops the clock for reproducible output.
func newSystemApp() *app {
	now := time.Now
	if epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		now = func() time.Time { return time.Unix(epoch, 0) }
	}
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, now: now, models: sync.OnceValue(all.Models),
		residuals: planner.Residuals, detect: detectGPU, openGPU: openGPU, deviceFolder: "/dev", gpus: openNVML,
	}
	if cache, err := cacheFolder(""); err == nil {
		a.localCuDNN = &capture.LocalCuDNN{Folder: filepath.Join(cache, "cudnn")}
		a.compiledSteps = filepath.Join(cache, "compiled")
		a.models = sync.OnceValue(func() *models.Registry {
			return all.ModelsWithSources(a.localCuDNN.Answers, a.compiledSteps)
		})
	}
	return a
}

// run runs one command line and returns the exit code.
func run(ctx context.Context, a *app, args []string) exitCode {
	return a.reportError(a.execute(ctx, args))
}

// execute runs one command line and returns its command and its error. A panic is a bug of vprof, and an error, too.
func (a *app) execute(ctx context.Context, args []string) (cmd *cobra.Command, err error) {
	defer func() {
		if bug := recover(); bug != nil {
			if os.Getenv("VPROF_DEBUG") != "" {
				panic(bug)
			}
			err = fmt.Errorf("this is a bug of vprof: %v; please report it with the command line (VPROF_DEBUG=1 "+
				"shows the stack trace)", bug)
		}
	}()
	if a.localCuDNN != nil {
		defer func() { _ = a.localCuDNN.Close(context.WithoutCancel(ctx)) }() // what is not kept is asked again
	}
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		isCompleting.Store(true)
	}
	root := newRootCmd(a)
	root.SetArgs(joinOptionalValues(args))
	if asksForFullHelp(args) {
		root.SetArgs(append(args[:len(args):len(args)], "--help"))
	}
	if err := unknownCommand(root, args); err != nil {
		return root, err
	}
	return root.ExecuteContextC(ctx)
}

// reportError writes the error of a command, if there is one, and returns the exit code.
func (a *app) reportError(cmd *cobra.Command, err error) exitCode {
	code := codeOf(err)
	switch code {
	case exitFine:
		return code
	case exitInterrupted:
		fmt.Fprintln(a.stderr, "vprof: interrupted")
		return code
	}
	// The error quotes files and their names, which may hold control characters.
	printable.Fprintf(a.stderr, "vprof: %s\n", input.Message(err))
	if usage := (usageError{}); errors.As(err, &usage) && cmd.HasParent() {
		printable.Fprintf(a.stderr, "See \"%s --help\".\n", cmd.CommandPath())
	}
	return code
}

func newRootCmd(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "vprof",
		Short:         "GPU memory of PyTorch training, before you train",
		Args:          noArgs,
		SilenceErrors: true, // run prints them
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := applySettings(cmd); err != nil {
				return err
			}
			if a.offline && hub.Default != nil { // for good: it is the process's, so that no request sets it
				hub.Default = nil
			}
			if a.quiet && hub.Default != nil {
				hub.Default.Announce = func(string) {}
			}
			if !slices.Contains(colorChoices, a.color) {
				return usagef("--color: %q: use %s", a.color, strings.Join(colorChoices, ", "))
			}
			return emptyFlag(cmd)
		},
		SuggestionsMinimumDistance: 2,
	}
	root.PersistentFlags().StringVar(&a.color, "color", "auto",
		"color tables: `when` is auto (on terminals), always or never")
	completeFlag(root, "color", func() []string { return colorChoices })
	root.PersistentFlags().BoolVar(&a.offline, offlineFlag, false,
		"do not fetch configurations of models from the Hugging Face hub")
	root.PersistentFlags().BoolVarP(&a.quiet, quietFlag, "q", false, "print no progress on standard error")
	root.PersistentFlags().Bool(helpAllFlag, false, "show help with all flags")
	plain := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		addPages(root)
		if cmd == root || !cmd.Runnable() && len(available(cmd)) == 0 {
			plain(cmd, args)
			return
		}
		all, _ := root.PersistentFlags().GetBool(helpAllFlag)
		newHelp(a, all).write(cmd)
	})
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(flagError)
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-")) // as in trainers' command lines
	})
	if a.onlyVerb != nil {
		root.AddCommand(a.onlyVerb(a))
	} else {
		addVerbs(root, a)
	}
	for _, cmd := range root.Commands() {
		cmd.SuggestFor, cmd.SuggestionsMinimumDistance = synonyms[cmd.Name()], root.SuggestionsMinimumDistance
	}
	acceptSuffixes(root)
	root.AddCommand(newTopics()...)
	root.Version = buildVersion().Version
	root.SetVersionTemplate("vprof {{.Version}}\n")
	root.SetHelpCommand(newHelpCmd())
	return root
}

// newHelpCmd returns cobra's help command, with an error for pages that do not exist.
func newHelpCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			page, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("no command or help page %q (list them with \"vprof help\")", strings.Join(args, " "))
			}
			_ = cmd.Root().PersistentFlags().Set(helpAllFlag, "true")
			return page.Help()
		},
	}
}

// asksForFullHelp reports whether a command line has --help-all.
func asksForFullHelp(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--"+helpAllFlag)
}

// unknownCommand returns an error if the first word is not a command. cobra would report its flags as unknown instead.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return nil
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	if cmd, _, err := root.Find(args[:1]); err == nil && cmd != root {
		return nil
	}
	return noArgs(root, args[:1])
}

// synonyms maps commands to their names in other tools.
var synonyms = map[string][]string{
	"plan": {"estimate", "predict", "calc", "calculate", "mem", "memory"},
	"fit":  {"search", "find", "optimize", "batch-size"}, "smoke": {"check", "test", "verify"},
	"gpus": {"devices", "boards", "list-gpus"}, "models": {"list", "list-models"}, "monitor": {"watch", "top"},
	"time":     {"bench", "benchmark", "speed"},
	"diagnose": {"debug", "oom", "analyze", "explain"}, "compare": {"diff"},
	"report":  {"html", "view", "show", "export", "plot"},
	"capture": {"convert", "trace"}, "run": {"execute", "simulate"},
}

const unlimitedArgs = math.MaxInt

// argCount accepts least to most arguments; what is the error for other numbers.
func argCount(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usageError{errors.New(what)}
		}
		return nil
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %s?", near[0])
	}
	if !cmd.HasParent() {
		return usagef("no command %q%s (list them with \"vprof help\")", args[0], hint)
	}
	return usagef("%s accepts only flags, not %q%s", cmd.CommandPath(), args[0], hint)
}
