package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/internal/shellword"
	"github.com/vprof/vprof/models/capture"
	"github.com/vprof/vprof/models/pt2"
	"github.com/vprof/vprof/models/recorded"
)

// captureOptions are the model to capture, and the questions to cuDNN about it.
type captureOptions struct {
	app *app
	capture.Options
	print bool
	// gpus are the GPUs that cuDNN is queried about, cudnnLibrary the libcudnn to query.
	gpus, cudnnLibrary string
	compile            compileFlags
	settings           settingFlags
}

func newCaptureCmd(a *app) *cobra.Command {
	o := &captureOptions{app: a}
	cmd := &cobra.Command{
		Use:   "capture MODEL",
		Short: "Make a .pt2 file of any PyTorch model, with your own Python",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 && !o.print {
				return usagef("name one model to capture, for example timm:resnet50 or train.py:make_model")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			err := runCapture(cmd.Context(), o, args)
			if refused, ok := errors.AsType[*capture.RefusedError](err); ok {
				if cmd.Flags().Changed("step") { // which has just failed
					refused.Do = withoutStepAdvice.Replace(refused.Do)
				}
				refused.Do = strings.Replace(refused.Do, capture.SameCommand, stepCommand(cmd, args), 1)
				return usageError{err}
			}
			return err
		},
	}
	o.register(cmd)
	cmd.AddCommand(newCaptureAskCmd(a))
	return cmd
}

func (o *captureOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.Output, "output", "o", "", "`file` to write (default: the model's name with .pt2)")
	f.StringArrayVar(&o.Inputs, "input", nil, "argument of forward, as `name=dtype[dim,...]` like "+
		"x=float32[batch,784] (repeatable)")
	f.StringVar(&o.InputsFrom, "inputs-from", "",
		"`function` that returns an example of the inputs, as file.py:name or pkg.module:name")
	f.StringVar(&o.Task, "task", "",
		"`task` of a transformers model, such as causal-lm (default: read from its config.json)")
	f.StringVar(&o.Attention, "attention", "", "attn_implementation of a transformers model, by `name` such as eager")
	f.IntVar(&o.Size, "size", 0, "height and width of images in `pixels` (default: the model's own)")
	f.IntVar(&o.Seq, "seq", 0, "length of text to export with, in `tokens` (default: 256)")
	f.IntVar(&o.Samples, "samples", 0, "length of audio to export with, in `samples` (default: 32000)")
	f.StringVar(&o.Python, "python", "", "Python `interpreter` to use (default: python3 or python of the PATH)")
	f.StringVar(&o.gpus, "ask-cudnn", "",
		"ask the cuDNN of your Python for the workspaces of convolutions on `GPUs` like rtx-3090,a100-40, or none "+
			"(default: one of each architecture since Ampere, if there is a cuDNN; see vprof capture ask)")
	f.StringVar(&o.cudnnLibrary, "cudnn", "", "libcudnn.so.9 `file` to ask, instead of your Python's")
	o.compile.register(cmd)
	o.settings.register(f)
	f.Lookup("set").Usage = "set a setting of a model that vprof lists, as `name=value` like seq-len=256 (repeatable)"
	f.BoolVar(&o.print, "print-script", false, "print the Python script that vprof runs, and exit")
	f.BoolVar(&o.Verbose, "verbose", false, "show all output of Python, and each failed attempt")
}

func runCapture(ctx context.Context, o *captureOptions, args []string) error {
	if o.print {
		_, err := io.WriteString(o.app.stdout, capture.Script())
		return err
	}
	if err := o.compile.complete(); err != nil {
		return err
	}
	o.Spec = args[0]
	if slices.Contains(o.app.models().Names(), o.Spec) {
		return recordListedModel(ctx, o)
	}
	if len(o.settings.pairs) > 0 {
		return usagef("--set works only with listed models, and %s is not one; give its input sizes with --seq, "+
			"--size or --input", o.Spec)
	}
	if o.Output == "" {
		o.Output = captureName(o.Spec)
		if o.compile.step {
			o.Output = strings.TrimSuffix(o.Output, pt2.Suffix) + recorded.Suffix
		}
	} else if !o.compile.step && !strings.HasSuffix(o.Output, pt2.Suffix) {
		return usagef("invalid -o %s: the file of a model must end in %s", o.Output, pt2.Suffix)
	}
	if o.compile.step {
		return recordStep(ctx, o)
	}
	compiling := o.startCompile(ctx)
	defer compiling.stop()
	bar := startProgress(o.app, o.Verbose)
	bar.step("Python exports "+o.Spec, 0, 0)
	made, err := capture.Run(ctx, o.Options)
	bar.end()
	if err != nil {
		return err
	}
	printOutcome(o.app, made)
	if o.compile.Form != "" {
		if err := writeCompiledSteps(o, compiling, o.Output, recorded.FileOf(o.Output),
			compiledStepsFileOf(o.Spec)); err != nil {
			return err
		}
	}
	if o.gpus == askNoGPUs {
		return nil
	}
	return askAfterCapture(ctx, o, made.File)
}

