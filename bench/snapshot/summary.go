package snapshot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Summary is what a snapshot says of one device. All amounts are bytes.
type Summary struct {
	Device int
	// At the moment of the snapshot.
	Allocated, Requested, Reserved int64
	// Peaks over the recorded events, at least the amounts above. Recorded
	// sizes are as requested, so PeakAllocated rounds them as the allocator
	// does and leaves out what it could not split off.
	PeakAllocated, PeakReserved int64
	// Traced is the number of events behind the peaks; with none, the peaks are
	// only the moment's.
	Traced int
	// OOMs is how often an allocation failed.
	OOMs int
	// LargestFree is the largest free block, Free all of them.
	LargestFree, Free int64
	Segments          int
	// Categories are the allocated bytes by what the stack says they are for.
	Categories []Category
	// Largest are the largest blocks in use, the largest first.
	Largest []Block
}

// Category is the memory of one purpose.
type Category struct {
	Name  string
	Bytes int64
}

// Fragmentation is the share of the free memory in the cache that the largest
// request that fits there could not use.
func (s Summary) Fragmentation() float64 {
	if s.Free == 0 {
		return 0
	}
	return 1 - float64(s.LargestFree)/float64(s.Free)
}

// largestShown is how many blocks a summary has.
const largestShown = 10

// Of sums up a device.
func (s *Snapshot) Of(device int) Summary {
	out := Summary{Device: device}
	by := map[string]int64{}
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
				by[category(b)] += b.Size
				out.Largest = append(out.Largest, b)
			case b.Free():
				out.Free += b.Size
				out.LargestFree = max(out.LargestFree, b.Size)
			}
		}
	}
	slices.SortStableFunc(out.Largest, func(a, b Block) int { return cmp.Compare(b.Size, a.Size) })
	out.Largest = slices.Clip(out.Largest[:min(len(out.Largest), largestShown)])
	for name, bytes := range by {
		out.Categories = append(out.Categories, Category{name, bytes})
	}
	slices.SortFunc(out.Categories, func(a, b Category) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Name, b.Name))
	})
	out.PeakAllocated, out.PeakReserved = out.Allocated, out.Reserved
	if device < len(s.Traces) {
		out.peaks(s.Traces[device])
	}
	return out
}

// Only sums up the one device that has memory; several are a [*FormatError] about
// the file called name.
func (s *Snapshot) Only(name string) (Summary, error) {
	devices := s.Devices()
	if len(devices) != 1 {
		return Summary{}, &FormatError{name, fmt.Sprintf("has memory of %d devices, want one", len(devices))}
	}
	return s.Of(devices[0]), nil
}

// peaks goes back from the moment of the snapshot, whose bytes are known,
// through the events before it.
func (s *Summary) peaks(events []Event) {
	allocated, reserved := s.Allocated, s.Reserved
	s.Traced = len(events)
	for _, e := range slices.Backward(events) {
		s.PeakAllocated, s.PeakReserved = max(s.PeakAllocated, allocated), max(s.PeakReserved, reserved)
		switch e.Action {
		case "alloc":
			allocated -= rounded(e.Size)
		case "free_completed", "free":
			allocated += rounded(e.Size)
		case "segment_alloc", "segment_map":
			reserved -= e.Size
		case "segment_free", "segment_unmap":
			reserved += e.Size
		case "oom":
			s.OOMs++
		}
	}
	s.PeakAllocated, s.PeakReserved = max(s.PeakAllocated, allocated), max(s.PeakReserved, reserved)
}

// rounded is what the allocator makes of a request: a multiple of 512 bytes.
func rounded(n int64) int64 { return max(512, (n+511)/512*512) }

// signs are what a stack has somewhere if a block is for a purpose, the more
// telling first.
var signs = []struct{ category, file, name string }{
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

// category guesses from the stack what a block is for.
func category(b Block) string {
	if len(b.Frames) == 0 {
		return "no stack recorded"
	}
	for _, sign := range signs {
		for _, f := range b.Frames {
			if strings.Contains(f.File, sign.file) && strings.Contains(f.Name, sign.name) {
				return sign.category
			}
		}
	}
	return "other"
}
