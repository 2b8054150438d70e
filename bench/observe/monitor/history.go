package monitor

import (
	"slices"
	"sync"
	"time"
)

// HistorySteps are the lengths of the time steps for which a history keeps entries, shortest first.
var HistorySteps = []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute}

// keptEntries is the number of entries that a history keeps for each length of time steps.
const keptEntries = 600

// NoValue is the entry of a time step without a reading.
const NoValue int64 = -1

// A History keeps the latest samples, and the maximum in each time step for graphs. It is safe for concurrent use.
type History struct {
	mu   sync.Mutex
	gpus []gpuHistory
	last Round
	// notices are the latest notices, with their times.
	notices []Notice
}

// Notice is a message that a GPU was lost or is readable again.
type Notice struct {
	Time time.Time
	Text string
}

// keptNotices is the number of notices that a history keeps.
const keptNotices = 20

type gpuHistory struct {
	used, load series
	processes  map[int]*series
}

// series has the maxima of a value for each length of time steps.
type series [4]ring

// ring has the latest entries for one length of time steps. The entry with index n is stored at n % keptEntries.
type ring struct {
	entries [keptEntries]int64
	// newest is the newest entry's index in time, counted from the zero time. length is the number of entries.
	newest int64
	length int
}

// add adds a value at a time. The entry of each time step keeps the maximum.
func (s *series) add(at time.Time, v int64) {
	for i := range s {
		s[i].add(at.UnixNano()/int64(HistorySteps[i]), v)
	}
}

func (r *ring) add(number, v int64) {
	if r.length == 0 || number > r.newest+keptEntries {
		*r = ring{newest: number - 1}
	}
	for r.newest < number {
		r.newest++
		r.entries[r.newest%keptEntries] = NoValue
		r.length = min(r.length+1, keptEntries)
	}
	if number == r.newest { // a clock that was set back tells nothing
		r.entries[number%keptEntries] = max(r.entries[number%keptEntries], v)
	}
}

// latest returns n entries, ending with index upTo, oldest first. Unknown ones are NoValue.
func (r *ring) latest(n int, upTo int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		number := upTo - int64(n-1-i)
		out[i] = NoValue
		if number <= r.newest && number > r.newest-int64(r.length) {
			out[i] = r.entries[number%keptEntries]
		}
		if i > 1 && out[i] != NoValue && out[i-1] == NoValue {
			out[i-1] = out[i-2]
		}
	}
	return out
}

// Add adds a round of samples.
func (h *History) Add(l Round) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = l
	for len(h.gpus) < len(l.Samples) {
		h.gpus = append(h.gpus, gpuHistory{processes: map[int]*series{}})
	}
	for _, text := range l.Notices {
		h.notices = append(h.notices, Notice{l.Samples[0].Time, text})
	}
	for i, s := range l.Samples {
		if s.Error == "" {
			h.gpus[i].add(s)
		}
	}
	h.notices = h.notices[max(0, len(h.notices)-keptNotices):]
}

func (b *gpuHistory) add(s Sample) {
	b.used.add(s.Time, max(s.Used, s.Highest))
	if s.GPUPercent != nil {
		b.load.add(s.Time, int64(*s.GPUPercent))
	}
	for pid := range b.processes {
		if !slices.ContainsFunc(s.Processes, func(p Process) bool { return p.PID == pid }) {
			delete(b.processes, pid)
		}
	}
	for _, p := range s.Processes {
		if b.processes[p.PID] == nil {
			b.processes[p.PID] = &series{}
		}
		b.processes[p.PID].add(s.Time, p.Used)
	}
}

// A Trace is a part of the history: one entry for each time step, oldest first; NoValue if unknown.
type Trace struct {
	// Used is the memory in bytes of the GPU or of a process. Load is in percent.
	Used, Load []int64
}

// Latest returns the newest round of samples.
func (h *History) Latest() (Round, []Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, slices.Clone(h.notices)
}

// Trace returns the history of a GPU up to a time: n entries of the length HistorySteps[step]. If process is not zero,
// the memory is that process's. Since samples are at irregular intervals, an entry without a sample repeats the
// previous value.
func (h *History) Trace(gpu, process, step, n int, upTo time.Time) Trace {
	h.mu.Lock()
	defer h.mu.Unlock()
	number := upTo.UnixNano() / int64(HistorySteps[step])
	empty := &series{}
	used, load := empty, empty
	if gpu < len(h.gpus) {
		b := &h.gpus[gpu]
		used, load = &b.used, &b.load
		if process != 0 {
			used = b.processes[process]
			if used == nil {
				used = empty
			}
		}
	}
	return Trace{used[step].latest(n, number), load[step].latest(n, number)}
}
