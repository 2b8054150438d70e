package step

import (
	"context"
	"sync"
)

// Remembered runs trials as [Local] does and keeps their results, without the recordings: whoever asks for an equal
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

// Plain is the result as it comes from elsewhere: without the trial and its recording, which whoever asked has.
func (r *Result) Plain() *Result {
	plain := *r
	plain.trial, plain.Also = Trial{}, nil
	for _, other := range r.Also {
		plain.Also = append(plain.Also, other.Plain())
	}
	return &plain
}
