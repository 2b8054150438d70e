// Package progress reports the progress of long work.
package progress

import (
	"context"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Func receives the progress of work: how many of a total are done, and of what. It may be nil; calls do not overlap.
type Func func(what string, done, total int)

// Counter returns a function to call when more of a total are done, from any goroutine.
func (p Func) Counter(what string, total int) (more func(n int)) {
	if p == nil {
		return func(int) {}
	}
	var mu sync.Mutex
	done := 0
	p(what, done, total)
	return func(n int) {
		mu.Lock()
		defer mu.Unlock()
		done += n
		p(what, done, total)
	}
}

// Each calls do for every element of a list, concurrently on all cores, and reports the number of finished calls to
// tell. It returns the first error, which also ends the context of the other calls.
func Each[T any](ctx context.Context, tell Func, what string, list []T,
	do func(ctx context.Context, i int, x T) error,
) error {
	done := tell.Counter(what, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, x := range list {
		g.Go(func() error {
			defer done(1)
			return do(ctx, i, x)
		})
	}
	return g.Wait()
}
