package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/capture"
	"github.com/vprof/vprof/models/recorded"
)

// compileFlags are the options of recorded steps.
type compileFlags struct {
	capture.Compile
	// step reports whether the training step is recorded as it runs, instead of a graph of the model.
	step   bool
	target gpuFlags
}

func (f *compileFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Form, "compile", "", "also record the step under torch.compile, for --torch-compile; compile "+
		"this `part`: whole (the model), loss (model and loss), blocks (one by one); --compile alone is whole")
	flags.Lookup("compile").NoOptDefVal = recorded.Forms()[0]
	flags.BoolVar(&f.step, "step", false, "record a training step as it runs instead of exporting a graph, for "+
		"models that torch.export refuses, for example because tensor sizes depend on the data")
	flags.StringSliceVar(&f.AMP, "amp", []string{"bf16"},
		"with --compile or --step, autocast `precisions` to record: none, fp16, bf16 (default: bf16)")
	flags.IntSliceVar(&f.Batches, "batch", nil, "with --compile or --step, batch `sizes` to record; other sizes are "+
		"interpolated (default: 16,128; with --step: 4,16,64)")
	flags.StringVar(&f.Loss, "loss", "",
		"with --compile or --step, loss for a model that returns none, by a `name` that vprof plan --loss accepts")
	flags.BoolVar(&f.Dynamic, "dynamic", false, "with --compile, use torch.compile(dynamic=True)")
	flags.Float64Var(&f.Budget, "activation-memory-budget", 0, "with --compile, `share` of activations to keep for "+
		"backward (torch._functorch.config.activation_memory_budget) (default: PyTorch's own)")
	f.target.register(cmd, "with --compile or --step, simulate this `GPU` (see vprof gpus)")
	completeFlag(cmd, "compile", recorded.Forms)
}

// complete sets defaults, and rejects invalid values.
func (f *compileFlags) complete() error {
	batches := []int{16, 128}
	switch {
	case f.step && f.Form != "":
		return usagef("--step and --compile exclude each other: --step records the eager training step, --compile " +
			"the compiled one; give one")
	case f.step:
		f.Form, batches = recorded.Eager, []int{4, 16, 64}
	case f.Form == "":
		return nil
	}
	if len(f.Batches) == 0 {
		f.Batches = batches
	}
	if !f.step && !slices.Contains(recorded.Forms(), f.Form) {
		return usagef("invalid --compile=%s: need whole, loss or blocks", f.Form)
	}
	for _, amp := range f.AMP {
		if !slices.Contains([]string{"none", "fp16", "bf16"}, amp) {
			return usagef("invalid --amp %s: need none, fp16 or bf16", amp)
		}
	}
	for _, b := range f.Batches {
		if err := models.CheckBatch(b); err != nil {
			return usagef("--batch: %v", err)
		}
	}
	if f.Budget < 0 || f.Budget > 1 {
		return usagef("invalid --activation-memory-budget %v: need a share from 0 to 1, like 0.5", f.Budget)
	}
	return nil
}

// recordingGPUMemory is the GPU's memory while steps are recorded, so that none runs out of it.
const recordingGPUMemory = 1 << 44

// compileJob records the compiled step of a model while the model is exported: each uses one core.
type compileJob struct {
	cancel   context.CancelFunc
	done     chan struct{} // closed at the end, when the others are there
	recorded *recorded.File
	err      error
}

// startCompile begins to record the compiled step if the flags request it.
func (o *captureOptions) startCompile(ctx context.Context) *compileJob {
	c := &compileJob{done: make(chan struct{})}
	ctx, c.cancel = context.WithCancel(ctx)
	go func() {
		defer close(c.done)
		if o.compile.Form != "" {
			c.recorded, c.err = o.recordSteps(ctx)
		}
	}()
	return c
}

// stop ends the recording, if it still runs.
func (c *compileJob) stop() {
	c.cancel()
	<-c.done
}

// recordSteps runs the steps of a model on a simulated GPU, at the given batch sizes and at sizes between them at which
// Inductor generates other code.
func (o *captureOptions) recordSteps(ctx context.Context) (*recorded.File, error) {
	gpu, err := o.compile.target.oneGPU()
	if err != nil {
		return nil, err
	}
	folder, err := unpackStubLibraries()
	if err != nil {
		return nil, err
	}
	command := script.Command{GPU: gpu, Stubs: folder, Until: "end"}
	command.GPU.Memory = recordingGPUMemory
	if o.Verbose {
		command.Stdout, command.Stderr = o.app.stderr, o.app.stderr
	}
	all := new(recorded.File)
	if err := o.recordStepsAt(ctx, command, o.compile.Points(), all); err != nil {
		return nil, err
	}
	var between []capture.Point
	for _, amp := range o.compile.AMP {
		for _, batch := range all.Missing(amp) {
			between = append(between, capture.Point{AMP: amp, Batch: batch})
		}
	}
	return all, o.recordStepsAt(ctx, command, between, all)
}

