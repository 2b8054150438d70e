package cli

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vprof/vprof/internal/progress"
)

const (
	// progressDelay is the time before progress is shown. Most commands take less.
	progressDelay    = 100 * time.Millisecond
	progressInterval = 200 * time.Millisecond
)

// progressLine shows the progress of long work and the remaining time on standard error, on terminals only.
type progressLine struct {
	to      io.Writer
	forward progress.Func
	stop    chan struct{}
	drawing sync.WaitGroup

	mu          sync.Mutex
	activity    string
	done, total int
	began       time.Time // of what is being done
	shown       bool
}

// startProgress shows progress on a terminal, unless the user or the verb needs none. The caller calls end.
func startProgress(a *app, quiet bool) *progressLine {
	p := &progressLine{to: a.stderr, forward: a.onProgress, stop: make(chan struct{}), began: time.Now()}
	if !quiet && !a.quiet && terminal(a.stderr) {
		p.show()
	}
	return p
}

// show redraws the line until the end.
func (p *progressLine) show() {
	p.drawing.Go(func() {
		wait := progressDelay
		for {
			select {
			case <-p.stop:
				return
			case <-time.After(wait):
				p.draw(time.Now())
				wait = progressInterval
			}
		}
	})
}

// step sets the number of finished units of a total.
func (p *progressLine) step(what string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if what != p.activity {
		p.began = time.Now()
	}
	p.activity, p.done, p.total = what, done, total
	if p.forward != nil {
		p.forward(what, done, total)
	}
}

func (p *progressLine) end() {
	close(p.stop)
	p.drawing.Wait()
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

// line formats the progress after a time. The remaining time assumes a constant rate.
func (p *progressLine) line(elapsed time.Duration) string {
	switch {
	case p.total == 0:
		return fmt.Sprintf("vprof: %s, %v", cmp.Or(p.activity, "working"), elapsed.Round(time.Second))
	case p.done == 0:
		return fmt.Sprintf("vprof: %d of %d %s", p.done, p.total, p.activity)
	}
	left := elapsed * time.Duration(p.total-p.done) / time.Duration(p.done)
	return fmt.Sprintf("vprof: %d of %d %s, about %v left", p.done, p.total, p.activity,
		max(left.Round(time.Second), time.Second))
}
