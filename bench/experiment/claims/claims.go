// Package claims compares the memory and time that projects' guides state with vprof's estimates.
package claims

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/reference/guides"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/steptime"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

func claimOf(g guides.Guide, c guides.Claim) report.Claim {
	out := report.Claim{
		Guide: g.Title, Project: g.Project, Where: c.Where, Quantity: c.String(), Quote: c.ValueText(),
		Conditions: c.Conditions.String(), IsDoubted: c.IsDoubted, Note: c.Note,
	}
	if c.Batch.From > 0 {
		out.Batch = c.Batch.String()
	}
	switch {
	case c.Of == guides.BatchFits, c.Of == guides.HostBytes:
	case c.Of == guides.StepTime:
		out.Seconds = &report.Seconds{Seconds: c.Duration.High, Low: c.Duration.Low, High: c.Duration.High}
	case c.Value.Share:
		out.Share = &report.ShareRange{Low: c.Value.Low, High: c.Value.High}
	default:
		out.Bytes = &report.ByteRange{Low: int64(c.Value.Low), High: int64(c.Value.High)}
	}
	if c.Baseline != nil {
		out.Baseline = c.Baseline.String()
		if c.Baseline.Batch.From > 0 {
			out.Baseline = cmp.Or(out.Baseline, "batch "+c.Baseline.Batch.String())
		}
	}
	return out
}

// ClaimsFor returns the guides' values for the whole memory of a training step of a case at a batch size on a GPU.
func ClaimsFor(s *step.Setup, gpu device.GPU, batch int) []report.Claim {
	c := s.Case()
	c.Batch = batch
	var out []report.Claim
	for _, m := range guides.MatchingClaims(s.Model(), c, gpu.Name) {
		out = append(out, claimOf(m.Guide, m.Claim))
	}
	return out
}

// AnswersFor returns all values that guides state for a model, each with vprof's estimate for the same conditions. The
// estimate is for the GPU that the guide names, else for gpu. If PyTorch refuses them, the answer is the refusal.
func AnswersFor(
	ctx context.Context, m models.Model, gpu device.GPU, residuals step.ResidualsFunc,
) ([]report.Claim, error) {
	a := &answerer{model: m, residuals: residuals, known: map[caseEstimateKey]*caseEstimate{}}
	var out []report.Claim
	for _, g := range guides.GuidesFor(m.Name) {
		for _, c := range expandStages(m, g.Claims) {
			if !c.IsAbout(m.Name) {
				continue
			}
			claim := claimOf(g, c)
			var err error
			if claim.Answer, err = a.answer(ctx, c, gpu); err != nil {
				return nil, fmt.Errorf("%s: %w", claim.Source(), err)
			}
			out = append(out, claim)
		}
	}
	return out, nil
}

// expandStages replaces a claim about the step time of any stage by one claim for each stage. A range over all stages
// would also contain times that no stage has.
func expandStages(m models.Model, all []guides.Claim) (out []guides.Claim) {
	for _, c := range all {
		if c.Of != guides.StepTime || c.Stage != "" {
			out = append(out, c)
			continue
		}
		for _, c.Stage = range m.Stages {
			out = append(out, c)
		}
	}
	return out
}

// answerer computes vprof's estimates for claims, once for each case and GPU.
type answerer struct {
	model     models.Model
	residuals step.ResidualsFunc
	known     map[caseEstimateKey]*caseEstimate
}

// caseEstimateKey identifies a projection by its case and GPU.
type caseEstimateKey struct {
	c   models.CaseKey
	gpu string
}

// caseEstimate is the estimate of a case on a GPU, with its replay and its parameter counts.
type caseEstimate struct {
	planner.Estimate
	verdict report.Verdict
	run     *replay.Run
	counts  models.Counts
	time    steptime.Estimate
}

// duration returns vprof's estimate of the time that a claim states: of one step, or of the steps over all samples.
func (o *caseEstimate) duration(c guides.Claim, k models.Case) steptime.Estimate {
	if c.Samples == 0 {
		return o.time
	}
	return o.time.Times(math.Ceil(float64(c.Samples) / float64(k.SamplesPerStep(k.Batch))))
}

