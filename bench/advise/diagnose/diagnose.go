// Package diagnose finds problems of a training run in observations: a log of memory over time, a snapshot of PyTorch's
// allocator, or a run of a report.
package diagnose

import (
	"fmt"

	"github.com/vprof/vprof/bench/observe/series"
	"github.com/vprof/vprof/bench/observe/snapshot"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/profiler/device"
)

// Thresholds of findings. The first two come from projects' guides; the others exclude findings too small to act on.
const (
	underUsedShare  = 0.5  // of the GPU, at the peak
	nearlyFullShare = 0.95 // of the GPU, at the peak
	noticeableBytes = 256 << 20
	leakPValue      = 0.001
	cacheToUseRatio = 1.3  // reserved over allocated
	fragmentedShare = 0.05 // of what is reserved
	unsteadyShare   = 0.10 // between the 5 % and the 95 % quantile, of the median
	warmUpShare     = 0.2  // of the samples, in which caches fill
)

// FindInSeries returns the findings in a log of memory over time. GPU sizes that the log lacks come from the catalog.
func FindInSeries(s series.Series) []report.Finding {
	if gpu, err := device.Lookup(s.Product); s.Total == 0 && err == nil {
		s.Total = gpu.Memory
	}
	var found []report.Finding
	steady := s.WatchedBytes[int(warmUpShare*float64(len(s.WatchedBytes))):]
	high := series.Quantile(steady, 1)
	growing := false
	if f, ok := findLeak(s, steady); ok {
		found, growing = append(found, f), true
	}
	p95 := series.Quantile(steady, 0.95)
	if high-p95 > noticeableBytes && high > 1.2*p95 {
		found = append(found, report.Finding{
			Kind: "spike", Problem: true,
			What: "a few samples need far more than all others: a larger batch (validation, the last one), a " +
				"longer sequence, a tensor made at once",
			Evidence: []string{fmt.Sprintf("at most %s, but 95 %% of the samples at most %s",
				bytesText(high), bytesText(p95))},
			Advice: []string{
				"move batches to the GPU one by one, never the data set: tensors are made on the host",
				"validate in model.eval() and under torch.no_grad(), with a smaller batch",
				"vprof smoke checks validation and, with --longest, the longest sample",
			},
		})
	}
	// Growth while the allocator's cache is still filling does not count as unsteady.
	filled := steady[len(steady)/2:]
	low, top := series.Quantile(filled, 0.05), series.Quantile(filled, 0.95)
	if !growing && top-low > unsteadyShare*series.Median(filled) && top-low > noticeableBytes {
		found = append(found, report.Finding{
			Kind: "variable input",
			What: "memory rises and falls from step to step, as with inputs of different lengths",
			Evidence: []string{fmt.Sprintf("in the second half, 90 %% of the samples lie between %s and %s",
				bytesText(low), bytesText(top))},
			Advice: []string{
				"pad to a fixed length (padding: max_length)",
				"lower the batch by 10 to 20 %, for the longest input",
			},
		})
	}
	var others int64
	var evidence phrase.List
	for _, p := range s.Others {
		others += p.Peak
		evidence.If(p.Peak > noticeableBytes/8, "%v had up to %s", p, bytesize.Format(p.Peak))
	}
	if others > noticeableBytes {
		found = append(found, otherProcessFinding(others, evidence))
	}
	return append(found, findGPUUse(s.Peak, s.Total)...)
}

func otherProcessFinding(bytes int64, evidence []string) report.Finding {
	return report.Finding{
		Kind: "other processes", Problem: true, What: "other processes use the GPU", Evidence: evidence,
		Advice: []string{fmt.Sprintf("end them, which frees %s: nvidia-smi or fuser -v /dev/nvidia* lists them",
			bytesize.Format(bytes))},
	}
}

func leakAdvice() []string {
	return []string{
		"keep numbers and not tensors: total += loss.item(), outputs.append(y.detach().cpu())",
		"clear lists of results in each epoch",
		"delete a step's tensors (loss, outputs) before the next one, then torch.cuda.empty_cache()",
	}
}

const leakTitle = "memory grows and does not stop: something keeps tensors of earlier steps (a list of losses with " +
	"their graph, outputs without detach())"

