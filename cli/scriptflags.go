package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/internal/shellword"
	"github.com/vprof/vprof/profiler/device"
)

// placeholder matches a placeholder for a value in a command: {batch}, or a name of --set.
var placeholder = regexp.MustCompile(`\{[A-Za-z_][\w.-]*\}`)

// useScript stores a command to run, for verbs that can run one.
func (f *caseFlags) useScript(cmd *cobra.Command, words []string) error {
	if !slices.Contains([]string{"sweep", "fit", "smoke"}, cmd.Name()) {
		return usagef("a command with %s is run by sweep, fit and smoke; write a number in its place for vprof run",
			placeholder.FindString(strings.Join(words, " ")))
	}
	f.script = words
	return nil
}

func settingValues(settings []string) map[string]string {
	values := map[string]string{}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		values[name] = value
	}
	return values
}

func fillPlaceholders(words []string, values map[string]string) ([]string, error) {
	var missing error
	filled := make([]string, len(words))
	for i, w := range words {
		filled[i] = placeholder.ReplaceAllStringFunc(w, func(mark string) string {
			value, known := values[strings.Trim(mark, "{}")]
			if !known {
				how := "--set " + strings.Trim(mark, "{}") + "=VALUE"
				if mark == "{batch}" {
					how = "--batch"
				}
				missing = usagef("the command contains %s; set its value with %s", mark, how)
			}
			return value
		})
	}
	return filled, missing
}

// scriptAsModelError returns an error for a script in place of a model, which tells how to run it; nil if words name no
// script.
func scriptAsModelError(cmd *cobra.Command, words []string) error {
	at := slices.IndexFunc(words, func(w string) bool { return filepath.Ext(w) == ".py" })
	if i := slices.Index(words, "-m"); at < 0 && 0 < i && i+1 < len(words) {
		at = i + 1
	}
	if at < 0 {
		return nil
	}
	command := strings.Join(words, " ")
	if at == 0 {
		command = "python " + command
	}
	command = "-- " + command
	if gpu := cmd.Flag("gpu"); gpu != nil && gpu.Changed {
		command = "--gpu " + shellword.Quote(gpu.Value.String()) + " " + command
	}
	return usagef("%s is a script, which %s cannot read; run it on a simulated GPU with \"vprof run %s\"%s", words[at],
		cmd.CommandPath(), command, phrase.If(cmd.Name() == "fit", "; write {batch} for its batch size, and fit finds "+
			"the largest"))
}

// batchRuns runs a command at one batch size after the other.
type batchRuns struct {
	app     *app
	words   []string
	values  map[string]string
	gpu     device.GPU
	all     *report.Report
	tried   map[int]script.BatchRun
	runTime time.Duration // all of them
}

// runBatch runs the command at a batch size, once.
func (b *batchRuns) runBatch(ctx context.Context, batch int) (script.BatchRun, error) {
	if sized, done := b.tried[batch]; done {
		return sized, nil
	}
	b.values["batch"] = strconv.Itoa(batch)
	words, err := fillPlaceholders(b.words, b.values)
	if err != nil {
		return script.BatchRun{}, err
	}
	o := &runOptions{app: b.app, quiet: true}
	o.out.reportFormat = report.Table
	bar, began := startProgress(b.app, false), time.Now()
	tell := func(what string) {
		bar.step(what, 0, 0)
		if !b.app.quiet && !terminal(b.app.stderr) {
			fmt.Fprintf(b.app.stderr, "vprof: %s\n", what)
		}
	}
	what := fmt.Sprintf("run %d: batch %d%s", len(b.tried)+1, batch, b.remainingTime())
	tell(what)
	outcome, err := o.execute(ctx, script.Command{
		Args: words, GPU: b.gpu, Steps: defaultSteps, Longest: maxSearchTime, GPUs: 1,
		OnEvent: func(e script.Event) {
			if e.Name == "busy" {
				tell(what + ", " + e.Text)
			}
		},
	})
	bar.end()
	b.runTime += time.Since(began)
	if err != nil {
		return script.BatchRun{}, err
	}
	r, err := outcome.Report(ctx)
	if err != nil {
		return script.BatchRun{}, err
	}
	ended := outcomeError(outcome, r)
	if g := r.Script.Growth; g.Fills() { // whatever the batch, it ends
		return script.BatchRun{}, negativeVerdict{fmt.Errorf("batch %d: the script %v", batch, g)}
	} else if g != nil {
		r.Points[0].Run.Reserved += g.RestBytes
		r.Points[0].Run.Device += g.RestBytes
	}
	if ended != nil && !errors.As(ended, new(negativeVerdict)) {
		return script.BatchRun{}, fmt.Errorf("batch %d: %w", batch, ended)
	}
	b.tried[batch] = outcome.BatchRun(batch, r)
	b.add(r, batch)
	return b.tried[batch], nil
}

