package trace

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/vprof/vprof/profiler/program"
)

// place is a module with the sites of its operators. A module has few sites, so a search is faster than a map of all
// sites. When a graph is recorded, a place is a source line of a module.
type place struct {
	module, line string
	last         uint32 // index of its last site plus one; zero if there are none
}

// site is an entry of the program's table of allocation sites. Since steps and layers repeat, a site stores the site
// that followed it last time.
type site struct {
	place                   *place
	op, native, node, where string
	next                    uint32
	before                  uint32 // the site before it in its place, as [place.last]
}

// Path is the path of a module in its model. The module keeps the Path, which caches the recording's entry for it.
type Path struct {
	// Name is the name in named_modules().
	Name string
	// Line is the source line that runs in the module; if empty, the recording determines it.
	Line string

	tape  *Tape // the last tape that used it, with its place
	place *place
}

// placeOn returns the tape's entry for the module with path p.
func (t *Tape) placeOn(p *Path) *place {
	if p.tape != t {
		p.tape, p.place = t, t.placeOf(p.Name, p.Line)
	}
	return p.place
}

// placeOf returns the tape's entry for a module, or for one of its source lines.
func (t *Tape) placeOf(module, line string) *place {
	key := [2]string{module, line}
	p, known := t.places[key]
	if !known {
		p = &place{module: module, line: line}
		t.places[key] = p
	}
	return p
}

// site returns the index of the current site.
func (t *Tape) site() uint32 {
	line := t.place.line
	if line == "" && t.opts.Annotate && t.fromPython {
		line = where()
	}
	if len(t.sites) == 0 {
		t.at = t.newSite(line)
	}
	here := &t.sites[t.at]
	if t.siteFoundAt == t.activations && here.native == t.native && here.place == t.place && here.where == line {
		return t.at // in the same activation, as a kernel is where its result was allocated
	}
	t.siteFoundAt = t.activations
	switch {
	case t.isAt(&t.sites[here.next], line):
		t.at = here.next
	case !t.isAt(here, line):
		id := t.findSite(line)
		t.sites[t.at].next = id // the table may have moved
		t.at = id
	}
	return t.at
}

// isAt reports whether the running code is at site s, on the given line.
func (t *Tape) isAt(s *site, line string) bool {
	return s.place == t.place && s.native == t.native && s.op == t.op && s.node == t.node && s.where == line
}

// findSite searches the sites of the running module; if none matches, it adds one.
func (t *Tape) findSite(line string) uint32 {
	for n := t.place.last; n > 0; n = t.sites[n-1].before {
		if t.isAt(&t.sites[n-1], line) {
			return n - 1
		}
	}
	return t.newSite(line)
}

func (t *Tape) newSite(line string) uint32 {
	id := uint32(len(t.sites))
	push(&t.prog.Sites, program.Site{Op: t.op, Native: t.native, Node: t.node, Module: t.place.module, Where: line})
	push(&t.sites, site{t.place, t.op, t.native, t.node, line, id, t.place.last})
	t.place.last = id + 1
	return id
}

// where returns the model's source line: the innermost stack frame outside the recorder and the package of layers.
func where() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		name := strings.TrimPrefix(f.Function, "github.com/vprof/vprof/")
		recorder := strings.HasPrefix(name, "profiler/trace.") || strings.HasPrefix(name, "profiler/trace/ops.")
		if !recorder && !strings.HasPrefix(name, "models/nn.") {
			return fmt.Sprintf("%s:%d:%s", modulePath(f.File), f.Line, name[strings.LastIndexByte(name, '.')+1:])
		}
		if !more {
			return ""
		}
	}
}

// modulePath returns a source path relative to the root of the Go module.
func modulePath(file string) string {
	for _, room := range []string{"/models/", "/profiler/", "/bench/", "/cli/"} {
		if i := strings.LastIndex(file, room); i >= 0 {
			return file[i+1:]
		}
	}
	return file[strings.LastIndexByte(file, '/')+1:]
}
