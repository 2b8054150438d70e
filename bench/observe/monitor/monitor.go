// Package monitor watches GPUs through NVML: memory in use, processes, load and temperature. It samples at an interval,
// so a peak between two samples is missed; every result has the longest time between two samples.
package monitor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/profiler/device/nvml"
)

// A GPU is a GPU to watch, with its names.
type GPU struct {
	Index      int
	Name, UUID string
	Reader     Reader
}

// A Reader reads the state of a GPU. Its error means that the GPU or the driver failed, as after a driver reload.
type Reader interface {
	Read() (nvml.Reading, error)
	// Memory and Processes read only the values that a burst of readings needs.
	Memory() (nvml.Memory, error)
	Processes() ([]nvml.Process, error)
}

// A Session is an open NVML with its GPUs.
type Session struct {
	GPUs  []GPU
	Close func() error
	// Missing is the error about GPUs that NVML lists but cannot read.
	Missing error
}

// A Source opens NVML.
type Source func() (Session, error)

// A Round has a sample of each GPU at one time.
type Round struct {
	// Samples has one sample for each GPU, in their order.
	Samples []Sample
	// Notices are messages about GPUs that were lost or are readable again.
	Notices []string
}

// A Monitor watches GPUs. It is not safe for concurrent use.
type Monitor struct {
	gpus    []*watchedGPU
	source  Source
	session Session
	// watched selects the processes to watch; nil selects all.
	watched func(pid int) bool
	notices []string
	// retry is the earliest time at which NVML may be opened again, pause the waiting time after the next failure.
	retry time.Time
	pause time.Duration
}

// watchedGPU is a GPU with its last readings.
type watchedGPU struct {
	GPU
	totals GPUTotals
	// last is the time of the last successful reading, highest the maximum of used memory since the last sample.
	last          time.Time
	highest       int64
	lostSince     time.Time // zero while it can be read
	missed        int       // samples since then
	processes     []Process
	processesPeak map[int]int64
	// doubtfulProcesses reports whether a notice about impossible values was given.
	doubtfulProcesses bool
}

// New returns a monitor of a session's GPUs; Close ends the session. If a GPU cannot be read, source opens NVML again.
// watched selects the processes to watch; nil selects all that use a GPU.
func New(session Session, source Source, watched func(pid int) bool) *Monitor {
	m := &Monitor{session: session, source: source, watched: watched}
	for _, b := range session.GPUs {
		m.gpus = append(m.gpus, &watchedGPU{GPU: b, totals: GPUTotals{GPU: b.Index}, processesPeak: map[int]int64{}})
	}
	return m
}

// Close ends the NVML session.
func (m *Monitor) Close() error {
	if m.session.Close == nil {
		return nil
	}
	err := m.session.Close()
	m.session.Close = nil
	return err
}

// Sample reads every GPU. The sample of an unreadable GPU has the error; NVML is then opened again, after pauses.
func (m *Monitor) Sample(now time.Time) Round {
	m.reopenNVML(now)
	out := Round{Samples: make([]Sample, len(m.gpus))}
	for i, b := range m.gpus {
		r, err := b.Reader.Read()
		if err != nil {
			b.missed++
			m.markGPULost(b, now, err)
			out.Samples[i] = Sample{
				Time: now.UTC(), GPU: b.Index, Name: b.Name, UUID: b.UUID,
				Peak: b.totals.watchedBytes(m.watched), Error: err.Error(),
			}
			continue
		}
		m.markGPUFound(b, now)
		out.Samples[i] = m.sample(b, now, r)
	}
	out.Notices, m.notices = m.notices, nil
	return out
}

// ReadMemory reads only memory, for the peaks of the next sample. Readings a millisecond apart find short peaks.
func (m *Monitor) ReadMemory(now time.Time) {
	for _, b := range m.gpus {
		if !b.lostSince.IsZero() {
			continue // the next sample tries again
		}
		memory, err := b.Reader.Memory()
		var processes []nvml.Process
		if err == nil && m.watched != nil {
			processes, err = b.Reader.Processes()
		}
		if err != nil {
			m.markGPULost(b, now, err)
			continue
		}
		_, watched := m.pickWatched(processes)
		b.countReading(now, memory.Used, watched)
	}
}