// usualSearchRuns is the number of runs that a search for the largest batch usually needs.
const usualSearchRuns = 4

// remainingTime formats the time that the remaining runs of a search may take, from the time of its runs so far; if
// there are already more runs than usual, the time of one run.
func (b *batchRuns) remainingTime() string {
	if len(b.tried) == 0 {
		return ""
	}
	each, more := b.runTime/time.Duration(len(b.tried)), usualSearchRuns-len(b.tried)
	if more <= 0 {
		return fmt.Sprintf(", about %v a run", each.Round(time.Second))
	}
	return fmt.Sprintf(", about %v left", (each * time.Duration(more)).Round(time.Second))
}

func (b *batchRuns) add(r *report.Report, batch int) {
	for i := range r.Points {
		r.Points[i].Batch = batch
	}
	if b.all == nil {
		b.all = r
		r.Script = nil
		return
	}
	b.all.Points = append(b.all.Points, r.Points...)
	b.all.Warnings = append(b.all.Warnings, r.Warnings...)
	slices.SortFunc(b.all.Points, func(p, q report.Point) int { return p.Batch - q.Batch })
}

// runUntilFull runs batch sizes, up to the first that does not fit.
func (b *batchRuns) runUntilFull(ctx context.Context, batches []int) error {
	for i, batch := range batches {
		sized, err := b.runBatch(ctx, batch)
		if err != nil {
			return err
		}
		if sized.Reserved == 0 && i+1 < len(batches) {
			b.all.Stopped = &report.Stopped{Batch: batch, Left: batches[i+1:], Reason: "out of memory"}
			return nil
		}
	}
	return nil
}

func runSweepScript(ctx context.Context, o *sweepOptions) error {
	batches, err := o.batch.sizes([]int{1})
	if err != nil {
		return err
	}
	return runScripts(o.app, &o.c, &o.target, &o.out, func(b *batchRuns) error {
		return b.runUntilFull(ctx, batches)
	})
}

// runFitScript fits a command with {batch}.
func runFitScript(ctx context.Context, o *fitOptions) error {
	budget, err := o.budget.budget()
	if err != nil {
		return err
	}
	return runScripts(o.app, &o.c, &o.target, &o.out, func(b *batchRuns) error {
		try := func(batch int) (script.BatchRun, error) { return b.runBatch(ctx, batch) }
		found, err := script.LargestBatch(ctx, b.gpu, budget, max(o.multiple, 1), o.maxBatch, try)
		if err != nil {
			return err
		}
		if b.all.Largest = &found; found.Batch == 0 {
			return negativeVerdict{errors.New("no batch size of the command is safe on this GPU")}
		}
		return nil
	})
}

// runScripts runs a command at several batch sizes and shows them together.
func runScripts(a *app, c *caseFlags, target *gpuFlags, out *output, search func(*batchRuns) error) error {
	if target.host != "" {
		return usagef("--host-memory works only with models, because the host memory of a command is not estimated; " +
			"leave it out")
	}
	named, err := target.resolveDevice(false, "--device takes")
	if err == nil && named.onThisMachine {
		err = usagef("--device: a command with {batch} runs only on a simulated GPU; run it without {batch} on a "+
			"real one: vprof run --device %s", target.device)
	}
	if err != nil {
		return err
	}
	gpu, err := target.oneGPU()
	if err != nil {
		return err
	}
	b := &batchRuns{
		app: a, words: c.script, values: settingValues(c.settings.pairs), gpu: gpu, tried: map[int]script.BatchRun{},
	}
	b.values["batch"] = "1"
	if _, err := fillPlaceholders(b.words, b.values); err != nil {
		return err
	}
	out.defaultGPU = target.defaultGPU([]device.GPU{gpu})
	started := a.now().UTC()
	searched := search(b)
	if b.all == nil || errors.Is(searched, context.Canceled) {
		return searched
	}
	a.addProvenance(b.all, started)
	return errors.Join(out.finish(b.all), searched)
}
