// Package monitor watches GPUs from outside, through NVML: how full they are,
// who uses them, how busy and how hot they are. It samples, so a peak between
// two samples escapes it; every result says how far apart they were.
package monitor

import (
	"slices"
	"time"

	"github.com/vprof/vprof/profiler/device/nvml"
)

// A Board is a GPU to watch: what [nvml.Board] is, with its names.
type Board struct {
	Index      int
	Name, UUID string
	Reader     Reader
}

// A Reader reads the state of a board. An error is a failure of the board, of
// which later readings may know nothing: a driver that is loaded anew.
type Reader interface {
	Read() (nvml.Reading, error)
}

// Sample is what one look at one board saw. Bytes are integers; what the
// driver does not tell is absent.
type Sample struct {
	Time time.Time `json:"time"`
	GPU  int       `json:"gpu"`
	Name string    `json:"name"`
	UUID string    `json:"uuid"`
	// Total is what programs can have, Used what contexts hold, and Peak the
	// most that any sample saw of what is watched.
	Total int64 `json:"total_bytes"`
	Used  int64 `json:"used_bytes"`
	Peak  int64 `json:"peak_bytes"`
	// Watched is what the watched processes hold; absent if all are watched,
	// -1 if NVML does not tell.
	Watched    *int64          `json:"watched_bytes,omitempty"`
	GPUPercent *int            `json:"gpu_percent,omitempty"`
	MemPercent *int            `json:"memory_percent,omitempty"`
	Celsius    *int            `json:"celsius,omitempty"`
	Watts      *float64        `json:"watts,omitempty"`
	SMMHz      *int            `json:"sm_mhz,omitempty"`
	Slowdowns  []nvml.Slowdown `json:"slowdowns,omitempty"`
	Processes  []Process       `json:"processes,omitempty"`
	// Error says that the board could not be read; all else is then empty.
	Error string `json:"error,omitempty"`
}

// Process is one that uses a board; Used is -1 if NVML does not tell.
type Process struct {
	PID  int    `json:"pid"`
	Name string `json:"name,omitempty"`
	Used int64  `json:"used_bytes"`
}

// Share is how full the board is, from 0 to 1.
func (s Sample) Share() float64 {
	if s.Total == 0 {
		return 0
	}
	return float64(s.Used) / float64(s.Total)
}

// A Monitor watches boards. It is not safe for concurrent use.
type Monitor struct {
	boards []Board
	// watched says which processes count; nil are all.
	watched func(pid int) bool
	peaks   []int64
	last    time.Time
	gap     time.Duration
	samples int
	lost    int
}

// New makes a monitor. Watched says which processes are meant, nil means all
// that use a board.
func New(boards []Board, watched func(pid int) bool) *Monitor {
	return &Monitor{boards: boards, watched: watched, peaks: make([]int64, len(boards))}
}

// Sample looks at every board at once. A board that cannot be read has a
// sample with its error, and the monitor goes on.
func (m *Monitor) Sample(now time.Time) []Sample {
	if m.samples > 0 {
		m.gap = max(m.gap, now.Sub(m.last))
	}
	m.last = now
	m.samples++
	out := make([]Sample, len(m.boards))
	for i, b := range m.boards {
		r, err := b.Reader.Read()
		s := Sample{Time: now.UTC(), GPU: b.Index, Name: b.Name, UUID: b.UUID}
		if err != nil {
			m.lost++
			s.Error, s.Peak = err.Error(), m.peaks[i]
			out[i] = s
			continue
		}
		out[i] = m.fill(i, s, r)
	}
	return out
}

// fill takes over a reading.
func (m *Monitor) fill(i int, s Sample, r nvml.Reading) Sample {
	s.Total, s.Used = r.Memory.Total-r.Memory.Reserved, r.Memory.Used
	s.GPUPercent, s.MemPercent, s.Celsius, s.SMMHz, s.Slowdowns = r.GPUPercent, r.MemoryPercent, r.Celsius, r.SMMHz, r.Slowdowns
	if r.Milliwatts != nil {
		watts := float64(*r.Milliwatts) / 1000
		s.Watts = &watts
	}
	var watched int64
	for _, p := range r.Processes {
		if m.watched != nil && !m.watched(p.PID) {
			continue
		}
		s.Processes = append(s.Processes, Process(p))
		switch {
		case p.Used < 0 || watched < 0:
			watched = -1
		default:
			watched += p.Used
		}
	}
	held := s.Used
	if m.watched != nil {
		s.Watched, held = &watched, watched
	}
	m.peaks[i] = max(m.peaks[i], held)
	s.Peak = m.peaks[i]
	return s
}

// Summary is what a monitor saw in all.
type Summary struct {
	Samples int `json:"samples"`
	// Gap is the longest time between two samples: a peak shorter than that
	// may have escaped.
	Gap time.Duration `json:"longest_gap_ns"`
	// Lost counts readings that failed.
	Lost int `json:"lost"`
	// Peaks are those of the boards, in their order.
	Peaks []int64 `json:"peaks_bytes"`
}

// Summary is what was seen so far.
func (m *Monitor) Summary() Summary {
	return Summary{m.samples, m.gap, m.lost, slices.Clone(m.peaks)}
}
