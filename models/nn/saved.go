package nn

import (
	"reflect"
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// ModulesToSave is peft's ModulesToSaveWrapper with one adapter: a frozen
// module, and a copy of it that is trained and used in its place.
type ModulesToSave struct {
	Module
	OriginalModule Layer
	Saved          Layer `torch:"modules_to_save.default"`
	off            bool
}

// NewModulesToSave freezes a layer and copies it.
func NewModulesToSave(l Layer) *ModulesToSave {
	saved := copied(reflect.ValueOf(l)).Interface().(Layer)
	for _, p := range NewTree(saved).Parameters {
		p.Frozen = false
	}
	Freeze(l)
	return &ModulesToSave{OriginalModule: l, Saved: saved}
}

// Places returns the replaceable fields and list elements (of type [Layer]) that hold layers of the given names, or
// ends of paths. missing are the names without a layer.
func Places(model any, names []string) (places []*Layer, missing []string) {
	found := map[string]bool{}
	places = holders(model, func(l Layer, path string) bool {
		_, part := l.(*Parts)
		i := slices.IndexFunc(names, func(name string) bool { return Matches(path, name) })
		if part || i < 0 {
			return false
		}
		found[names[i]] = true
		return true
	})
	return places, notIn(found, names)
}

func notIn(found map[string]bool, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return found[name] })
}

// Trained returns the layer that is used in place of l: the copy if there is one.
func Trained(l Layer) Layer {
	if m, ok := l.(*ModulesToSave); ok {
		return m.Saved
	}
	return l
}

// Base returns the layer below a copy or an adapter.
func Base(l Layer) Layer {
	l = Trained(l)
	if a, ok := l.(interface{ Frozen() Layer }); ok {
		return a.Frozen()
	}
	return l
}

// Table returns the embedding layer below a copy or an adapter.
func Table(l Layer) *Embedding { return Base(l).(*Embedding) }

// BiasOf returns the bias of a linear layer, nil if it has none.
func BiasOf(l Layer) *trace.Tensor {
	switch l := Base(l).(type) {
	case *Linear4bit:
		return l.Bias.T()
	case *Linear8bit:
		return l.Bias.T()
	case *FakeQuantizedLinear:
		return l.Bias.T()
	}
	return Base(l).(*Linear).Bias.T()
}

// Disable turns the copy off, or on again.
func (m *ModulesToSave) Disable(off bool) { m.off = off }

// Forward calls the copy.
func (m *ModulesToSave) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	if m.off {
		return f.Call(m.OriginalModule, x)
	}
	return f.Call(m.Saved, x)
}

// copied returns copy.deepcopy of a module that has not moved to a device: parameters, buffers and children are copied,
// everything else is shared.
func copied(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		return copied(v.Elem())
	case reflect.Pointer:
		if v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return v
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(v.Elem())
		for i := range out.Elem().NumField() {
			if f := out.Elem().Type().Field(i); f.IsExported() && !f.Anonymous {
				out.Elem().Field(i).Set(copied(v.Elem().Field(i)))
			}
		}
		return out
	case reflect.Slice:
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(copied(v.Index(i)))
		}
		return out
	default:
		return v
	}
}

// WithoutAdapters runs f with a model as it was before peft put adapters into it (disable_adapter).
func WithoutAdapters(model any, f func()) {
	turn := func(off bool) {
		w := &layerWalk{wanted: func(l Layer, _ string) bool {
			if a, ok := l.(interface{ Disable(off bool) }); ok {
				a.Disable(off)
			}
			return false
		}, wrapper: func(w *ParamWrapper) { w.Disable(off) }}
		w.model(model)
	}
	turn(true)
	f()
	turn(false)
}