// findLeak reports memory that grows until the end of the log. While a cache fills, memory also grows, but then stops.
func findLeak(s series.Series, steady []float64) (report.Finding, bool) {
	whole, end := series.TrendOf(steady), series.TrendOf(steady[len(steady)/2:])
	growth := whole.PerSample * float64(len(steady)-1)
	if whole.P > leakPValue || end.P > leakPValue || growth < noticeableBytes/4 || end.PerSample < whole.PerSample/4 {
		return report.Finding{}, false
	}
	var evidence phrase.List
	evidence.Add("%s over %d samples, %s a sample (Theil-Sen)",
		bytesText(growth), len(steady), bytesText(whole.PerSample))
	evidence.Add("probability of such an order without growth: %.2g (Mann-Kendall), in the second half %.2g", whole.P,
		end.P)
	evidence.If(s.Process.PID != 0, "%v grows", s.Process)
	left := float64(s.Total) - max(float64(s.Last), s.WatchedBytes[len(s.WatchedBytes)-1])
	hours := left / whole.PerSample * s.Elapsed.Hours() / float64(len(s.WatchedBytes)-1)
	evidence.If(s.Total > 0 && s.Elapsed > 0 && left > 0, "the GPU is full in %.1f hours at this rate", hours)
	return report.Finding{Kind: "leak", Problem: true, What: leakTitle, Advice: leakAdvice(), Evidence: evidence}, true
}

// findGPUUse reports GPUs that are nearly full or half empty.
func findGPUUse(peak, total int64) []report.Finding {
	if total <= 0 || peak <= 0 {
		return nil
	}
	share := float64(peak) / float64(total)
	evidence := []string{fmt.Sprintf("at most %s of %s in use (%.0f %%)", bytesize.Format(peak),
		bytesize.Format(total), 100*share)}
	switch {
	case share < underUsedShare:
		return []report.Finding{{
			Kind: "under-use",
			What: "less than half of the GPU is in use; a larger batch would train faster", Evidence: evidence,
		}}
	case share > nearlyFullShare:
		return []report.Finding{{
			Kind: "nearly full", Problem: true,
			What: "hardly any memory is left for a longer input or another process", Evidence: evidence,
		}}
	}
	return nil
}

// FindInSnapshot returns the findings in a snapshot of PyTorch's allocator; else the peak and the memory in use.
func FindInSnapshot(s snapshot.Summary) []report.Finding {
	var found []report.Finding
	if s.OOMs > 0 {
		found = append(found, findOutOfMemory(s))
	}
	if f, ok := findStepLeak(s); ok {
		found = append(found, f)
	}
	// Free blocks that remain in the cache after a peak are not fragmentation, so the peaks of both are compared.
	found = append(found, findFragmentation(cache{s.PeakAllocated, s.PeakReserved, s.Free, s.LargestFree, s.Failed})...)
	if len(found) > 0 {
		return found
	}
	return []report.Finding{{
		Kind: "no problem",
		What: fmt.Sprintf("tensors held %s at most, the allocator %s", bytesize.Format(s.PeakAllocated),
			bytesize.Format(s.PeakReserved)),
		Evidence: holderLines("line", s.Sites),
	}}
}

// Limits of growth from step to step. The bytes of a snapshot are exact, so small growth counts.
const (
	skippedSteps     = 2 // in which state and caches come to life
	minSteps         = 6 // that a trend needs
	stepLeakPValue   = 0.01
	minStepLeakBytes = 16 << 20
)

// findStepLeak returns a finding if the memory left at the ends of steps grows.
func findStepLeak(s snapshot.Summary) (report.Finding, bool) {
	if len(s.Troughs) < skippedSteps+minSteps {
		return report.Finding{}, false
	}
	ends := lists.Map(s.Troughs[skippedSteps:], func(t int64) float64 { return float64(t) })
	trend := series.TrendOf(ends)
	growth := trend.PerSample * float64(len(ends)-1)
	if trend.P > stepLeakPValue || growth < minStepLeakBytes {
		return report.Finding{}, false
	}
	var evidence phrase.List
	evidence.Add("%d steps leave %s more and more, %s a step (Theil-Sen; probability without growth %.2g, "+
		"Mann-Kendall)", len(ends), bytesText(growth), bytesText(trend.PerSample), trend.P)
	for _, site := range s.Sites {
		evidence.If(site.Blocks >= len(ends)/2, "%d blocks in use, %s, come from %s", site.Blocks,
			bytesize.Format(site.Bytes), site.Where)
	}
	return report.Finding{Kind: "leak", Problem: true, What: leakTitle, Advice: leakAdvice(), Evidence: evidence}, true
}

