package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/internal/shellword"
	"github.com/vprof/vprof/models/compiled"
)

// stepCommand is the command that was given, with --step: what can be done where a graph cannot be made.
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

// recordStep records training steps of a model as they run on a simulated board, in place of its graph, writes them and
// says what they are.
func recordStep(ctx context.Context, o *captureOptions) error {
	if !strings.HasSuffix(o.Output, compiled.StepSuffix) {
		return usagef("-o %s: a recorded step is no graph; its file ends in %s", o.Output, compiled.StepSuffix)
	}
	bar := startProgress(o.app, o.Verbose)
	bar.step("Python runs steps of "+o.Spec, 0, 0)
	made, err := o.recordCompiled(ctx)
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
		printable.Fprintf(o.app.stdout, "  %s\n", made.Line(amp))
	}
	for _, line := range made.Guessed {
		printable.Fprintf(o.app.stdout, "note: %s: the course hangs on a number that was never computed\n", line)
	}
	printable.Fprintf(o.app.stdout, "next: vprof plan --model %s --amp %s --batch 8\n", o.Output, o.compile.AMP[0])
	return nil
}
