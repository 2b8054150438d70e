package trace

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/vprof/vprof/profiler/program"
)

// place is a module, by its path, with the sites of what ran in it: there are
// few of each, so that looking through them costs less than a map of all.
type place struct {
	module string
	sites  []site
}

// site is an entry of the program's table of sites.
type site struct {
	op, native, node, where string
	id                      uint32
}

// placeOf is the module of the given path.
func (t *Tape) placeOf(module string) *place {
	p, known := t.places[module]
	if !known {
		p = &place{module: module}
		t.places[module] = p
	}
	return p
}

// site returns the index of the place the recording is at.
func (t *Tape) site() uint32 {
	line := ""
	if t.opts.Annotate && t.shown {
		line = where()
	}
	p := t.place
	for i := range p.sites {
		s := &p.sites[i]
		if s.native != t.native || s.op != t.op || s.node != t.node || s.where != line {
			continue
		}
		id := s.id
		if i > 0 { // what is looked up often moves to the front
			p.sites[i], p.sites[i-1] = p.sites[i-1], p.sites[i]
		}
		return id
	}
	id := uint32(len(t.prog.Sites))
	t.prog.Sites = push(t.prog.Sites, program.Site{Op: t.op, Native: t.native, Node: t.node, Module: p.module, Where: line})
	p.sites = append(p.sites, site{t.op, t.native, t.node, line, id})
	return id
}

// where finds the line of the model: the innermost frame outside the recorder
// and the layer library.
func where() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		name := strings.TrimPrefix(f.Function, "github.com/vprof/vprof/")
		if !strings.HasPrefix(name, "profiler/trace.") && !strings.HasPrefix(name, "models/nn.") {
			return fmt.Sprintf("%s:%d:%s", modulePath(f.File), f.Line, name[strings.LastIndexByte(name, '.')+1:])
		}
		if !more {
			return ""
		}
	}
}

// modulePath cuts a source path down to the part below the module root.
func modulePath(file string) string {
	for _, room := range []string{"/models/", "/profiler/", "/bench/", "/cmd/"} {
		if i := strings.LastIndex(file, room); i >= 0 {
			return file[i+1:]
		}
	}
	return file[strings.LastIndexByte(file, '/')+1:]
}
