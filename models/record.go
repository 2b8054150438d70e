package models

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

// Record completes a case and records it; see [Model.Complete] and [Model.RecordComplete].
func (m Model) Record(c Case, gpu trace.GPU, o Options) (*Recording, error) {
	c, err := m.Complete(c)
	if err != nil {
		return nil, err
	}
	return m.RecordComplete(c, gpu, o)
}

// RecordComplete builds the model of a complete case and records its training steps. The batch, rank or number of
// micro-batches may have changed since [Model.Complete]; the case is checked again. A data set on the GPU is
// allocated before the model, as one tensor. With [Options.Reordered] it returns nil if there is no other order.
func (m Model) RecordComplete(c Case, gpu trace.GPU, o Options) (rec *Recording, err error) {
	if s := c.Strategy; s != nil && (s.Name == PP || s.Name == DeviceMap) && s.Rank == nil {
		o.NeedsMoreSteps, o.NoKernels = nil, false // ranks are compared by their kernels over the same number of steps
		return m.recordWorstRank(c, gpu, o)
	}
	if err := m.checkCase(c); err != nil {
		return nil, err
	}
	defer func() { rec, err = m.recoverPanic(recover(), o.Context, rec, err) }()
	build := m.Build
	if o.Reordered {
		build = m.Reordered
	}
	trainer, err := build(c)
	if err != nil || trainer == nil {
		return nil, err
	}
	if o.Steps = cmp.Or(o.Steps, c.Steps()); c.FirstStep {
		o.Steps = 1
	}
	release, err := c.Release()
	if err != nil {
		return nil, err
	}
	options := trace.Options{Annotate: o.Annotate, Others: o.Others, Ceiling: o.Ceiling, Further: o.NeedsMoreSteps}
	options.NoKernels = o.NoKernels
	if o.Context != nil {
		options.Done = o.Context.Done()
	}
	tape := trace.New(gpu, rulesForCase(c, release), options)
	tape.KeepInRegions(c.Recompute.KeptOperators())
	if c.Dataset > 0 {
		tape.Hold(tape.New("to", program.Batch, trace.U8, c.Dataset))
		tape.Mark("dataset")
	}
	if c.OtherTrainingBytes > 0 {
		tape.Hold(tape.New("to", program.Weights, trace.U8, c.OtherTrainingBytes))
	}
	if err := trainer.Record(tape, o.Steps); err != nil {
		return nil, err
	}
	rec = &Recording{Case: c, Counts: trainer.Counts(), Steps: max(o.Steps, tape.Step()+1)}
	if v, ok := trainer.(Validator); ok && o.Validation > 0 {
		rec.Validation = rec.Steps
		tape.SetStep(rec.Steps)
		if err := v.Validate(tape, o.Validation); err != nil {
			return nil, err
		}
	}
	rec.Facts = tape.Facts()
	rec.Program, rec.Others = tape.FinishAll()
	if s := c.Strategy; s != nil && s.Name == PP {
		rec.Stretch = s.BubbleFactor(c.GPUs)
	}
	return rec, nil
}

// recoverPanic converts a panic into an error if it stops a recording on purpose or comes from a user's graph, which
// is not fully validated. Other panics continue.
func (m Model) recoverPanic(what any, ctx context.Context, rec *Recording, err error) (*Recording, error) {
	switch what {
	case nil:
		return rec, err
	case trace.ErrStopped:
		return nil, context.Cause(ctx)
	}
	if !m.UserModel {
		panic(what)
	}
	return nil, fmt.Errorf("%s: the graph cannot be recorded: %v; export the model again, and if that does not help, "+
		"this is a bug of vprof (please report it)", m.Name, what)
}

// rulesForCase returns the memory rules of a PyTorch release and of the case's other libraries.
func rulesForCase(c Case, release *stack.Stack) trace.Rules {
	rules := release.Rules()
	if c.CublasWorkspace != "" {
		rules.Products.BLAS = trace.ByCapability{{Value: cublasBytes(c.CublasWorkspace)}}
	}
	rules.TF32 = tf32Policies[c.TF32]
	return rules
}

// recordWorstRank records the different ranks of a pipeline and returns the recording that needs the most memory. Its
// step time is the time of the stage with the most arithmetic; for a device map, the sum over all GPUs.
func (m Model) recordWorstRank(c Case, gpu trace.GPU, o Options) (*Recording, error) {
	var worst *Recording
	most, flops, busiest, all := int64(-1), int64(0), int64(0), int64(0)
	uncast := true
	for _, rank := range m.ranksToRecord(c, gpu) {
		s := *c.Strategy
		s.Rank = &rank
		c.Strategy = &s
		rec, err := m.RecordComplete(c, gpu, o)
		if err != nil {
			return nil, err
		}
		f := rec.Program.FLOPs()
		busiest, all = max(busiest, f), all+f
		uncast = uncast && rec.Facts.Uncast
		n := rec.Program.Peak()
		if n <= most {
			rec.Discard()
			continue
		}
		if worst != nil {
			worst.Discard()
		}
		most, flops, worst = n, f, rec
	}
	switch {
	case flops > 0 && c.Strategy.Name == DeviceMap:
		worst.Stretch = float64(all) / float64(flops)
	case flops > 0:
		worst.Stretch *= float64(busiest) / float64(flops)
	}
	if worst != nil {
		worst.Facts.Uncast = uncast
	}
	return worst, nil
}

// ranksToRecord returns one rank for each kind of work in a pipeline: the first, which holds at least as many
// micro-batches at a time as later ones in any schedule. If the work is unknown, it returns all ranks.
func (m Model) ranksToRecord(c Case, gpu trace.GPU) (ranks []int64) {
	does := m.rankDescriptions(c, gpu)
	stages := c.Strategy.PipelineRanks(c.GPUs)
	// With context parallelism, the last rank of a stage reads the most keys.
	each, last := int64(c.GPUs)/stages, max(0, c.Strategy.CP-1)*max(1, c.Strategy.TP)
	for stage := range stages {
		if does == nil || slices.Index(does, does[stage]) == int(stage) {
			ranks = append(ranks, stage*each+last)
		}
	}
	return ranks
}

// rankDescriptions describes the work of each rank of a pipeline; nil if it is unknown.
func (m Model) rankDescriptions(c Case, gpu trace.GPU) []string {
	trainer, err := m.Build(c)
	release, unknown := c.Release()
	staged, ok := trainer.(RankDescriber)
	if err != nil || unknown != nil || !ok {
		return nil
	}
	scratch := trace.New(gpu, release.Rules(), trace.Options{})
	defer func() { trace.Recycle(scratch.Finish()) }()
	scratch.KeepInRegions(c.Recompute.KeptOperators())
	does, err := staged.DescribeRanks(scratch)
	if err != nil {
		return nil
	}
	return does
}

// Steps returns the number of steps to record so that all further steps would be equal: a first, and one with
// optimizer state. DDP's static graphs need a third, since buckets are rebuilt before it.
func (c *Case) Steps() int {
	switch {
	case c.FirstStep:
		return 1
	case c.Strategy != nil && c.Strategy.StaticGraph:
		return 3
	}
	return 2
}
