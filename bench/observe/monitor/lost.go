package monitor

import (
	"errors"
	"time"

	"github.com/vprof/vprof/profiler/device/nvml"
)

// Pauses between attempts to open NVML again: they double from the first to
// the last, since opening it wakes boards that sleep.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// markLost notes that a board cannot be read.
func (m *Monitor) markLost(b *watchedBoard, now time.Time, why error) {
	b.seen.Lost++
	if !b.lostSince.IsZero() {
		return
	}
	b.lostSince = now
	m.note("gpu %d is lost: %v", b.Index, why)
}

// found notes that a board was read, and what was missed since it was lost.
func (m *Monitor) found(b *watchedBoard, now time.Time) {
	if b.lostSince.IsZero() {
		return
	}
	m.note("gpu %d is back after %s; %d looks missed it, and a peak in that time is not known", b.Index,
		FormatInterval(now.Sub(b.lostSince)), b.missed)
	b.lostSince, b.missed = time.Time{}, 0
	m.pause = 0
}

// reopen opens NVML again if a board was lost at the last look: handles of a
// driver that was loaded anew are of no use. Boards are known by their UUIDs.
func (m *Monitor) reopen(now time.Time) {
	lost := false
	for _, b := range m.boards {
		lost = lost || !b.lostSince.IsZero()
	}
	if !lost || m.source == nil || now.Before(m.retry) {
		return
	}
	m.pause = min(max(2*m.pause, firstPause), lastPause)
	m.retry = now.Add(m.pause)
	// What does not work any more cannot be closed properly either.
	_ = m.Close()
	session, err := m.source()
	if err != nil {
		for _, b := range m.boards {
			b.Reader = unreadable{err}
		}
		return
	}
	m.session = session
	for _, b := range m.boards {
		b.Reader = unreadable{errors.Join(errors.New("NVML does not list it"), session.Missing)}
		for _, anew := range session.Boards {
			if anew.UUID == b.UUID {
				b.Reader = anew.Reader
			}
		}
	}
}

// unreadable is the board in place of one that NVML could not open: every reading is an
// error.
type unreadable struct{ why error }

func (u unreadable) Read() (nvml.Reading, error)        { return nvml.Reading{}, u.why }
func (u unreadable) Memory() (nvml.Memory, error)       { return nvml.Memory{}, u.why }
func (u unreadable) Processes() ([]nvml.Process, error) { return nil, u.why }
