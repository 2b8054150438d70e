package main

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// silence is how long work may take before progress is shown: what people take for at
	// once. Most commands are done before.
	silence = 100 * time.Millisecond
	// pace is the time between two updates.
	pace = 200 * time.Millisecond
)

// progressLine is a line on standard error that says how far long work is and how
// long it will take. It is on a terminal only: a log has no use for it.
type progressLine struct {
	to   io.Writer
	stop chan struct{}
	drew sync.WaitGroup

	mu          sync.Mutex
	what        string
	done, total int
	began       time.Time // of what is being done
	shown       bool
}

// startProgress begins to show progress, unless the user or the terminal does
// not want it. The end must be said.
func startProgress(a *app, quiet bool) *progressLine {
	p := &progressLine{to: a.stderr, stop: make(chan struct{}), began: time.Now()}
	if !quiet && terminal(a.stderr) {
		p.show()
	}
	return p
}

// show draws the line from time to time until the end.
func (p *progressLine) show() {
	p.drew.Go(func() {
		wait := silence
		for {
			select {
			case <-p.stop:
				return
			case <-time.After(wait):
				p.draw(time.Now())
				wait = pace
			}
		}
	})
}

// step says that so many of a total are done.
func (p *progressLine) step(what string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if what != p.what {
		p.began = time.Now()
	}
	p.what, p.done, p.total = what, done, total
}

// end removes the line. Results may follow.
func (p *progressLine) end() {
	close(p.stop)
	p.drew.Wait()
	if p.shown {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}

func (p *progressLine) draw(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown = true
	fmt.Fprintf(p.to, "\r\x1b[K%s", p.line(now.Sub(p.began)))
}

// line returns how far the work is after a time. What is left is taken to go on as
// fast as what is done.
func (p *progressLine) line(elapsed time.Duration) string {
	switch {
	case p.total == 0:
		return fmt.Sprintf("vprof: %s, %v", cmp.Or(p.what, "working"), elapsed.Round(time.Second))
	case p.done == 0:
		return fmt.Sprintf("vprof: %d of %d %s", p.done, p.total, p.what)
	}
	left := elapsed * time.Duration(p.total-p.done) / time.Duration(p.done)
	return fmt.Sprintf("vprof: %d of %d %s, about %v left", p.done, p.total, p.what,
		max(left.Round(time.Second), time.Second))
}
