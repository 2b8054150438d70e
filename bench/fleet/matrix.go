package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// maxRecordedCases limits the number of recordings (cases times GPU architectures). If there are more, every case is
// recorded for one architecture only.
const maxRecordedCases = 5000

// maxExactCells is the largest number of cells of a matrix whose cells are all recorded separately.
const maxExactCells = 500

// Matrix estimates every unit (a model with a case) on every GPU: which of its batch sizes fits, the need, and the
// largest batch size. A unit is recorded at a few batch sizes, once for all GPUs of an architecture, and interpolated
// at others. In a small matrix, interpolation only selects the batch size of each cell; that size and the next are then
// recorded for the cell's GPU.
func Matrix(ctx context.Context, units []ModelCase, gpus []device.GPU, e step.Evidence,
	tell progress.Func,
) (*report.Matrix, error) {
	cases := lists.Map(units, func(u ModelCase) models.Case { return u.Case })
	kinds, exact := groupGPUs(gpus, len(units)), len(units)*len(gpus) <= maxExactCells
	m := &report.Matrix{
		Schema: report.MatrixSchema, Rows: make([]report.MatrixCell, len(units)*len(gpus)),
		Warnings: step.Unsupported(gpus, cases...),
	}
	if exact {
		m.Notes = append(m.Notes, "the steps of each cell are recorded.")
	} else {
		m.Notes = append(m.Notes,
			fmt.Sprintf("many cells: they are read off the line between recordings at the smallest and the largest "+
				"batch size, once for an architecture, up to 3 %% off; of at most %d cells each is recorded.",
				maxExactCells))
	}
	if len(kinds) == 1 && len(groupGPUs(gpus, 1)) > 1 {
		m.Notes = append(m.Notes,
			fmt.Sprintf("many cases: all are recorded for %s alone, whose convolutions' workspaces may differ from "+
				"the workspaces on other architectures; a plan of at most %d cases records each.",
				gpus[kinds[0][0]].Name, maxRecordedCases/len(groupGPUs(gpus, 1))))
	}
	e.Residuals = cachedResiduals(e.Residuals)
	if e.Trials == nil {
		e.Trials = &step.CachedExecutor{GPUs: gpus}
	}
	return m, progress.Each(ctx, tell, "cases", units, func(ctx context.Context, i int, u ModelCase) error {
		row := m.Rows[i*len(gpus) : (i+1)*len(gpus)]
		for _, kind := range kinds {
			if err := u.estimate(ctx, row, kind, gpus, e, exact); err != nil {
				return err
			}
		}
		return nil
	})
}

// groupGPUs returns the indices of GPUs grouped by compute capability, by which libraries select kernels.
func groupGPUs(gpus []device.GPU, units int) [][]int {
	kinds := step.GroupGPUs(gpus)
	if len(kinds)*units <= maxRecordedCases {
		return kinds
	}
	return [][]int{slices.Concat(kinds...)}
}