// countReading updates the peaks by a reading of memory.
func (b *watchedGPU) countReading(now time.Time, used, watched int64) {
	s := &b.totals
	if s.Samples == 0 {
		s.First = used
	} else {
		s.Gap = max(s.Gap, now.Sub(b.last))
	}
	b.last = now
	s.Samples++
	b.highest = max(b.highest, used)
	s.Peak = max(s.Peak, used)
	s.WatchedPeak = max(s.WatchedPeak, watched)
}

// pickWatched returns the watched processes and the sum of their bytes; -1 if NVML does not report all of these.
func (m *Monitor) pickWatched(all []nvml.Process) (picked []Process, held int64) {
	for _, p := range all {
		if m.watched != nil && !m.watched(p.PID) {
			continue
		}
		picked = append(picked, Process{PID: p.PID, Name: p.Name, Used: p.Used})
		switch {
		case p.Used < 0 || held < 0:
			held = -1
		default:
			held += p.Used
		}
	}
	return picked, held
}

// sample makes a sample from a reading, and adds the reading to the GPU's totals.
func (m *Monitor) sample(b *watchedGPU, now time.Time, r nvml.Reading) Sample {
	processes, watched := m.pickWatched(r.Processes)
	b.countReading(now, r.Memory.Used, watched)
	for i := range processes {
		p := &processes[i]
		b.processesPeak[p.PID] = max(b.processesPeak[p.PID], p.Used)
		p.Peak = b.processesPeak[p.PID]
	}
	m.noticeEnded(b, processes)
	b.processes = processes
	if len(r.Impossible) > 0 && !b.doubtfulProcesses {
		b.doubtfulProcesses = true
		m.addNotice("gpu %d: %s, which no GPU has; such values are left out", b.Index, strings.Join(r.Impossible, ", "))
	}
	s := Sample{
		Time: now.UTC(), GPU: b.Index, Name: b.Name, UUID: b.UUID,
		Total: r.Memory.Total - r.Memory.Reserved, Driver: r.Memory.Reserved, Used: r.Memory.Used, Highest: b.highest,
		Peak: b.totals.watchedBytes(m.watched), Gap: b.totals.Gap.Seconds(),
		GPUPercent: r.GPUPercent, MemPercent: r.MemoryPercent, Celsius: r.Celsius,
		Watts: watts(r.Milliwatts), LimitWatts: watts(r.LimitMilliwatts), SMMHz: r.SMMHz,
		Slowdowns: r.Slowdowns, Processes: processes,
	}
	if m.watched != nil {
		s.Watched = &watched
	}
	b.highest = 0
	return s
}

func watts(milliwatts *int) *float64 {
	if milliwatts == nil {
		return nil
	}
	return new(float64(*milliwatts) / 1000)
}

// noticeEnded adds a notice for each watched process that no longer uses the GPU.
func (m *Monitor) noticeEnded(b *watchedGPU, now []Process) {
	for _, p := range b.processes {
		if slices.ContainsFunc(now, func(q Process) bool { return q.PID == p.PID }) {
			continue
		}
		if m.watched != nil {
			m.addNotice("%s no longer uses gpu %d; it was seen with at most %s", p.Title(), b.Index,
				formatBytes(b.processesPeak[p.PID]))
		}
		delete(b.processesPeak, p.PID)
	}
}

func (m *Monitor) addNotice(format string, args ...any) {
	m.notices = append(m.notices, fmt.Sprintf(format, args...))
}

// formatBytes formats a number of bytes; -1 means that NVML does not report it.
func formatBytes(bytes int64) string {
	if bytes < 0 {
		return "an unknown amount"
	}
	return bytesize.Format(bytes)
}
