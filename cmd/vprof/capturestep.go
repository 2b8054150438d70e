package main

import (
	"context"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/models/compiled"
)

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