// recordStepsAt adds recordings in some precisions and at some batch sizes.
func (o *captureOptions) recordStepsAt(ctx context.Context, command script.Command, points []capture.Point,
	all *recorded.File,
) error {
	if len(points) == 0 {
		return nil
	}
	c, err := o.Record(o.compile.Compile, points)
	if err != nil {
		return err
	}
	defer c.Close()
	command.Args = c.Args
	ran, err := script.Run(ctx, command)
	if err != nil {
		return err
	}
	err = c.Result(all)
	refused := (*capture.RefusedError)(nil)
	switch {
	case errors.As(err, &refused):
		return usageError{err}
	case err != nil && ran.Torch().Version != "" && ran.Torch().CUDA == "":
		return usagef("--compile needs PyTorch built for CUDA, and this Python's is not; install such a build (no " +
			"GPU is needed)")
	case err != nil:
		return err
	}
	all.GPU = command.GPU.Name
	all.Steps.Guessed = slices.Compact(slices.Sorted(slices.Values(append(all.Steps.Guessed,
		ran.UncomputedLines()...))))
	return nil
}

// compiledStepsFileOf returns the file of compiled steps beside a configuration of transformers; else empty.
func compiledStepsFileOf(spec string) string {
	config, ok := strings.CutPrefix(spec, "hf:")
	if !ok {
		return ""
	}
	return recorded.FileOf(config[strings.LastIndexByte(config, '@')+1:])
}

// writeCompiledSteps waits for the recordings and writes them to files; the second may be empty. It prints a summary
// and the command that plans the model.
func writeCompiledSteps(o *captureOptions, c *compileJob, model string, paths ...string) error {
	bar := startProgress(o.app, o.Verbose)
	bar.step("Python compiles "+model, 0, 0)
	<-c.done
	bar.end()
	if c.err != nil {
		return c.err
	}
	made := c.recorded
	for _, path := range paths {
		if path == "" {
			continue
		}
		if err := report.WriteFile(path, made.Write); err != nil {
			return err
		}
	}
	var of []string
	for i, r := range made.Recordings {
		of = append(of, strings.TrimSpace(fmt.Sprintf("%s %d", r.AMP, r.Batch)))
		if r.Breaks > 0 && i == 0 {
			printable.Fprintf(o.app.stdout, "note: %d graph breaks; what lies between the graphs runs eagerly\n",
				r.Breaks)
		}
	}
	printable.Fprintf(o.app.stdout, "%s: compiled by PyTorch %s for %s, at batch %s\n", paths[0], made.Torch, made.GPU,
		strings.Join(of, ", "))
	printable.Fprintf(o.app.stdout, "next: vprof plan --model %s --torch-compile --amp %s --batch 8\n", model,
		o.compile.AMP[0])
	return nil
}

// recordListedModel records the compiled step of the transformers class that a listed model corresponds to, and stores
// it for plans of the model with those settings.
func recordListedModel(ctx context.Context, o *captureOptions) error {
	m, err := o.app.models().Lookup(o.Spec)
	if err != nil {
		return err
	}
	own := o.Options
	own.Spec, own.Python, own.Verbose = "", "", false
	switch {
	case o.compile.Form == "" || o.compile.step:
		return usagef("%s is a listed model, whose eager step vprof computes without a recording; use --compile to "+
			"record its compiled step", m.Name)
	case !reflect.DeepEqual(own, capture.Options{}) || o.compile.Loss != "":
		return usagef("%s is a listed model with its own inputs and loss; choose sizes by --set", m.Name)
	}
	c := models.Case{}
	if c.Settings, err = o.settings.values(nil); err != nil {
		return err
	}
	if c, err = m.Complete(c); err != nil {
		return err
	}
	class, reason := m.LibraryClass(c)
	if reason != "" {
		return usagef("%s", reason)
	}
	path := recorded.FileOfListed(o.app.compiledSteps, m, c)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	o.Spec, o.Inputs, o.Size, o.Seq = class.Spec, class.Inputs, class.Size, class.Seq
	if config, ok := strings.CutPrefix(class.Spec, "hf:"); ok {
		o.Spec = "hf:" + path + ".json"
		if err := os.WriteFile(path+".json", []byte(config), 0o600); err != nil {
			return err
		}
	}
	if o.app.localCuDNN != nil { // which plans of other batch sizes ask about convolutions
		if err := o.app.localCuDNN.Remember(o.Python); err != nil {
			return err
		}
	}
	compiling := o.startCompile(ctx)
	defer compiling.stop()
	command := m.Name
	if words := m.Canonical(c).Settings.Assignments(); len(words) > 0 {
		command += " --set " + strings.Join(words, " --set ")
	}
	return writeCompiledSteps(o, compiling, command, path)
}
