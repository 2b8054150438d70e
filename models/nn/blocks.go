package nn

import (
	"reflect"
	"strconv"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
)

// list is a field that holds a list of modules.
type list struct {
	path string
	v    reflect.Value
}

// children returns the paths of the modules of the list; none if they are not of one type.
func (l *list) children() []string {
	var paths []string
	var kind reflect.Type
	for i := range l.v.Len() {
		e := l.v.Index(i)
		for e.Kind() == reflect.Interface {
			e = e.Elem()
		}
		if i > 0 && e.Type() != kind {
			return nil
		}
		kind = e.Type()
		paths = append(paths, join(l.path, strconv.Itoa(i)))
	}
	return paths
}

// Blocks returns the paths of the children of the longest list of modules of one type that holds
// more than a fifth of the parameters; none if there is no such list.
func (t *Tree) Blocks() []string {
	total := t.below("")
	var best []string
	for _, l := range t.lists {
		if children := l.children(); len(children) > len(best) && 5*t.below(l.path) > total {
			best = children
		}
	}
	return best
}

// below returns the number of elements of the parameters below a module.
func (t *Tree) below(path string) int64 {
	n := int64(0)
	for i, p := range t.Parameters {
		if Below(join(t.names[i].module, t.names[i].own), path) {
			n += p.Numel()
		}
	}
	return n
}

// Below reports whether a name belongs to a part of a module.
func Below(name, module string) bool {
	return module == "" || len(name) > len(module) && name[:len(module)] == module && name[len(module)] == '.'
}

// Modules returns the paths of the modules, in the order of modules().
func (t *Tree) Modules() []string {
	return lists.Map(t.modules, func(m *Module) string { return m.path.Name })
}

// Linears returns the paths of the linear layers, in the order of modules().
func (t *Tree) Linears() []string { return t.linears }

// Path finds the module of a path; nil if there is none.
func (t *Tree) Path(name string) *trace.Path {
	if m, ok := lists.First(t.modules, func(m *Module) bool { return m.path.Name == name }); ok {
		return &m.path
	}
	return nil
}
