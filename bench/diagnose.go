package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/series"
	"github.com/vprof/vprof/bench/snapshot"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// Limits of what counts as a finding. The guides of the recipes give the first
// two; the others leave out what nobody would act on.
const (
	underUsed    = 0.5  // of the board, at the peak
	nearlyFull   = 0.95 // of the board, at the peak
	noticeable   = 256 << 20
	leakP        = 0.001
	cacheOverUse = 1.3  // reserved over allocated
	unsteady     = 0.10 // between the 5 % and the 95 % quantile, of the median
	warmUp       = 0.2  // of the samples, in which caches fill
)

// DiagnoseSeries finds patterns in what a monitor saw.
func DiagnoseSeries(s series.Series) []report.Finding {
	var found []report.Finding
	steady := s.Used[int(warmUp*float64(len(s.Used))):]
	high := series.Quantile(steady, 1)
	growing := false
	if f, ok := leak(s, steady); ok {
		found, growing = append(found, f), true
	}
	p95 := series.Quantile(steady, 0.95)
	if high-p95 > noticeable && high > 1.2*p95 {
		found = append(found, report.Finding{
			Kind: "spike", Problem: true,
			What:     "a few samples need far more than all others: a larger batch (validation, the last one), a longer sequence, a tensor made at once",
			Evidence: []string{fmt.Sprintf("at most %s, but 95 %% of the samples at most %s", size(high), size(p95))},
		})
	}
	// A cache that still fills is not unsteady.
	filled := steady[len(steady)/2:]
	low, top := series.Quantile(filled, 0.05), series.Quantile(filled, 0.95)
	if !growing && top-low > unsteady*series.Median(filled) && top-low > noticeable {
		found = append(found, report.Finding{
			Kind:     "variable input",
			What:     "memory goes up and down from step to step, as with inputs of different lengths",
			Evidence: []string{fmt.Sprintf("in the second half, 90 %% of the samples lie between %s and %s", size(low), size(top))},
		})
	}
	return append(found, use(int64(series.Quantile(s.Used, 1)), s.Total)...)
}

// leak tests for growth that goes on to the end: a cache that fills grows, too,
// but stops.
func leak(s series.Series, steady []float64) (report.Finding, bool) {
	whole, end := series.TrendOf(steady), series.TrendOf(steady[len(steady)/2:])
	growth := whole.PerSample * float64(len(steady)-1)
	if whole.P > leakP || end.P > leakP || growth < noticeable/4 || end.PerSample < whole.PerSample/4 {
		return report.Finding{}, false
	}
	f := report.Finding{
		Kind: "leak", Problem: true,
		What: "memory grows and does not stop: something keeps tensors of earlier steps (a list of losses with their graph, outputs without detach())",
		Evidence: []string{
			fmt.Sprintf("%s over %d samples, %s a sample (Theil-Sen)", size(growth), len(steady), size(whole.PerSample)),
			fmt.Sprintf("probability of such an order without growth: %.2g (Mann-Kendall), in the second half %.2g", whole.P, end.P),
		},
	}
	if left := float64(s.Total) - steady[len(steady)-1]; s.Total > 0 && s.Elapsed > 0 && left > 0 {
		hours := left / whole.PerSample * s.Elapsed.Hours() / float64(len(s.Used)-1)
		f.Evidence = append(f.Evidence, fmt.Sprintf("the board is full in %.1f hours at this rate", hours))
	}
	return f, true
}

// use finds boards that are nearly full or half empty.
func use(peak, total int64) []report.Finding {
	if total <= 0 {
		return nil
	}
	share := float64(peak) / float64(total)
	evidence := []string{fmt.Sprintf("at most %s of %s in use (%.0f %%)", bytesize.Format(peak), bytesize.Format(total), 100*share)}
	switch {
	case share < underUsed:
		return []report.Finding{{Kind: "under-use", What: "less than half of the board is in use; a larger batch would train faster", Evidence: evidence}}
	case share > nearlyFull:
		return []report.Finding{{Kind: "nearly full", Problem: true, What: "hardly anything is left for a longer input or another process", Evidence: evidence}}
	}
	return nil
}

// DiagnoseSnapshot finds what is wrong in a snapshot of PyTorch's allocator.
func DiagnoseSnapshot(s snapshot.Summary) []report.Finding {
	var found []report.Finding
	if s.OOMs > 0 {
		found = append(found, report.Finding{
			Kind: "out of memory", Problem: true, What: "allocations failed",
			Evidence: []string{fmt.Sprintf("%d times in the recorded events", s.OOMs)},
		})
	}
	// What a peak left in the cache is no fragment, so the peaks are compared.
	return append(found, fragmentation(s.PeakAllocated, s.PeakReserved, s.LargestFree)...)
}

