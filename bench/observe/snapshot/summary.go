package snapshot

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/input"
)

// Summary is the memory of one device in a snapshot, in bytes.
type Summary struct {
	// The bytes at the time of the snapshot.
	Allocated, Requested, Reserved int64
	// The peaks over the recorded events, at least the bytes above. For blocks that were allocated before the first
	// event and freed since, only the requested size is known, which is rounded up.
	PeakAllocated, PeakReserved int64
	// Traced is the number of events behind the peaks. Without events, the peaks are the bytes of the snapshot.
	Traced int
	// OOMs counts failed allocations, and Failed is the largest failed request.
	OOMs   int
	Failed int64
	// Failure is the last failed allocation; nil if none failed. Snapshots are written right after a failure, so the
	// blocks in use are those at the failure.
	Failure *Failure
	// Troughs are the allocated bytes at the ends of the recorded steps.
	Troughs []int64
	// LargestFree is the size of the largest free block, Free the size of all free blocks.
	LargestFree, Free int64
	Segments          int
	// Categories are the blocks in use by purpose, as their stacks show it, in the form of Sites.
	Categories []Site
	// Largest are the largest blocks in use, largest first.
	Largest []Block
	// Sites are the lines that allocated the most bytes in use, at most ten, largest first; empty without stacks.
	Sites []Site
	// Modules are the forward methods that allocated the most bytes in use, in the form of Sites.
	Modules []Site
}

// Site is a source line or category, with its blocks in use.
type Site struct {
	Where  string
	Blocks int
	Bytes  int64
}

// Fragmentation returns the share of the free cached memory outside of the largest free block, which is the largest
// request that needs no new segment.
func (s Summary) Fragmentation() float64 {
	if s.Free == 0 {
		return 0
	}
	return 1 - float64(s.LargestFree)/float64(s.Free)
}

// maxLargestBlocks is the number of blocks, and of sites, in a summary.
const maxLargestBlocks = 10

// Summarize returns the summary of a device.
func (s *Snapshot) Summarize(device int) Summary {
	var out Summary
	categories, sites, modules, stacks := map[string]Site{}, map[string]Site{}, map[string]Site{}, stackCache{}
	for _, g := range s.Segments {
		if g.Device != device {
			continue
		}
		out.Segments++
		out.Reserved += g.Total
		for _, b := range g.Blocks {
			switch {
			case b.InUse():
				out.Allocated += b.Size
				out.Requested += b.Requested
				of := stacks.of(b)
				out.Largest = append(out.Largest, b)
				addSite(categories, of.category, b.Size)
				addSite(sites, of.where, b.Size)
				addSite(modules, of.module, b.Size)
			case b.Free():
				out.Free += b.Size
				out.LargestFree = max(out.LargestFree, b.Size)
			}
		}
	}
	slices.SortStableFunc(out.Largest, func(a, b Block) int { return cmp.Compare(b.Size, a.Size) })
	out.Largest = slices.Clip(out.Largest[:min(len(out.Largest), maxLargestBlocks)])
	out.Categories, out.Sites, out.Modules = largestSites(categories), largestSites(sites), largestSites(modules)
	for i := range s.Failures {
		if s.Failures[i].Device == device {
			out.Failure = &s.Failures[i]
		}
	}
	out.PeakAllocated, out.PeakReserved = out.Allocated, out.Reserved
	if device < len(s.Traces) {
		out.replayEvents(newHeap(s, device, s.Traces[device]), s.Traces[device])
	}
	return out
}

// addSite adds a block to a site. Blocks without a site's name are ignored.
func addSite(places map[string]Site, where string, size int64) {
	if where != "" {
		places[where] = Site{where, places[where].Blocks + 1, places[where].Bytes + size}
	}
}

func largestSites(places map[string]Site) []Site {
	all := slices.SortedFunc(maps.Values(places), func(a, b Site) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Where, b.Where))
	})
	return slices.Clip(all[:min(len(all), maxLargestBlocks)])
}

