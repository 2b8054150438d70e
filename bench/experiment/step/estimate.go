package step

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// Planner returns a planner that estimates the case on a GPU by interpolation between samples at some batch sizes.
func (s *Setup) Planner(gpu device.GPU, samples ...planner.Sample) (*planner.Planner, error) {
	known := map[int]planner.Sample{}
	var batches []int
	for _, sample := range samples {
		known[sample.Batch] = sample
		batches = append(batches, sample.Batch)
	}
	curve, err := planner.NewCurve(batches, func(batch int) (planner.Sample, error) { return known[batch], nil })
	if err != nil {
		return nil, err
	}
	modeled := slices.ContainsFunc(samples, func(s planner.Sample) bool { return s.HasModeledWorkspaces })
	c, err := s.Coefficients(gpu, modeled, batches...)
	if err != nil {
		return nil, err
	}
	return &planner.Planner{
		Curve: curve, Coefficients: c,
		Memory: int64(float64(gpu.Memory)*s.conf.MemoryFraction) - s.otherProcessBytes,
	}, nil
}

// Estimate returns the memory need of a replayed sample on a GPU, with its interval.
func (s *Setup) Estimate(gpu device.GPU, sample planner.Sample) (planner.Estimate, error) {
	p, err := s.Planner(gpu, sample)
	if err != nil {
		return planner.Estimate{}, err
	}
	return p.Estimate(sample.Batch)
}

// TryUntilSteady runs a trial with enough steps that a further step needs no more memory; [Result.Spread] may be
// missing. If the allocator's cache grew in the second step, the third step may reuse blocks in another order, and the
// cache may grow again. The first attempt has the number of steps that the case's nearest batch size took, on any GPU
// or in another loop. Without such a number, the recording ends when the cache stops growing.
func (s *Setup) TryUntilSteady(ctx context.Context, t Trial) (*Result, error) {
	t.Replay.NominalMemory = true
	usual := t.setup.c.Steps()
	if usual != steadyStep+1 {
		return s.Try(ctx, t)
	}
	settling := s.evidence.stepCounts
	t.Steps = settling.lookup(t.setup.c, t.Batch)
	for first := true; ; first = false {
		r, err := s.Try(ctx, t)
		if err != nil || r.Run == nil || lastStep(r.Run) != r.Steps-1 {
			return r, err
		}
		enough := usual
		for enough <= r.Steps && cacheGrewIn(r.Run, enough-1) {
			enough++
		}
		if enough == r.Steps || enough < r.Steps && !first || r.Steps == maxSteps && enough > r.Steps {
			settling.remember(t.setup.c, t.Batch, stepCount{t.Steps, moreSteps(r.Steps)})
			return r, nil
		}
		r.Discard()
		t.Steps = moreSteps(enough)
	}
}

// AddSpread replays the step of a result with slightly different sizes and orders, and adds the spread of the peaks to
// the result. It does nothing for a result that has one or was measured on a device.
func (s *Setup) AddSpread(ctx context.Context, r *Result) error {
	if r.Spread.High > 0 || r.Measured != nil {
		return nil
	}
	if r.Run.OOM != nil { // without a limit of memory
		return input.Errorf("%s, batch %d: the step needs more than %s; take a smaller batch or shorter sequences",
			s.model.Name, r.trial.Batch, bytesize.Format(unlimitedMemory))
	}
	how := r.trial.Replay
	how.OmitUnperturbedRun, how.NominalMemory = true, false
	perturbed, err := s.Try(ctx, r.ReplayTrial(how))
	if err == nil {
		r.Spread, r.Reordered = perturbed.Spread, perturbed.Reordered
		r.AdoptRecording(perturbed)
	}
	return err
}

// digestSeed is the seed of digests, which are compared only within one process.
var digestSeed = maphash.MakeSeed()

// AllocationDigest returns a digest of the allocations and frees in the first step of a batch. Cases that differ only
// in a library's release and have the same digest need the same memory. Errors are as in [Setup.Record].
func (s *Setup) AllocationDigest(ctx context.Context, gpu device.GPU, batch int) (uint64, error) {
	c := s.c
	c.Batch, c.Accumulate = batch, StepsToRecord(c.Accumulate)
	rec, err := s.RecordCase(ctx, c, gpu, models.Options{Steps: 1})
	if err != nil {
		return 0, err
	}
	defer rec.Discard()
	digest, p := maphash.Hash{}, rec.Program
	digest.SetSeed(digestSeed)
	for _, in := range p.Instructions {
		if in.Kind == program.Alloc || in.Kind == program.Free {
			b := &p.Buffers[in.Arg]
			maphash.WriteComparable(&digest, in)
			maphash.WriteComparable(&digest, [2]int64{b.Bytes, int64(b.Stream)})
		}
	}
	return digest.Sum64(), nil
}

// maxSteps is the largest number of steps to try until the allocator's cache stops growing.
const maxSteps = 5

// moreSteps returns the [Trial.Steps] for a number of steps; zero for the default number.
func moreSteps(steps int) int {
	if steps == steadyStep+1 {
		return 0
	}
	return steps
}

func lastStep(run *replay.Run) int { return run.Phases[len(run.Phases)-1].Step }

func cacheGrewIn(r *replay.Run, step int) bool {
	before := int64(0)
	for s := -1; s < step; s++ {
		before = max(before, r.PhasePeak(s, "").Reserved)
	}
	return r.PhasePeak(step, "").Reserved > before
}

