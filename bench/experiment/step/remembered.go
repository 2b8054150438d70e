package step

import (
	"context"
	"sync"

	"github.com/vprof/vprof/models"
)

// Remembered runs trials as [Local] does and keeps their results, without the recordings: a request for an equal
// trial is answered at once. It is for processes that answer many requests.
type Remembered struct {
	mu      sync.Mutex
	results map[string]*Result
}

// mostRemembered bounds the results that are kept, of which each takes 10 to 100 KiB. When it is reached, all are
// dropped and keeping begins anew.
const mostRemembered = 2048

// Try implements [Executor].
func (m *Remembered) Try(ctx context.Context, t Trial) (*Result, error) {
	key := t.Key()
	m.mu.Lock()
	known := m.results[key]
	m.mu.Unlock()
	if known != nil {
		return known.Plain(), nil
	}
	r, err := Local{}.Try(ctx, t)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.results == nil || len(m.results) == mostRemembered {
		m.results = map[string]*Result{}
	}
	m.results[key] = r.Plain()
	return r, nil
}

// Plain returns the result without the trial and its recording, as another process returns it.
func (r *Result) Plain() *Result {
	plain := *r
	plain.trial, plain.Also = Trial{}, nil
	for _, other := range r.Also {
		plain.Also = append(plain.Also, other.Plain())
	}
	return &plain
}

// settling remembers how many steps trials of a case took until the cache had settled. Goroutines may share it.
type settling struct {
	mu sync.Mutex
	// longest are the steps that the last trial of a case took, if it took more than the usual ones.
	longest map[models.Key]int
}

// steps returns the steps that the last trial of a case took beyond the usual ones; zero if it did not.
func (r *settling) steps(c models.Key) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.longest[c]
}

// took notes the steps that a trial of a case takes.
func (r *settling) took(c models.Key, steps int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.longest == nil {
		r.longest = map[models.Key]int{}
	}
	r.longest[c] = steps
}