// SummarizeOnlyDevice summarizes the only device that has memory. Several are a [*input.FormatError] naming the file.
func (s *Snapshot) SummarizeOnlyDevice(name string) (Summary, error) {
	devices := s.Devices()
	if len(devices) != 1 {
		return Summary{}, input.FileErrorf(name, "has memory of %d devices: need a snapshot of one", len(devices))
	}
	return s.Summarize(devices[0]), nil
}

// replayEvents replays the events up to the snapshot, where the live bytes are known, and finds the peaks.
func (s *Summary) replayEvents(h *heapReplay, events []Event) {
	s.Traced = len(events)
	// The state before the first event follows from the state at the snapshot.
	var allocated, reserved, high, most int64
	now := []int64{0}
	for _, e := range events {
		a, r := h.applyEvent(e)
		allocated, reserved = allocated+a, reserved+r
		high, most = max(high, allocated), max(most, reserved)
		if a != 0 {
			now = append(now, allocated)
		}
		if e.Action == "oom" {
			s.OOMs++
			s.Failed = max(s.Failed, e.Size)
		}
	}
	before := s.Allocated - allocated
	s.PeakAllocated, s.PeakReserved = before+high, s.Reserved-reserved+most
	for i := range now {
		now[i] += before
	}
	s.Troughs = troughs(now)
}

// troughs returns the local minima of a curve that are at least half as deep as its deepest: the ends of steps.
func troughs(values []int64) []int64 {
	var deepest, high int64
	for _, v := range values {
		high = max(high, v)
		deepest = max(deepest, high-v)
	}
	if deepest == 0 {
		return nil
	}
	var found []int64
	high, low, falling := values[0], values[0], false
	for _, v := range values {
		switch {
		case falling && v <= low:
			low = v
		case falling && 2*(v-low) >= deepest:
			found = append(found, low)
			falling, high = false, v
		case !falling && v >= high:
			high = v
		case !falling && 2*(high-v) >= deepest:
			falling, low = true, v
		}
	}
	if falling {
		found = append(found, low)
	}
	return found
}

// roundSize returns the size to which the allocator rounds a request: a multiple of 512 bytes.
func roundSize(n int64) int64 { return max(512, (n+511)/512*512) }

// frameCategories are texts in a stack that show the purpose of a block, more specific ones first.
var frameCategories = []struct{ category, file, name string }{
	{"workspace", "", "CUDABlas"},
	{"workspace", "", "cudnn"},
	{"optimizer state", "torch/optim/", ""},
	{"gradients", "torch/autograd/", ""},
	{"gradients", "", "backward"},
	{"weights", "torch/nn/modules/module.py", "_apply"},
	{"weights", "torch/nn/modules/module.py", "convert"},
	{"weights", "", "load_state_dict"},
	{"batch data", "torch/utils/data/", ""},
	{"activations", "torch/nn/", ""},
	{"activations", "", "forward"},
}

// stackCache caches the categories of stacks. Blocks share stacks, and searching one takes time.
type stackCache map[*Frame]stackSummary

type stackSummary struct{ category, where, module string }

func (s stackCache) of(b Block) stackSummary {
	if len(b.Frames) == 0 {
		return stackSummary{category: category(b)}
	}
	key := &b.Frames[0]
	of, ok := s[key]
	if !ok {
		of = stackSummary{category(b), b.String(), module(b)}
		s[key] = of
	}
	return of
}

// module returns the innermost forward method on the stack with its file, without the line; empty if there is none.
func module(b Block) string {
	for _, f := range b.Frames {
		if f.Name != "forward" && !strings.HasSuffix(f.Name, ".forward") ||
			strings.HasSuffix(f.File, "torch/nn/modules/module.py") {
			continue
		}
		file := f.File
		if at := strings.LastIndex(file, "torch/nn/"); at >= 0 {
			file = file[at:]
		}
		return f.Name + " of " + file
	}
	return ""
}

func category(b Block) string {
	if len(b.Frames) == 0 {
		return "no stack recorded"
	}
	for _, sign := range frameCategories {
		for _, f := range b.Frames {
			if strings.Contains(f.File, sign.file) && strings.Contains(f.Name, sign.name) {
				return sign.category
			}
		}
	}
	return "other"
}
