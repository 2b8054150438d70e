package main

import (
	"fmt"
	"io"
	"time"
)

// silence is how long work may take before progress shows. Most commands are
// done long before.
const silence = time.Second

// progress writes a line for each step of long work to standard error.
type progress struct {
	to    io.Writer
	now   func() time.Time
	shown time.Time // the last line, or the start
}

func newProgress(a *app, quiet bool) *progress {
	p := &progress{to: a.stderr, now: time.Now}
	if quiet {
		p.to = io.Discard
	}
	p.shown = p.now()
	return p
}

// step says how far the work is, at most once a second.
func (p *progress) step(format string, args ...any) {
	if now := p.now(); now.Sub(p.shown) >= silence {
		p.shown = now
		fmt.Fprintf(p.to, "vprof: "+format+"\n", args...)
	}
}