// cache is the state of PyTorch's caching allocator in bytes. Zero is unknown.
type cache struct {
	allocated, reserved int64 // at their peaks
	// failed is the size of a failed allocation, free the cached memory at that time, largest its largest block.
	free, largest, failed int64
}

// findFragmentation reports a cache that is far larger than its tensors, or that had enough bytes for a failed
// allocation but no block of that size.
func findFragmentation(c cache) []report.Finding {
	over := float64(c.reserved) >= cacheToUseRatio*float64(c.allocated) && c.reserved-c.allocated >= noticeableBytes
	// Every cache is fragmented a little, so a small share is ignored.
	pieces := c.failed > 0 && c.free >= c.failed && c.largest < c.failed &&
		float64(c.free) > fragmentedShare*float64(c.reserved)
	if !over && !pieces {
		return nil
	}
	var evidence phrase.List
	evidence.Add("%s reserved, %s allocated", bytesize.Format(c.reserved), bytesize.Format(c.allocated))
	evidence.If(c.largest > 0, "the largest free block has %s of %s", bytesize.Format(c.largest),
		bytesize.Format(c.free))
	evidence.If(pieces, "%s were requested while %s were free in the cache, in blocks too small",
		bytesize.Format(c.failed), bytesize.Format(c.free))
	return []report.Finding{{
		Kind: "fragmentation", Problem: true, Evidence: evidence,
		What: "the allocator holds far more than tensors need: free blocks that fit no request, or an old cache",
		Advice: []string{
			report.AllocConf + report.ExpandableSegments,
			"torch.cuda.empty_cache() between training and validation, and after each epoch",
		},
	}}
}

// FindInRun returns the findings in one run of a report.
func FindInRun(d report.Device, u *report.Run) []report.Finding {
	var found []report.Finding
	c := cache{allocated: u.Allocated, reserved: u.Reserved}
	if u.OOM != nil {
		found = append(found, report.Finding{
			Kind: "out of memory", Problem: true, What: "the step does not fit",
			Evidence: []string{u.OOM.String()},
		})
		if n := len(u.Phases); n > 0 { // the last one is when it happened
			c.free, c.failed = u.Phases[n-1].Reserved-u.Phases[n-1].Allocated, u.OOM.Requested
		}
	}
	if u.OOM == nil && u.Retries > 0 {
		found = append(found, report.Finding{
			Kind: "cache given back", Problem: true,
			What:     "the step fits only because PyTorch frees cached memory, which is slow",
			Evidence: []string{fmt.Sprintf("%d times", u.Retries)},
		})
	}
	found = append(found, findFragmentation(c)...)
	if u.OtherProcessBytes > noticeableBytes {
		found = append(found,
			otherProcessFinding(u.OtherProcessBytes, []string{bytesize.Format(u.OtherProcessBytes) + " are theirs"}))
	}
	if u.OOM == nil {
		found = append(found, findGPUUse(u.Device+u.OtherProcessBytes, d.Memory)...)
	}
	return found
}

// FindInScript reports memory that a script does not free after a step, and a script that fits without a margin.
func FindInScript(s *report.Script) (found []report.Finding) {
	if s.Unsafe != "" {
		found = append(found, report.Finding{
			Kind: "nearly full", Problem: true, What: "the script fits and is not safe",
			Evidence: []string{s.Unsafe.String() + " of fit and smoke (--safety-margin)"},
		})
	}
	if !s.Growth.Fills() {
		return found
	}
	evidence := phrase.List{s.Growth.String()}
	for _, l := range s.Growth.Lines {
		evidence.Add("%s a step: %s", bytesize.Format(l.Bytes), l.Name)
	}
	return append(found, report.Finding{
		Kind: "leak", Problem: true, What: "memory grows with every step of the script", Evidence: evidence,
		Advice: []string{"keep numbers (.item()), or detached tensors on the host; remove hooks that store tensors"},
	})
}

func bytesText(bytes float64) string { return bytesize.Format(int64(bytes)) }
