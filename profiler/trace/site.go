package trace

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/vprof/vprof/profiler/program"
)

// place is a module, by its path, with the sites of its operators. They are few, so that a search costs less than a map
// of all sites. In the recording of a graph, a place is a line of the module's source.
type place struct {
	module, line string
	last         uint32 // index of its last site plus one; zero if there are none
}

// site is an entry of the program's table of sites. Steps and layers repeat, so each site stores its successor.
type site struct {
	place                   *place
	op, native, node, where string
	next                    uint32
	before                  uint32 // the site before it in its place, as [place.last]
}

// Path is the path of a module in its model. The module keeps it, so that a recording finds its
// state of the module without a search.
type Path struct {
	// Name is the name in named_modules().
	Name string
	// Line is the line of source that runs in the module, "" if the recording finds it.
	Line string

	tape  *Tape // the last tape that used it, with its place
	place *place
}

// placeOn returns the tape's record of the module with path p, to which allocation sites refer.
func (t *Tape) placeOn(p *Path) *place {
	if p.tape != t {
		p.tape, p.place = t, t.placeOf(p.Name, p.Line)
	}
	return p.place
}

// placeOf returns the tape's record of a module, or of one of its source lines.
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

// isAt reports whether the recording is at s, at the given line.
func (t *Tape) isAt(s *site, line string) bool {
	return s.place == t.place && s.native == t.native && s.op == t.op && s.node == t.node && s.where == line
}

// findSite searches the sites of the module, and adds one if none matches.
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

// where returns the line of the model: the innermost frame outside the recorder and the layer library.
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

// modulePath cuts a source path down to the part below the module root.
func modulePath(file string) string {
	for _, room := range []string{"/models/", "/profiler/", "/bench/", "/cli/"} {
		if i := strings.LastIndex(file, room); i >= 0 {
			return file[i+1:]
		}
	}
	return file[strings.LastIndexByte(file, '/')+1:]
}
