package step

import (
	"slices"
	"sync"
)

// recent holds the results of the last settled trials of a setup, since an estimate, its verdict
// and the search for a safe batch ask for the same trial one after the other. Goroutines may
// share it.
type recent struct {
	mu      sync.Mutex
	results []settled // the latest last
}

// mostRecent is how many results are held: a case and the same with another loop, for training
// and with validation.
const mostRecent = 4

// settled is the result of a trial with this key.
type settled struct {
	key    string
	result *Result
}

// get is the result of a trial, nil if it is not held. Its recording is made again where it is
// needed, since that of the first result may be discarded at any time.
func (r *recent) get(key string, t Trial) *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.IndexFunc(r.results, func(s settled) bool { return s.key == key })
	if at < 0 {
		return nil
	}
	result := *r.results[at].result
	steps := result.trial.Steps
	result.trial = t
	result.trial.Steps = steps
	return &result
}

// put holds a result, in place of the oldest.
func (r *recent) put(key string, result *Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.results) == mostRecent {
		r.results = slices.Delete(r.results, 0, 1)
	}
	r.results = append(r.results, settled{key, result})
}
