package nn

import (
	"reflect"
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// ModulesToSave is peft's ModulesToSaveWrapper with one adapter: a frozen module, and a trained copy that is called.
type ModulesToSave struct {
	Module
	OriginalModule Layer
	Saved          Layer `torch:"modules_to_save.default"`
	off            bool
}

// NewModulesToSave freezes a layer and adds a trained copy.
func NewModulesToSave(l Layer) *ModulesToSave {
	saved := deepCopy(reflect.ValueOf(l)).Interface().(Layer)
	for _, p := range NewTree(saved).Parameters {
		p.Frozen = false
	}
	Freeze(l)
	return &ModulesToSave{OriginalModule: l, Saved: saved}
}

// LayerFields returns pointers to the fields and list elements of type [Layer] whose layers have one of the given
// names, or a path that ends in one. missing are the names without a layer.
func LayerFields(model any, names []string) (places []*Layer, missing []string) {
	found := map[string]bool{}
	places = findLayerFields(model, func(l Layer, path string) bool {
		_, part := l.(*NamedModule)
		i := slices.IndexFunc(names, func(name string) bool { return MatchesSuffix(path, name) })
		if part || i < 0 {
			return false
		}
		found[names[i]] = true
		return true
	})
	return places, missingNames(found, names)
}

func missingNames(found map[string]bool, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return found[name] })
}

// TrainedCopyOf returns the trained copy of l if there is one, else l.
func TrainedCopyOf(l Layer) Layer {
	if m, ok := l.(*ModulesToSave); ok {
		return m.Saved
	}
	return l
}

// BaseLayerOf returns the original layer inside a copy's wrapper or an adapter; l itself if there is none.
func BaseLayerOf(l Layer) Layer {
	l = TrainedCopyOf(l)
	if a, ok := l.(interface{ Frozen() Layer }); ok {
		return a.Frozen()
	}
	return l
}

// EmbeddingOf returns the original embedding inside a copy's wrapper or an adapter.
func EmbeddingOf(l Layer) *Embedding { return BaseLayerOf(l).(*Embedding) }

// BiasOf returns the bias of a linear layer, nil if it has none.
func BiasOf(l Layer) *trace.Tensor {
	switch l := BaseLayerOf(l).(type) {
	case *Linear4bit:
		return l.Bias.TensorOrNil()
	case *Linear8bit:
		return l.Bias.TensorOrNil()
	case *FakeQuantizedLinear:
		return l.Bias.TensorOrNil()
	}
	return BaseLayerOf(l).(*Linear).Bias.TensorOrNil()
}

// Disable makes Forward call the original module, as in peft's disable_adapter, or the copy again.
func (m *ModulesToSave) Disable(off bool) { m.off = off }

// Forward calls the trained copy.
func (m *ModulesToSave) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	if m.off {
		return f.Call(m.OriginalModule, x)
	}
	return f.Call(m.Saved, x)
}

// deepCopy records copy.deepcopy of a module that is not on the GPU yet: parameters, buffers and children are copied,
// other fields are shared.
func deepCopy(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		return deepCopy(v.Elem())
	case reflect.Pointer:
		if v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return v
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(v.Elem())
		for i := range out.Elem().NumField() {
			if f := out.Elem().Type().Field(i); f.IsExported() && !f.Anonymous {
				out.Elem().Field(i).Set(deepCopy(v.Elem().Field(i)))
			}
		}
		return out
	case reflect.Slice:
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(deepCopy(v.Index(i)))
		}
		return out
	default:
		return v
	}
}

// WithoutAdapters calls f while the model's adapters are disabled (peft's disable_adapter).
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
