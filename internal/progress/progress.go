// Package progress tells how far long work is.
package progress

import "sync"

// Func is told how far long work is: how many of a total are done, and of
// what. It may be nil. It is called from one goroutine at a time.
type Func func(what string, done, total int)

// Counting returns a function to call when more of a total are done, from any
// goroutine.
func (p Func) Counting(what string, total int) (more func(n int)) {
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
