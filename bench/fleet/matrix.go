package fleet

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// mostRecorded is how many cases and architectures are recorded for themselves. Beyond
// it, every case is recorded for one architecture only.
const mostRecorded = 5000

// Matrix estimates every unit on every board: which of its batch sizes fits, what that
// needs and which is the largest of all. A unit is recorded at a few batch sizes, once
// for all boards of an architecture, and the rest is read off the line between them.
func Matrix(ctx context.Context, units []Unit, gpus []device.GPU, e step.Evidence, tell progress.Func) (*report.Matrix, error) {
	kinds := kindsOf(gpus, len(units))
	m := &report.Matrix{Schema: report.MatrixSchema, Rows: make([]report.MatrixCell, len(units)*len(gpus)), Warnings: step.Unsupported(gpus)}
	if len(kinds) == 1 && len(kindsOf(gpus, 0)) > 1 {
		m.Notes = append(m.Notes, fmt.Sprintf("many cases: all are recorded for %s alone, whose convolutions' workspaces may differ from those of other architectures; a plan of at most %d cases records each.", gpus[kinds[0][0]].Name, mostRecorded/len(kindsOf(gpus, 0))))
	}
	e.Residuals = remembered(e.Residuals)
	known := &recordings{}
	done := tell.Counting("cases", len(units))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, u := range units {
		g.Go(func() error {
			defer done(1)
			row := m.Rows[i*len(gpus) : (i+1)*len(gpus)]
			for _, kind := range kinds {
				if err := u.estimate(ctx, row, kind, gpus, e, known); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return m, g.Wait()
}

// kindsOf groups boards by what steps depend on: the major compute capability, by which
// libraries choose their kernels.
func kindsOf(gpus []device.GPU, units int) [][]int {
	var kinds [][]int
	at := map[device.Capability]int{}
	for i, gpu := range gpus {
		major := gpu.Capability / 10
		k, seen := at[major]
		if !seen {
			k = len(kinds)
			at[major] = k
			kinds = append(kinds, nil)
		}
		kinds[k] = append(kinds[k], i)
	}
	if len(kinds)*units <= mostRecorded {
		return kinds
	}
	return [][]int{slices.Concat(kinds...)}
}

// remembered asks for the residuals of a model once.
func remembered(of step.Residuals) step.Residuals {
	type answer struct {
		allocated, reserved planner.Residual
		err                 error
	}
	var mu sync.Mutex
	known := map[planner.Subject]answer{}
	return func(s planner.Subject) (allocated, reserved planner.Residual, err error) {
		mu.Lock()
		defer mu.Unlock()
		a, ok := known[s]
		if !ok {
			a.allocated, a.reserved, a.err = of(s)
			known[s] = a
		}
		return a.allocated, a.reserved, a.err
	}
}

// estimate fills in the cells of some boards, which one recording serves.
func (u Unit) estimate(ctx context.Context, row []report.MatrixCell, boards []int, gpus []device.GPU, e step.Evidence, known *recordings) error {
	c := report.CaseOf(u.Model, u.Case)
	for _, i := range boards {
		gpu := gpus[i]
		row[i] = report.MatrixCell{
			Model: c.Model, Case: c.Manner(), GPU: gpu.Name, Device: step.SimName(gpu), Title: gpu.Product, Memory: gpu.Memory, Run: "estimated", Batch: u.Batches[0],
		}
	}
	setup, err := step.New(u.Model, u.Case, e)
	var samples []planner.Sample
	if err == nil {
		samples, err = known.samples(ctx, u, setup, gpus[boards[0]])
	}
	var refused *step.RefusedError
	var impossible *models.CaseError
	if errors.As(err, &refused) || errors.As(err, &impossible) {
		for _, i := range boards {
			row[i].Refused = err.Error()
		}
		return nil
	}
	if err != nil {
		return err
	}
	for _, i := range boards {
		p, err := setup.Planner(gpus[i], samples...)
		if err != nil {
			return err
		}
		if err := u.fill(&row[i], p); err != nil {
			return err
		}
	}
	return nil
}

// recordings are those that were made: units that differ in their number of
// micro-batches alone share them, since all after the second meet the same memory.
type recordings struct {
	mu  sync.Mutex
	all map[recordingOf]*recorded
}

// recordingOf identifies the recordings of a unit.
type recordingOf struct {
	c        models.Key
	gpu      string
	from, to int
}

type recorded struct {
	once    sync.Once
	samples []planner.Sample
	err     error
}

// samples are replays at the smallest and the largest batch size, and so that there is
// a line, at a larger one of a single.
func (k *recordings) samples(ctx context.Context, u Unit, setup *step.Setup, gpu device.GPU) ([]planner.Sample, error) {
	setup = setup.Accumulating(step.RecordedSteps(u.Case.Accumulate))
	from, to := u.Batches[0], u.Batches[len(u.Batches)-1]
	if from == to {
		to = min(4*from, models.MaxBatch)
	}
	key := recordingOf{setup.Case().Key(), gpu.Name, from, to}
	k.mu.Lock()
	if k.all == nil {
		k.all = map[recordingOf]*recorded{}
	}
	r, ok := k.all[key]
	if !ok {
		r = &recorded{}
		k.all[key] = r
	}
	k.mu.Unlock()
	r.once.Do(func() { r.samples, r.err = samplesAt(ctx, setup, gpu, from, to) })
	return r.samples, r.err
}

func samplesAt(ctx context.Context, setup *step.Setup, gpu device.GPU, batches ...int) ([]planner.Sample, error) {
	var samples []planner.Sample
	for _, batch := range slices.Compact(batches) {
		r, err := setup.Try(ctx, setup.Trial(gpu, batch))
		if err != nil {
			return nil, err
		}
		samples = append(samples, r.Sample())
	}
	return samples, nil
}

// fill reads a board's cell off the line.
func (u Unit) fill(cell *report.MatrixCell, p *planner.Planner) error {
	for _, batch := range u.Batches {
		e, err := p.Estimate(batch)
		if err != nil {
			return err
		}
		if batch > u.Batches[0] && e.Verdict != planner.Fits {
			break
		}
		cell.Batch, cell.Fits, cell.Needs = batch, report.Verdict(e.Verdict.String()), step.IntervalOf(e.Device)
	}
	var err error
	cell.Largest, err = planner.Largest(1, planner.Start{Batch: cell.Batch}, models.MaxBatch, p.Memory, func(batch int) (int64, error) {
		e, err := p.Estimate(batch)
		return e.Device.High, err
	})
	return err
}
