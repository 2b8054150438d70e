package script

import (
	"cmp"
	"context"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/pattern"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
)

// The ways in which the saving of a change was determined.
const (
	triedSource    = "tried"
	replayedSource = "replayed"
	estimateSource = "estimate"
)

// noGrad is the change that is proposed for scripts without a backward pass.
const noGrad = "torch.no_grad() or inference_mode(), since no backward pass uses the graphs"

// maxRetryTime limits the second run of a script, in which the hook tries changes; twice that on a loaded machine.
const maxRetryTime = 20 * time.Second

// TryChanges runs the command again for a few steps in which the hook tries memory-saving changes. It does so only if
// the first run lasted less than maxRetryTime of processor time and ended before its hook had tried all changes.
// Results are added to the first run's.
func (o *Outcome) TryChanges(ctx context.Context) error {
	all := len(o.eventsOfRank("tried")) > 0 && len(o.eventsOfRank("cut")) == 0
	graphs := o.Longest > 0 && o.mayKeepUnusedGraphs()
	if !o.EndEvent().Untried && !graphs || all || o.Kind() != Fits || o.KeepFiles || o.Device != "" ||
		min(o.Seconds, o.CPUSeconds) > maxRetryTime.Seconds() {
		return nil
	}
	c := o.Command
	c.Steps, c.Brief, c.NoGrad, c.Timeout = max(2, highestPhase(o.mergedPhases()).Step), true, graphs, 2*maxRetryTime
	c.Stdin, c.Stdout, c.Stderr, c.OnEvent = nil, nil, nil, nil
	again, err := Run(ctx, c)
	if err != nil {
		return err
	}
	o.events = slices.DeleteFunc(o.events, func(e Event) bool { return e.Name == "tried" })
	changed := again.eventsOfRank("tried")
	if graphs && again.Kind() == Fits {
		changed = []Event{{
			Name: "tried", Text: noGrad, Allocated: o.EndEvent().Allocated, PeakAllocated: again.EndEvent().Allocated,
		}}
	}
	for _, e := range changed {
		e.PID = o.TrainingProcess()
		o.events = append(o.events, e)
	}
	return nil
}

// turnsAutogradOff matches source code that runs something without recording autograd graphs.
var turnsAutogradOff = pattern.Lazy(`no_grad|inference_mode|set_grad_enabled|requires_grad(_\(| *= *)False`)

// mayKeepUnusedGraphs reports whether a script without a backward pass may record autograd graphs: it has weights, and
// the file that allocated the most bytes at the peak never turns autograd off.
func (o *Outcome) mayKeepUnusedGraphs() bool {
	weight := func(b program.Buffer) bool { return b.Class == program.Weights }
	backward := func(e Event) bool { return e.Phase == "backward" }
	if o.Program == nil || !slices.ContainsFunc(o.Program.Buffers, weight) || slices.ContainsFunc(o.marks(), backward) {
		return false
	}
	most := append(step.LiveAtPeak(o.Program).Lines(1), report.Component{})
	_, _, file := sourceLine(most[0].Name)
	return !turnsAutogradOff().MatchString(file)
}

// WithoutTrials is the remedy for a peak of PyTorch's trials of convolution algorithms. On a GPU without room for a
// trial's workspace PyTorch leaves the trial out.
const WithoutTrials = "torch.backends.cudnn.benchmark = False, whose trials of algorithms have the peak"

// minSavingShare is the share of the peak below which a saving is not reported.
const minSavingShare = 0.01

