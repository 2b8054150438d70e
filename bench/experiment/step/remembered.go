package step

import (
	"context"
	"slices"
	"sync"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
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

// recent holds the results of the last settled trials of a setup, since an estimate, its verdict
// and the search for a safe batch ask for the same trial one after the other. Goroutines may
// share it.
type recent struct {
	mu      sync.Mutex
	results []settled // the latest last
	// longest are the steps that the last trial of a case took, if it took more than the usual ones.
	longest map[models.Key]int
}

// mostRecent is how many results are held: a case and the same with another loop, for training
// and with validation.
const mostRecent = 4

// settled is the result of a trial with this key.
type settled struct {
	key    trialKey
	result *Result
}

// trialKey identifies a trial among those of one model that ask for no loads and no further GPUs.
type trialKey struct {
	c                        models.Key
	batch, validation, steps int
	gpu                      trace.GPU
	context                  int64
	replay                   Replay
}

func keyOf(t Trial) trialKey {
	return trialKey{t.setup.c.Key(), t.Batch, t.Validation, t.Steps, RecorderGPU(t.GPU), t.GPU.Context, t.Replay}
}

// get returns the result of a trial, nil if it is not held.
func (r *recent) get(key trialKey) *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, _ := lists.First(r.results, func(s settled) bool { return s.key == key })
	return held.result
}

// put holds a result, in place of the oldest.
func (r *recent) put(key trialKey, result *Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.results) == mostRecent {
		r.results = slices.Delete(r.results, 0, 1)
	}
	r.results = append(r.results, settled{key, result})
}

// steps returns those that the last trial of a case took beyond the usual ones; zero if none did.
func (r *recent) steps(c models.Key) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.longest[c]
}

// took notes the steps that a trial of a case takes.
func (r *recent) took(c models.Key, steps int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.longest == nil {
		r.longest = map[models.Key]int{}
	}
	r.longest[c] = steps
}