// cachedResiduals returns a residuals function that caches its results by model.
func cachedResiduals(of step.ResidualsFunc) step.ResidualsFunc {
	type answer struct {
		allocated, reserved planner.Residual
		err                 error
	}
	var mu sync.Mutex
	known := map[planner.ResidualSubject]answer{}
	return func(s planner.ResidualSubject) (allocated, reserved planner.Residual, err error) {
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

// estimate fills in the cells of a group of GPUs that share recordings.
func (u ModelCase) estimate(ctx context.Context, row []report.MatrixCell, group []int, gpus []device.GPU,
	e step.Evidence,
	exact bool,
) error {
	c := report.CaseOf(u.Model, u.Case)
	for _, i := range group {
		gpu := gpus[i]
		row[i] = report.MatrixCell{
			Model: c.Model, Case: c.PrecisionAndCheckpointing(), GPU: gpu.Name, Device: step.SimName(gpu),
			Title:  gpu.Product,
			Memory: gpu.Memory, RunKind: "estimated", Batch: u.Batches[0],
		}
	}
	var setup *step.Setup
	var samples []planner.Sample
	err := u.Refused
	if err == nil {
		setup, err = step.New(u.Model, u.Case, e)
	}
	if err == nil {
		samples, err = u.replaySamples(ctx, setup, gpus[group[0]])
	}
	if step.IsRefused(err) {
		for _, i := range group {
			row[i].Refused = err.Error()
		}
		return nil
	}
	if err != nil {
		return err
	}
	for _, i := range group {
		if err := u.fillCell(&row[i], setup, gpus[i], samples); err != nil {
			return err
		}
		if !exact {
			continue
		}
		if err := u.fillCellExactly(ctx, &row[i], setup, gpus[i]); step.IsRefused(err) {
			row[i].Refused = err.Error()
		} else if err != nil {
			return err
		}
	}
	return nil
}

// replaySamples returns replays at the smallest and the largest batch size. If there is only one size, it adds a larger
// one, for interpolation. Units that differ only in the number of micro-batches share replays: memory is then the same.
func (u ModelCase) replaySamples(
	ctx context.Context, setup *step.Setup, gpu device.GPU,
) (all []planner.Sample, err error) {
	from, to := u.Batches[0], u.Batches[len(u.Batches)-1]
	if from == to {
		to = min(4*from, models.MaxBatch)
	}
	setup = setup.WithAccumulation(step.StepsToRecord(setup.Case().Accumulate))
	for _, batch := range slices.Compact([]int{from, to}) {
		r, err := setup.Try(ctx, setup.Trial(gpu, batch))
		if err != nil {
			return nil, err
		}
		all = append(all, r.Sample())
		r.Discard()
	}
	return all, nil
}

// fillCellExactly judges the batches of an interpolated cell: the largest safe batch, and the largest of the unit's own
// sizes up to it, or else the smallest of them, with its need.
func (u ModelCase) fillCellExactly(
	ctx context.Context, cell *report.MatrixCell, setup *step.Setup, gpu device.GPU,
) error {
	j := judge.Default(setup, gpu, 0)
	defer j.FreeRecordings()
	begin := planner.Start{Batch: max(1, cell.Largest), IsNear: true}
	var err error
	if cell.Largest, err = j.Largest(ctx, begin, planner.MaxSearchedBatch); err != nil {
		return err
	}
	cell.Capped, cell.Batch = cell.Largest == planner.MaxSearchedBatch, u.largestUpTo(cell.Largest)
	d, err := j.Try(ctx, setup, cell.Batch)
	if err != nil {
		return err
	}
	e, err := d.Report(ctx)
	if err != nil {
		return err
	}
	cell.Fits, cell.Need = e.Verdict, e.Device
	return nil
}

func (u ModelCase) fillCell(
	cell *report.MatrixCell, setup *step.Setup, gpu device.GPU, samples []planner.Sample,
) error {
	p, err := setup.Planner(gpu, samples...)
	if err != nil {
		return err
	}
	j, begin := judge.Default(setup, gpu, 0), planner.Start{Batch: u.Batches[len(u.Batches)-1]}
	if cell.Largest, err = j.LargestByEstimate(p.Estimate, begin, planner.MaxSearchedBatch); err != nil {
		return err
	}
	cell.Capped, cell.Batch = cell.Largest == planner.MaxSearchedBatch, u.largestUpTo(cell.Largest)
	e, err := p.Estimate(cell.Batch)
	cell.Fits, cell.Need = report.Verdict(e.Verdict), step.IntervalOf(e.Device)
	return err
}

// largestUpTo returns the largest of the unit's batch sizes up to a limit, or else the smallest.
func (u ModelCase) largestUpTo(largest int) int {
	batch := u.Batches[0]
	for _, b := range u.Batches {
		if b <= largest {
			batch = b
		}
	}
	return batch
}