// remedies returns changes that would reduce the memory of a run: changes that the hook tried in further steps, replays
// with other allocator settings, and estimates from the breakdown of the peak.
func (o *Outcome) remedies(ctx context.Context, run *report.Run, held step.LiveBuffers) ([]report.Remedy, error) {
	var all []report.Remedy
	add := func(what, how string, saves int64) {
		if float64(saves) >= minSavingShare*float64(run.Reserved) {
			all = append(all, report.Remedy{What: what, How: how, Saves: saves})
		}
	}
	other := peakBesideTraining(run.Phases)
	for _, e := range o.eventsOfRank("tried") {
		if e.Text != "" {
			add(e.Text, triedSource, min(e.Allocated-e.PeakAllocated, run.Allocated-other))
		} else if o.EndEvent().Benchmark {
			add(WithoutTrials, triedSource, min(run.Allocated-e.Allocated, run.Allocated-other))
		}
	}
	for _, e := range o.eventsOfRank("estimate") {
		add(e.Text, estimateSource, e.Allocated)
	}
	evaluates := func(p *program.Phase) bool { return p.Name == "evaluation" }
	conf, saved := o.allocator(), step.CheckpointCopies(o.Program)
	kept, line := step.LiveAtPeakOf(o.Program, evaluates).RepeatedLine(3, o.EndEvent().Graded != "")
	without := map[string]step.LiveBuffers{evaluationRemedy(o.EndEvent().Graded, line): kept}
	for _, change := range codeRemedies {
		if bytes, line := bytesOfLines(held, change.line(), change.near()); bytes > 0 {
			add(change.what+" ("+line+")", estimateSource, min(bytes, run.Allocated-other))
		}
	}
	for _, most := range saved.Lines(1) {
		without["copies for the checkpoint on the host, one parameter after the other ("+most.Name+")"] = saved
	}
	for what, buffers := range without {
		there, err := buffers.PeaksWithout(ctx, step.WithUnlimitedMemory(o.GPU), conf)
		if err != nil {
			return nil, err
		}
		if there != nil {
			add(what, replayedSource, run.Reserved-there.Reserved)
		}
	}
	if !conf.Expandable && o.Stubs != "" {
		conf.Expandable = true
		there, err := step.Simulate(ctx, o.Program, step.WithUnlimitedMemory(o.GPU), conf, 0)
		if err != nil {
			return nil, err
		}
		add("PYTORCH_ALLOC_CONF="+report.ExpandableSegments, replayedSource, run.Reserved-there.Max.Reserved)
	}
	slices.SortStableFunc(all, func(a, b report.Remedy) int {
		return cmp.Or(cmp.Compare(b.Saves, a.Saves), cmp.Compare(a.What, b.What))
	})
	budget := planner.Budget{Memory: o.GPU.Memory, Margin: planner.DefaultMargin}
	for i := range all {
		then := run.Device - all[i].Saves
		all[i].NeedAfter = report.Interval{Bytes: then, Low: then, High: then}
		all[i].Unsafe = report.Reason(budget.Judge(deviceNeed(budget, run.Context, then-run.Context)))
	}
	return all, nil
}

// evaluationRemedy names the change that frees what evaluations keep: graphs made on the source line graded, or if that
// is empty, outputs allocated on a line.
func evaluationRemedy(graded, line string) string {
	if graded != "" {
		return "torch.no_grad() for the evaluation, whose batches keep graphs (" + graded + ")"
	}
	return "outputs of the evaluation brought to the host batch by batch (" + line +
		"; eval_accumulation_steps of a Trainer)"
}

// peakBesideTraining returns the peak of phases outside of training steps. Work after an evaluation in the same step
// counts as evaluation, since it uses the evaluation's outputs.
func peakBesideTraining(phases []report.Phase) (most int64) {
	for _, p := range phases {
		evaluates := func(q report.Phase) bool { return q.Step == p.Step && q.Name == "evaluation" }
		if len(phases) > 1 && (!isTraining(p) || slices.ContainsFunc(phases, evaluates)) {
			most = max(most, p.PeakAllocated)
		}
	}
	return most
}

// codeRemedies are changes of source lines: lines that match line and have a neighboring line that matches near.
var codeRemedies = []struct {
	what       string
	line, near func() *regexp.Regexp
}{
	{
		"F.scaled_dot_product_attention in place of scores and masks",
		pattern.Lazy(`\b(masked_fill|softmax|baddbmm|where)_?\(`), pattern.Lazy(`(?i)att(n|en[dt]|_|\b)|\bqkv\b`),
	},
	{
		"one tensor after the other, or a _foreach function that ends in _, in place of copies of all",
		pattern.Lazy(`\b_foreach_\w*[a-z0-9]\(`), pattern.Lazy(``),
	},
	{
		"torch.cdist in place of the differences of all pairs",
		pattern.Lazy(`(unsqueeze\(-?\d\)|None[^]]*\]) - [\w.]+(\.unsqueeze\(-?\d\)|\[[^]]*None)`),
		pattern.Lazy(`\b(norm|sum|pow|square)\(`),
	},
}

// sourceLocation matches file:line:function, with groups for the file and the line.
var sourceLocation = pattern.Lazy(`^(.*):(\d+):[^:]*$`)

// contextLines is the number of lines before and after a line that count as the same computation.
const contextLines = 8

// bytesOfLines returns the bytes that matching lines of the user's code hold, and the line that holds the most.
func bytesOfLines(held step.LiveBuffers, line, near *regexp.Regexp) (sum int64, most string) {
	for _, c := range held.Lines(20) {
		if text, around, _ := sourceLine(c.Name); line.MatchString(text) && near.MatchString(around) {
			if sum += c.Bytes; most == "" {
				most = c.Name
			}
		}
	}
	return sum, most
}

// sourceLine returns the text of a line (file:line:function), the lines around it, and the file's; empty if unreadable.
func sourceLine(where string) (line, near, file string) {
	parts := sourceLocation().FindStringSubmatch(where)
	if parts == nil {
		return "", "", ""
	}
	text, _ := os.ReadFile(parts[1]) // which may be gone
	number, err := strconv.Atoi(parts[2])
	lines := strings.Split(string(text), "\n")
	if err != nil || number < 1 || number > len(lines) {
		return "", "", ""
	}
	around := lines[max(0, number-1-contextLines):min(len(lines), number+contextLines)]
	return lines[number-1], strings.Join(around, "\n"), string(text)
}