// Coefficients returns the planner's coefficients for the case on a GPU. They depend on whether convolution workspaces
// are modeled. For a compiled step, they also depend on the batch sizes.
func (s *Setup) Coefficients(gpu device.GPU, modeled bool, batches ...int) (planner.Coefficients, error) {
	unknown := slices.ContainsFunc(s.cases(batches),
		func(c models.Case) bool { return s.model.NotRecordedReason(c) != "" })
	of := planner.ResidualSubject{
		Model: s.model.Name, Release: s.c.ReleaseName(), Partial: s.model.IsPartial, Modeled: modeled,
		Compiled: s.c.Compile && !unknown,
	}
	c, err := s.evidence.Coefficients(gpu, of)
	if unknown {
		c.AdaptToCompile(s.model.ReadsText())
	}
	if r := s.c.Strategy; r != nil && r.Communicators(s.c.GPUs) > 0 {
		c.AddCommunication(planner.CommunicationOf(gpu, r.Communicators(s.c.GPUs)))
	}
	return c, err
}

// cases returns the case at each of the batch sizes, or unchanged if there are none.
func (s *Setup) cases(batches []int) []models.Case {
	if len(batches) == 0 {
		return []models.Case{s.c}
	}
	all := make([]models.Case, len(batches))
	for i, batch := range batches {
		all[i] = s.c
		all[i].Batch = batch
	}
	return all
}

// The smallest saving of device bytes for which reports mention expandable segments.
const (
	minSparedBytes = 256 << 20
	minSparedShare = 0.05
)

// ExpandableNeed estimates the device bytes with expandable segments. It returns nil if they are on already, or if they
// save little compared with e.
func (s *Setup) ExpandableNeed(ctx context.Context, e planner.Estimate, gpu device.GPU,
	r *Result,
) (*report.Interval, error) {
	worth := max(minSparedBytes, int64(minSparedShare*float64(e.Device.Value)))
	if s.conf.Expandable || e.Reserved.Value-e.Allocated.Value < worth {
		return nil, nil
	}
	other, err := s.Try(ctx, r.ReplayTrial(ReplayOptions{Expandable: true, TrainingOnly: true, NominalMemory: true}))
	if err != nil {
		return nil, err
	}
	then, err := s.Estimate(gpu, other.Sample())
	if err != nil || e.Device.Value-then.Device.Value < worth {
		return nil, err
	}
	if err := s.AddSpread(ctx, other); err != nil {
		return nil, err
	}
	if then, err = s.Estimate(gpu, other.Sample()); err != nil {
		return nil, err
	}
	return new(IntervalOf(then.Device)), nil
}

// Spill estimates the host memory that a result's step uses on Windows or WSL2, where the driver allocates host memory
// once the GPU is full. It returns nil if the step fits, if neither system supports the GPU, or if the step's kernels
// are unknown. These systems have no expandable segments.
func (s *Setup) Spill(ctx context.Context, gpu device.GPU, r *Result) (*report.Spill, error) {
	room := gpu.Memory - gpu.Context - s.otherProcessBytes
	if !gpu.DrivesDisplays() || gpu.UnifiedMemory || s.conf.Expandable || s.c.Compile || s.c.Strategy != nil ||
		r.Measured != nil || r.Run.Max.Reserved <= room {
		return nil, nil
	}
	t := r.ReplayTrial(ReplayOptions{
		Spill: true, OtherProcessBytes: s.otherProcessBytes, OmitUnperturbedRun: true,
		NominalMemory: true, TrainingOnly: true,
	})
	t.GPU, t.Timed = gpu, []device.GPU{gpu}
	spilled, err := s.Try(ctx, t)
	if err != nil {
		return nil, err
	}
	onHost := spilled.Spill
	out := &report.Spill{Bytes: onHost.Bytes, Moved: onHost.Moved, Shared: gpu.HostMemory / 2}
	speed, err := s.evidence.Speed(gpu, s.model.Name)
	if load := spilled.Loads[0]; err == nil && load.IsKnown() {
		out.Slowdown = 1 + float64(out.Moved)/hostLinkBandwidth/speed.Time(load).Seconds
	}
	return out, err
}

// Budget completes a budget for a GPU: its Memory is the share of the GPU's memory that the allocator settings allow,
// less the bytes of other processes. It is an error if nothing is left.
func (s *Setup) Budget(b planner.Budget, gpu device.GPU, others int64) (planner.Budget, error) {
	b.Memory = int64(float64(gpu.Memory)*s.conf.MemoryFraction) - others
	if err := b.Check(); err != nil {
		return b, fmt.Errorf("%s: %w", gpu.Name, err)
	}
	return b, nil
}

// EstimateAt converts the memory usage at a point of a result's run to an estimate, corrected by the coefficients, with
// an interval. Only the estimate of the peak includes managed memory, which the driver can move to the host.
func (s *Setup) EstimateAt(gpu device.GPU, r *Result, u replay.Usage) (planner.Estimate, error) {
	sample := r.Sample()
	if u != r.Run.Max {
		sample.Classes, sample.ManagedBytes = assumedBreakdown(sample.Classes, u.Allocated), 0
	}
	if sample.Reserved != u.Reserved { // the spread holds for the peak
		sample.Reserved, sample.Below, sample.Above = u.Reserved, 0, 0
	}
	return s.Estimate(gpu, sample)
}

// assumedBreakdown returns a breakdown for a point of a run other than the peak, where only the allocated bytes are
// known. It assumes that memory unaffected by torch.compile is as large as at the peak, and that the rest is
// activations. Then a point with fewer bytes never has an interval that ends higher.
func assumedBreakdown(peak program.Breakdown, sum int64) (b program.Breakdown) {
	for class, bytes := range planner.EagerBreakdown(peak) {
		b[class] = min(bytes, sum)
		sum -= b[class]
	}
	b[program.Activations] = sum
	return b
}