// fragmentation finds a cache that is far larger than what is in it. largest is
// the largest free block; zero is unknown.
func fragmentation(allocated, reserved, largest int64) []report.Finding {
	if float64(reserved) < cacheOverUse*float64(allocated) || reserved-allocated < noticeable {
		return nil
	}
	f := report.Finding{
		Kind: "fragmentation", Problem: true,
		What:     "the allocator holds far more than tensors need: free pieces that no request fits, or a cache from before",
		Evidence: []string{fmt.Sprintf("%s reserved, %s allocated", bytesize.Format(reserved), bytesize.Format(allocated))},
	}
	if largest > 0 {
		f.Evidence = append(f.Evidence, fmt.Sprintf("the largest free piece has %s of %s", bytesize.Format(largest), bytesize.Format(reserved-allocated)))
	}
	return []report.Finding{f}
}

// DiagnoseRun finds what is wrong with one run of a report.
func DiagnoseRun(d report.Device, u *report.Run) []report.Finding {
	var found []report.Finding
	if u.OOM != nil {
		found = append(found, report.Finding{Kind: "out of memory", Problem: true, What: "the step does not fit", Evidence: []string{u.OOM.String()}})
	}
	if u.OOM == nil && u.Retries > 0 {
		found = append(found, report.Finding{
			Kind: "cache given back", Problem: true,
			What:     "the step fits only since PyTorch gives back cached memory, which is slow",
			Evidence: []string{fmt.Sprintf("%d times", u.Retries)},
		})
	}
	found = append(found, fragmentation(u.Allocated, u.Reserved, 0)...)
	if u.Others > noticeable {
		found = append(found, report.Finding{
			Kind: "other processes", Problem: true, What: "other processes use the board",
			Evidence: []string{bytesize.Format(u.Others) + " are theirs"},
		})
	}
	if u.OOM == nil {
		found = append(found, use(u.Device+u.Others, d.Memory)...)
	}
	return found
}

// Remedies are what the guides advise, in their order, each with what it would
// change in the device bytes of the lab's case at this batch size. What PyTorch
// would refuse is left out.
func (l *Lab) Remedies(ctx context.Context, gpu device.GPU, batch int) ([]report.Remedy, error) {
	now, err := l.deviceBytes(ctx, gpu, batch)
	if err != nil {
		return nil, err
	}
	half := max(1, batch/2)
	var out []report.Remedy
	try := func(what string, batch int, change func(*models.Case) string) error {
		c := l.c
		conf := change(&c)
		if conf == "" {
			conf = l.allocConf
		}
		other, err := NewLab(l.model, c, conf, l.residuals)
		if err != nil {
			return err
		}
		other.Learn(l.learned)
		then, err := other.deviceBytes(ctx, gpu, batch)
		var refused *RefusedError
		if errors.As(err, &refused) {
			return nil
		}
		if err != nil {
			return err
		}
		out = append(out, report.Remedy{What: what, Saves: now - then})
		return nil
	}
	keep := func(*models.Case) string { return "" }
	if half < batch {
		if err := try(fmt.Sprintf("batch %d instead of %d", half, batch), half, keep); err != nil {
			return nil, err
		}
		micro := 2 * l.c.Accumulate
		if err := try(fmt.Sprintf("batch %d with %d micro-batches a step: as many samples a step as now", half, micro), half,
			func(c *models.Case) string { c.Accumulate = micro; return "" }); err != nil {
			return nil, err
		}
	}
	if l.c.AMP == "" {
		if err := try("autocast in fp16", batch, func(c *models.Case) string { c.AMP = "fp16"; return "" }); err != nil {
			return nil, err
		}
	}
	if !l.c.Checkpointing {
		if err := try("gradient checkpointing", batch, func(c *models.Case) string { c.Checkpointing = true; return "" }); err != nil {
			return nil, err
		}
	}
	if !l.conf.Expandable {
		if err := try("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", batch, func(*models.Case) string { return "expandable_segments:True" }); err != nil {
			return nil, err
		}
	}
	s, err := l.sample(ctx, gpu, batch)
	clear(l.kept)
	// What the cache does not use at the peak is the least that it can spare.
	out = append(out, report.Remedy{What: "torch.cuda.empty_cache(), until the next peak", Saves: s.Slack()})
	return out, err
}

func (l *Lab) deviceBytes(ctx context.Context, gpu device.GPU, batch int) (int64, error) {
	p, err := l.planner(ctx, gpu, []int{batch})
	clear(l.kept)
	if err != nil {
		return 0, err
	}
	e, err := p.Estimate(batch)
	return e.Device.Value, err
}

func size(bytes float64) string { return bytesize.Format(int64(bytes)) }
