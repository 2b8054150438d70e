package nn

import (
	"reflect"
	"strconv"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
)

// moduleList is a ModuleList: its path and the Go slice with its modules.
type moduleList struct {
	path string
	v    reflect.Value
}

func (l *moduleList) children() []string {
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

// Blocks returns the paths of a model's repeated blocks: the elements of the longest list of modules of one type that
// holds more than a fifth of all parameters. It is nil without such a list.
func (t *Tree) Blocks() []string {
	total := t.numelBelow("")
	var best []string
	for _, l := range t.lists {
		if children := l.children(); len(children) > len(best) && 5*t.numelBelow(l.path) > total {
			best = children
		}
	}
	return best
}

// numelBelow returns the number of parameter elements in the module with a path and its children.
func (t *Tree) numelBelow(path string) int64 {
	n := int64(0)
	for i, p := range t.Parameters {
		if IsBelow(join(t.names[i].module, t.names[i].own), path) {
			n += p.Numel()
		}
	}
	return n
}

// IsBelow reports whether a name starts with the path of a module and a dot.
func IsBelow(name, module string) bool {
	return module == "" || len(name) > len(module) && name[:len(module)] == module && name[len(module)] == '.'
}

// Modules returns the paths of the modules, in the order of PyTorch's modules().
func (t *Tree) Modules() []string {
	return lists.Map(t.modules, func(m *Module) string { return m.path.Name })
}

// Linears returns the paths of the linear layers, in the order of PyTorch's modules().
func (t *Tree) Linears() []string { return t.linears }

// PathOf returns the path of the module with a name; nil if there is none.
func (t *Tree) PathOf(name string) *trace.Path {
	if m, ok := lists.First(t.modules, func(m *Module) bool { return m.path.Name == name }); ok {
		return &m.path
	}
	return nil
}