// askNoGPUs is the value of --gpus that asks cuDNN nothing.
const askNoGPUs = "none"

// defaultAskGPUs are one of each architecture that cuDNN answers about quickly.
var defaultAskGPUs = []string{"a100-80", "rtx-3090", "rtx-4090", "h100", "rtx-5090"}

// captureName returns the default name of a model's file: the last part of its spec.
func captureName(spec string) string {
	spec, _, _ = strings.Cut(spec, "@")
	spec = strings.TrimSuffix(strings.ReplaceAll(spec, `\`, "/"), "/config.json")
	return strings.TrimSuffix(spec[strings.LastIndexAny(spec, ":/")+1:], ".json") + ".pt2"
}

// printOutcome prints what was written and the next command.
func printOutcome(a *app, made *capture.Outcome) {
	open := "its own batch size only"
	if made.AnyBatch {
		open = "any batch size"
	}
	for _, s := range made.Symbols {
		if s != "batch" {
			open += ", any " + s
		}
	}
	printable.Fprintf(a.stdout, "%s: %d nodes, %s, %s\n", made.File, made.Nodes, bytesize.Format(made.Bytes), open)
	for _, note := range made.Notes {
		printable.Fprintf(a.stdout, "note: %s\n", note)
	}
	printable.Fprintf(a.stdout, "next: vprof plan --model %s --batch 8\n", made.File)
}

// withoutStepAdvice removes the advice to use --step from a refusal.
var withoutStepAdvice = strings.NewReplacer("Record a training step as it runs ("+capture.SameCommand+"), or run",
	"Run", "record a training step as it runs ("+capture.SameCommand+"), or run", "run")

// stepCommand returns the given command with --step, for models that torch.export cannot turn into a graph.
func stepCommand(cmd *cobra.Command, args []string) string {
	words := append([]string{"vprof", "capture"}, args...)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if several, ok := f.Value.(pflag.SliceValue); ok {
			values = several.GetSlice()
		}
		switch {
		case f.Name == "output" || f.Name == "compile": // of a graph
		case f.NoOptDefVal != "":
			words = append(words, "--"+f.Name)
		default:
			for _, v := range values {
				words = append(words, "--"+f.Name, v)
			}
		}
	})
	return shellword.Join(append(words, "--step"))
}

// recordStep records training steps of a model on a simulated GPU, in place of its graph, writes and describes them.
func recordStep(ctx context.Context, o *captureOptions) error {
	if !strings.HasSuffix(o.Output, recorded.Suffix) {
		return usagef("invalid -o %s: the file of a recorded step must end in %s", o.Output, recorded.Suffix)
	}
	bar := startProgress(o.app, o.Verbose)
	bar.step("Python runs steps of "+o.Spec, 0, 0)
	made, err := o.recordSteps(ctx)
	bar.end()
	if err != nil {
		return err
	}
	if err := report.WriteFile(o.Output, made.Write); err != nil {
		return err
	}
	printable.Fprintf(o.app.stdout, "%s: steps as PyTorch %s ran them for %s\n", o.Output, made.Torch, made.GPU)
	for _, amp := range o.compile.AMP {
		amp = strings.TrimPrefix(amp, "none")
		printable.Fprintf(o.app.stdout, "  %s\n", made.Linearity(amp))
	}
	for _, line := range made.Steps.Guessed {
		printable.Fprintf(o.app.stdout, "note: %s: control flow depends on a number that was never computed\n", line)
	}
	printable.Fprintf(o.app.stdout, "next: vprof plan --model %s --amp %s --batch 8\n", o.Output, o.compile.AMP[0])
	return nil
}