func (a *answerer) answer(ctx context.Context, c guides.Claim, gpu device.GPU) (*report.Answer, error) {
	if c.GPU != "" {
		var err error
		if gpu, err = device.Lookup(c.GPU); err != nil {
			return nil, err
		}
	}
	out := &report.Answer{GPU: gpu.Name}
	if c.Of == guides.TensorBytes {
		return nil, nil
	}
	for _, k := range a.casesOf(c) {
		seen, err := a.estimateCase(ctx, k, gpu)
		if step.IsRefused(err) {
			out.Refused = err.Error()
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if c.Of == guides.StepTime {
			out.AddTime(report.Seconds(seen.duration(c, k)))
			continue
		}
		value, share := seen.value(c), c.Of == guides.Trainable
		if c.Baseline != nil {
			than, err := a.estimateCase(ctx, c.Baseline.ApplyTo(k), gpu)
			if err != nil {
				return nil, err
			}
			if value, share = than.value(c)-value, c.Value.Share; share {
				value /= max(1, than.value(c))
			}
		}
		out.AddValue(value, share)
		if c.Of == guides.BatchFits {
			out.AddVerdict(seen.verdict)
		}
	}
	return out, nil
}

// casesOf returns the cases that a claim describes: every stage if it names none, both ends of its batch range.
func (a *answerer) casesOf(c guides.Claim) []models.Case {
	k := c.ApplyTo(a.model.DefaultCase())
	k.Accumulate = step.StepsToRecord(max(1, k.Accumulate))
	stages := a.model.Stages
	if c.Stage != "" {
		stages = []string{c.Stage}
	}
	var all []models.Case
	for _, stage := range stages {
		for _, batch := range slices.Compact([]int{k.Batch, max(k.Batch, c.Batch.To)}) {
			k.Stage, k.Batch = stage, batch
			all = append(all, k)
		}
	}
	return all
}

// estimateCase estimates the memory and time of a case on a simulated GPU.
func (a *answerer) estimateCase(ctx context.Context, c models.Case, gpu device.GPU) (*caseEstimate, error) {
	key := caseEstimateKey{c.Key(), gpu.Name}
	if seen := a.known[key]; seen != nil {
		return seen, nil
	}
	setup, err := step.New(a.model, c, step.Evidence{Residuals: a.residuals})
	if err != nil {
		return nil, err
	}
	d, err := judge.JudgeBatch(ctx, setup, gpu, c.Batch)
	if err != nil {
		return nil, err
	}
	defer d.FreeRecordings()
	judged, err := d.Report(ctx)
	if err != nil {
		return nil, err
	}
	load, err := d.KernelLoad(ctx)
	if err != nil {
		return nil, err
	}
	l := d.Loops[0]
	time := steptime.DefaultEfficiency().Time(load)
	seen := &caseEstimate{l.Estimate, judged.Verdict, l.Steps.Run, l.Steps.Counts, time}
	a.known[key] = seen
	return seen, nil
}

// value returns vprof's value of the quantity that a claim states, in bytes or as a share.
func (o *caseEstimate) value(c guides.Claim) float64 {
	if part, ok := c.Of.Component(); ok {
		return float64(o.Components[part])
	}
	switch c.Of {
	case guides.AllocatedBytes, guides.HostBytes: // tensors are as large wherever they lie
		return float64(o.Allocated.Value)
	case guides.ModelStateBytes:
		var sum int64
		for _, class := range []program.Class{program.Weights, program.Gradients, program.OptimizerState} {
			sum += o.Components[class]
		}
		return float64(sum)
	case guides.Trainable:
		return float64(o.counts.Trainable) / float64(max(1, o.counts.Total))
	case guides.AllocatedAfterPhase:
		_, end := o.phaseBytes(c.Phase)
		return float64(end)
	case guides.AddedByPhase:
		begin, end := o.phaseBytes(c.Phase)
		return float64(end - begin)
	case guides.PhasePeak:
		return float64(o.run.PhasePeak(0, c.Phase).Allocated)
	}
	return float64(o.Device.Value)
}

// phaseBytes returns the allocated bytes at the beginning and the end of the last phase of a name.
func (o *caseEstimate) phaseBytes(name string) (begin, end int64) {
	for i, p := range slices.Backward(o.run.Phases) {
		if p.Name != name {
			continue
		}
		if i > 0 {
			begin = o.run.Phases[i-1].End.Allocated
		}
		return begin, p.End.Allocated
	}
	return 0, 0
}
