package diagnose

import (
	"fmt"
	"math"

	"github.com/vprof/vprof/bench/observe/oomtext"
	"github.com/vprof/vprof/bench/observe/snapshot"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
)

// failedAllocation describes an allocation that failed, from a log or a snapshot. Unknown bytes are zero.
type failedAllocation struct {
	requested, free, cached int64
	// largest is the size of the largest free block in the cache; -1 if unknown.
	largest int64
	// allocated is the number of bytes of live tensors.
	allocated int64
	source    string
	// oldFormat reports whether the message comes from a PyTorch without expandable segments.
	oldFormat bool
}

// missing returns how many bytes were missing, assuming that the cache was not fragmented.
func (s failedAllocation) missing() int64 { return max(0, s.requested-s.free-s.cached) }

// evidence describes the request that failed, and the largest one that would have fitted.
func (s failedAllocation) evidence() []string {
	lines := phrase.List{"asked for " + bytesize.Format(s.requested) + phrase.Prefix(" at ", s.source)}
	if s.free+s.cached == 0 {
		return lines
	}
	lines.Add("%s were free on the device and %s in PyTorch's cache%s", bytesize.Format(s.free),
		bytesize.Format(s.cached), phrase.If(s.largest >= 0, ", in pieces of up to %s",
			bytesize.Format(max(0, s.largest))))
	lines.Add("an allocation of up to %s would have fitted", bytesize.Format(max(s.free, s.largest)))
	missing := s.missing()
	lines.If(missing > 0, "with the cache in one piece, %s would still have been missing", bytesize.Format(missing))
	lines.If(missing == 0, "with the cache in one piece, it would have fitted")
	return lines
}

// advice returns remedies for a shortage, the cheapest first.
func (s failedAllocation) advice() []string {
	var todo phrase.List
	enough, grows := s.cached > 0 && s.cached+s.free >= s.requested, s.allocated+s.requested
	why := "a part of what was missing lay in the cache in pieces"
	if enough {
		why = "the free memory is in pieces, which that avoids"
	}
	todo.If(enough || s.cached >= noticeableBytes, "%s%s: %s%s",
		report.AllocConf, report.ExpandableSegments, why, phrase.If(s.oldFormat, " (from PyTorch 2.1)"))
	todo.If(s.missing() > 0 && grows > s.missing(), "a batch that is smaller by %.0f %% or more, in more "+
		"micro-batches: so much if all that tensors have grows with the batch, which weights and state do not",
		math.Ceil(100*float64(s.missing())/float64(grows)))
	return append(todo, "vprof fit finds the largest batch that is safe", NameTheModel)
}

// NameTheModel is the advice to users who have not named the model to vprof.
const NameTheModel = "--model and --batch with this command show what each remedy would save"

// holderLines formats the code locations that hold the memory, for messages.
func holderLines(of string, places []snapshot.Site) []string {
	var lines phrase.List
	for _, p := range places[:min(len(places), maxHolders)] {
		lines.Add("%s %s holds %s in %s", of, p.Where, bytesize.Format(p.Bytes), phrase.CountText(p.Blocks, "tensor"))
	}
	return lines
}

// maxHolders is the number of listed code locations.
const maxHolders = 5

// findOutOfMemory returns the finding for a snapshot's failed request, with the largest holders and remedies.
func findOutOfMemory(s snapshot.Summary) report.Finding {
	f := report.Finding{Kind: "out of memory", Problem: true, What: "an allocation failed"}
	if s.OOMs > 1 {
		f.What = fmt.Sprintf("allocations failed, %d times; this is the last", s.OOMs)
	}
	short := failedAllocation{requested: s.Failed, cached: s.Free, largest: s.LargestFree, allocated: s.Allocated}
	if s.Failure != nil {
		short.requested, short.free, short.source = s.Failure.Requested, s.Failure.Free, s.Failure.String()
	}
	evidence := phrase.List(short.evidence())
	evidence.If(s.Failed > short.requested, "the largest failed request has %s", bytesize.Format(s.Failed))
	for _, c := range s.Categories[:min(len(s.Categories), maxHolders)] {
		evidence.Add("%s: %s", c.Where, bytesize.Format(c.Bytes))
	}
	evidence.AddTexts(append(holderLines("line", s.Sites), holderLines("module", s.Modules)...)...)
	evidence.If(len(s.Sites) == 0 && s.Allocated > 0,
		"no stacks were recorded; torch.cuda.memory._record_memory_history() before the first step records them")
	f.Evidence, f.Advice = evidence, short.advice()
	return f
}

