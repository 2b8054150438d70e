package monitor

import "time"

// Seen is the summary of all samples of a board.
type Seen struct {
	GPU        int
	Name, UUID string
	// Samples counts readings, Lost those that failed besides. Gap is the
	// longest time between two: a peak shorter than that may have escaped.
	Samples, Lost int
	Gap           time.Duration
	// First is what the board had in use at the first reading, Peak at most,
	// bytes.
	First, Peak int64
	// WatchedPeak is the most that the watched processes held together, or all
	// if all are watched; zero if NVML does not know them.
	WatchedPeak int64
}

// held is the peak of what is watched.
func (s Seen) held(watched func(int) bool) int64 {
	if watched == nil {
		return s.Peak
	}
	return s.WatchedPeak
}

// Rise is by how much the memory in use rose above that of the first reading.
func (s Seen) Rise() int64 { return s.Peak - s.First }

// Seen is the summary of all samples so far, one for each board.
func (m *Monitor) Seen() []Seen {
	all := make([]Seen, len(m.boards))
	for i, b := range m.boards {
		all[i] = b.seen
	}
	return all
}