// FindInErrors returns the findings for messages of PyTorch's OutOfMemoryError.
func FindInErrors(messages []oomtext.Message) []report.Finding {
	var found []report.Finding
	for _, m := range lists.Union(nil, messages...) { // a log repeats itself
		found = append(found, messageFinding(m))
		if m.Others > noticeableBytes {
			found = append(found, otherProcessFinding(m.Others,
				[]string{bytesize.Format(m.Others) + " belonged to them when it failed"}))
			found[len(found)-1].GPU = found[len(found)-2].GPU
		}
	}
	return found
}

// HostMemoryFinding returns the finding for a log line about a process that was killed because host memory ran out.
func HostMemoryFinding(line string) report.Finding {
	return report.Finding{
		Kind: "out of host memory", Problem: true,
		What:     "a process was killed, as the kernel does when host memory (RAM) runs out; it is not GPU memory",
		Evidence: []string{line},
		Advice: []string{
			"request more host memory: sbatch --mem or --mem-per-cpu, resources.limits.memory of a pod",
			"use less of it: fewer DataLoader workers, less offloading to the host, weights loaded by one rank",
		},
	}
}

func messageFinding(m oomtext.Message) report.Finding {
	f := report.Finding{Kind: "out of memory", Problem: true, What: "an allocation failed"}
	switch {
	case m.Rank >= 0:
		f.GPU = fmt.Sprintf("rank %d", m.Rank)
	case m.GPU >= 0:
		f.GPU = fmt.Sprintf("GPU %d", m.GPU)
	}
	if m.Requested == 0 {
		f.What = "the driver or a library had no memory left, outside PyTorch's allocator"
		evidence := phrase.List{"the message has no sizes"}
		evidence.AddTexts(phrase.Prefix("it happened at ", m.Where))
		f.Evidence = evidence
		f.Advice = []string{
			"look for other processes on the GPU: nvidia-smi",
			"leave memory outside PyTorch: torch.cuda.set_per_process_memory_fraction(0.95), or a smaller batch",
		}
		return f
	}
	free := m.Free
	if m.Allowed > 0 {
		free = max(0, min(free, m.Allowed-m.Allocated-m.Cached))
	}
	s := failedAllocation{
		requested: m.Requested, free: free, cached: m.Cached, largest: -1, allocated: m.Allocated, source: m.Where,
		oldFormat: m.OldFormat,
	}
	evidence := phrase.List(s.evidence())
	evidence.If(m.Allocated > 0, "tensors held %s%s%s", bytesize.Format(m.Allocated),
		phrase.If(m.Pools > 0, ", %s of it in private pools (CUDA graphs)", bytesize.Format(m.Pools)),
		phrase.If(m.Total > 0, " of the device's %s", bytesize.Format(m.Total)))
	evidence.If(m.Allowed > 0, "the process may have %s (set_per_process_memory_fraction)", bytesize.Format(m.Allowed))
	beside := m.Process - m.Allocated - m.Cached
	evidence.If(m.Process > 0 && m.Allocated > 0 && beside > noticeableBytes, "%s of the process are outside "+
		"PyTorch's allocator: the CUDA context, libraries, NCCL", bytesize.Format(max(0, beside)))
	f.Evidence = evidence
	f.Advice = append(s.advice(), "a snapshot shows what holds it: torch.cuda.memory._record_memory_history() "+
		"before, torch.cuda.memory._dump_snapshot(\"oom.pickle\") when it fails, then vprof diagnose oom.pickle")
	return f
}

// maxSpread is the accepted relative difference between the peaks of ranks.
const maxSpread = 0.10

// CompareRanks compares the peaks in the snapshots of several ranks; names are the ranks' files.
func CompareRanks(names []string, peaks []int64) []report.Finding {
	if len(peaks) < 2 {
		return nil
	}
	low, high := 0, 0
	for i, p := range peaks {
		if p < peaks[low] {
			low = i
		}
		if p > peaks[high] {
			high = i
		}
	}
	if float64(peaks[high]-peaks[low]) <= maxSpread*float64(peaks[high]) || peaks[high]-peaks[low] < noticeableBytes/4 {
		return nil
	}
	return []report.Finding{{
		Kind: "ranks differ",
		What: "one rank needs far more than another: uneven batches, or work of the first rank alone",
		Evidence: []string{fmt.Sprintf("%s peaks at %s, %s at %s", names[high], bytesize.Format(peaks[high]),
			names[low], bytesize.Format(peaks[low]))},
		Advice: []string{
			"map checkpoints to the rank's own device (map_location), and give all ranks samples of like length",
		},
	}}
}
