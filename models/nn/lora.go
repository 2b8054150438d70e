package nn

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// LoRA are the options of low-rank adapters, as in peft.LoraConfig. The scale, alpha/r, has no influence on memory.
type LoRA struct {
	// Rank is r, the width of the bottleneck; RankAt returns the rank of the layer of a path, nil where all have Rank.
	Rank   int64
	RankAt func(path string) int64
	// Dropout of what goes into the adapters; 0 for none.
	Dropout float64
	// DoRA scales the rows of the adapted weight by trained magnitudes.
	DoRA bool
	// Torchtune computes them as torchtune does, and not as peft.
	Torchtune bool
	// NoTowers leaves out layers of [Parts], which are held and never called.
	NoTowers bool
	// Biased gives the second matrix a bias (lora_bias).
	Biased bool
	// Adapts reports whether the layer of a path gets one; nil takes all linear layers. Named reports it of any layer.
	Adapts, Named func(path string) bool
}

// dropout returns the layer before an adapter's first matrix.
func (o LoRA) dropout() Layer {
	if o.Dropout > 0 {
		return NewDropout(o.Dropout)
	}
	return NewIdentity()
}

func (o LoRA) rankAt(path string) int64 {
	if o.RankAt == nil {
		return o.Rank
	}
	return o.RankAt(path)
}

// Projection is a layer that an adapter can wrap.
type Projection interface {
	Layer
	// Widths returns the widths of its input and its output.
	Widths() (in, out int64)
	// AdapterType is the type in which peft makes an adapter of it.
	AdapterType() trace.DType
}

// Widths implements [Projection].
func (l *Linear) Widths() (in, out int64) { return l.Weight.Dims[1], l.Weight.Dims[0] }

// AdapterType implements [Projection].
func (l *Linear) AdapterType() trace.DType { return l.Weight.DType }

// Conv1D is transformers' Conv1D: a linear layer with its weight transposed.
type Conv1D struct {
	Module
	Weight, Bias *Parameter
}

// NewConv1D returns a layer; like the original it takes the output size first.
func NewConv1D(out, in int64) *Conv1D {
	return &Conv1D{Weight: NewParameter(in, out), Bias: NewParameter(out)}
}

// Widths implements [Projection].
func (c *Conv1D) Widths() (in, out int64) { return c.Weight.Dims[0], c.Weight.Dims[1] }

// AdapterType implements [Projection].
func (c *Conv1D) AdapterType() trace.DType { return c.Weight.DType }

// Forward maps [..., in] to [..., out].
func (c *Conv1D) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	shape := slices.Clone(x.Shape())
	shape[len(shape)-1] = c.Weight.Dims[1]
	f.Set(&x, c.Bias.AddMM(x.View(-1, x.Size(-1)), c.Weight.Tensor))
	return f.Set(&x, x.View(shape...))
}

// LoRALinear is peft's lora.Linear with one adapter: a frozen linear layer beside a trained bottleneck.
type LoRALinear struct {
	Module
	BaseLayer   Projection
	LoraDropout Layer   `torch:"lora_dropout.default"`
	LoraA       *Linear `torch:"lora_A.default"`
	LoraB       *Linear `torch:"lora_B.default"`
	// Magnitude is nil without DoRA.
	Magnitude *magnitude `torch:"lora_magnitude_vector.default"`
	torchtune bool
	off       bool
}

// newLoRALinear wraps a frozen layer in an adapter.
func newLoRALinear(base Projection, o LoRA, rank int64) *LoRALinear {
	in, out := base.Widths()
	l := &LoRALinear{
		BaseLayer:   base,
		LoraDropout: o.dropout(),
		LoraA:       NewLinear(in, rank, false),
		LoraB:       NewLinear(rank, out, o.Biased),
	}
	if o.DoRA {
		l.Magnitude, l.torchtune = &magnitude{Weight: NewParameter(out)}, o.Torchtune
	}
	return l
}

// Adapter is an adapter of any kind.
type Adapter interface {
	// Trained are its own parameters, in their order.
	Trained() []*Parameter
	// BaseType is the type of the wrapped layer or parameter, in which peft makes it.
	BaseType() trace.DType
	// Disable turns it off, or on again (disable_adapter).
	Disable(off bool)
}

// BaseType implements [Adapter].
func (l *LoRALinear) BaseType() trace.DType { return l.BaseLayer.AdapterType() }

// Disable implements [Adapter].
func (l *LoRALinear) Disable(off bool) { l.off = off }

// Frozen returns the wrapped layer.
func (l *LoRALinear) Frozen() Layer { return l.BaseLayer }

// MoveLater excludes adapters and copies of modules from the model's move to a device: [MoveAdapters] moves them later.
func MoveLater(adapters []Adapter, saved []*Layer) {
	for _, l := range adapters {
		for _, p := range l.Trained() {
			p.movesLater = true
		}
	}
	for _, l := range saved {
		for _, p := range NewTree(Trained(*l)).Parameters {
			p.movesLater = true
		}
	}
}

// AdapterType sets the type of the parameters of adapters.
func AdapterType(adapters []Adapter, d trace.DType) {
	for _, l := range adapters {
		for _, p := range l.Trained() {
			p.DType = d
		}
	}
}

// MoveAdapters moves adapters to the model's device as peft does when it adds them one after the other: first in the
// type of the wrapped layer, then copies of modules, and finally all of the adapters in fp32 (autocast_adapter_dtype).
func MoveAdapters(tape *trace.Tape, model *Tree, adapters []Adapter) {
	for _, l := range adapters {
		d := l.BaseType()
		for _, p := range l.Trained() {
			tape.OnOtherRank(p.Away, func() {
				p.Tensor = tape.Hold(tape.New("to_device", program.Weights, d, p.Dims...))
			})
		}
	}
	for _, p := range model.Parameters {
		if p.movesLater && p.Tensor == nil {
			tape.OnOtherRank(p.Away, func() {
				p.Tensor = tape.Hold(tape.NewStrided("clone", program.Weights, p.DType, p.Dims, p.Strides))
			})
		}
	}
	for _, p := range model.Parameters {
		if !p.movesLater {
			continue
		}
		if old := p.Tensor; old.DType() != p.DType {
			tape.OnOtherRank(p.Away, func() {
				p.Tensor = tape.Hold(tape.New("to_dtype", program.Weights, p.DType, p.Dims...))
			})
			tape.Release(old)
		}
		p.Leaf()
	}
	for _, l := range adapters {
		if m, ok := l.(Moved); ok {
			m.AfterMove(tape)
		}
	}
}

// Moved is an adapter with a hook that runs once its parameters are on the device.
type Moved interface{ AfterMove(t *trace.Tape) }

// Forward maps [..., in] to [..., out] in the dtype of the base layer's result. The adapter casts its input to the
// dtype of its weights, even if autocast casts it again.
func (l *LoRALinear) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	result := f.Bind(f.Call(l.BaseLayer, x))
	if l.off {
		return result
	}
	dtype := result.DType()
	l.LoraA.Weight.Touch()
	f.Set(&x, x.To(l.LoraA.Weight.Tensor.DType()))
	if l.torchtune {
		return l.torchtuneDoRA(f, x, result)
	}
	if l.Magnitude != nil {
		f.Set(&result, l.peftDoRA(f, x, result))
		return f.Set(&result, result.To(dtype))
	}
	f.Set(&result, result.Add(f.Call(l.LoraB, f.Call(l.LoraA, f.Call(l.LoraDropout, x))).MulScalar()))
	return f.Set(&result, result.To(dtype))
}

// AdaptLinears records peft.get_peft_model(model, LoraConfig(...)). It freezes the model, a pointer to a struct that
// embeds [Module], and wraps the linear layers that o.Adapts or o.Named chooses, except the excluded ones, such as the
// output layer of a language model. It returns the adapters in the order of the layers. It replaces fields, and
// elements of lists, of type [Layer].
func AdaptLinears(model any, o LoRA, excluded ...Layer) []Adapter {
	Freeze(model)
	var made []Adapter
	w := &layerWalk{skipParts: o.NoTowers, excluded: excluded, wanted: func(l Layer, path string) bool {
		if _, linear := l.(Projection); linear {
			return o.Adapts == nil || o.Adapts(path)
		}
		return o.Named != nil && o.Named(path) && adapterOf(l, o, 1) != nil
	}}
	w.visit = func(v reflect.Value, path string) {
		var l Adapter
		if base, linear := v.Interface().(Projection); linear {
			l = newLoRALinear(base, o, o.rankAt(path))
		} else {
			l = adapterOf(v.Interface().(Layer), o, o.rankAt(path))
		}
		made = append(made, l)
		v.Set(reflect.ValueOf(l))
	}
	w.model(model)
	return made
}

// Matches reports whether a path equals a name or ends in it after a dot, as peft matches target_modules.
func Matches(path, name string) bool { return path == name || strings.HasSuffix(path, "."+name) }

// LinearPaths returns the paths of the layers that [AdaptLinears] could wrap, in their order.
func LinearPaths(model any, excluded ...Layer) (paths []string) {
	WalkLinears(model, excluded, func(_ reflect.Value, path string) { paths = append(paths, path) })
	return paths
}

// Linears returns the linear layers of a model by their paths, without packed ones.
func Linears(model any) map[string]*Linear {
	all := map[string]*Linear{}
	WalkLinears(model, nil, func(v reflect.Value, path string) {
		if l, ok := v.Interface().(*Linear); ok {
			all[path] = l
		}
	})
	return all
}

// WalkLinears visits the replaceable fields and list elements of a model that hold linear layers.
func WalkLinears(model any, excluded []Layer, visit func(v reflect.Value, path string)) {
	w := &layerWalk{visit: visit, excluded: excluded, wanted: func(l Layer, _ string) bool {
		_, projects := l.(Projection)
		return projects
	}}
	w.model(model)
}

// HoldersOf returns the fields and list elements of type [Layer] that hold a layer.
func HoldersOf(model any, l Layer) []*Layer {
	return holders(model, func(other Layer, _ string) bool { return other == l })
}

// holders returns the fields and list elements of type [Layer] that hold a wanted layer.
func holders(model any, wanted func(l Layer, path string) bool) (found []*Layer) {
	w := &layerWalk{wanted: wanted, visit: func(v reflect.Value, _ string) {
		found = append(found, v.Addr().Interface().(*Layer))
	}}
	w.model(model)
	return found
}

// layerWalk visits the fields and list elements of a model that hold wanted layers.
type layerWalk struct {
	seen   map[uintptr]bool
	wanted func(l Layer, path string) bool
	visit  func(v reflect.Value, path string)
	// excluded are not looked at, nor what is in them; skipParts leaves out children of [Parts] that are not called.
	excluded  []Layer
	skipParts bool
	// wrapper is called for each adapter of a parameter; it may be nil.
	wrapper func(*ParamWrapper)
}

func (w *layerWalk) model(model any) {
	w.seen = map[uintptr]bool{}
	for _, l := range w.excluded {
		w.seen[reflect.ValueOf(l).Pointer()] = true
	}
	w.walk(reflect.ValueOf(model), "")
}

func (w *layerWalk) walk(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Interface:
		w.place(v, path)
	case reflect.Slice:
		for i := range v.Len() {
			w.walk(v.Index(i), join(path, strconv.Itoa(i)))
		}
	case reflect.Pointer:
		if v.IsNil() || v.Elem().Kind() != reflect.Struct || w.seen[v.Pointer()] {
			return
		}
		w.seen[v.Pointer()] = true
		if parts, ok := v.Interface().(*Parts); ok {
			for i := range parts.children {
				if !w.skipParts || parts.chained {
					w.walk(reflect.ValueOf(parts.children).Index(i), join(path, parts.names[i]))
				}
			}
			return
		}
		layer := v.Interface()
		if wrapper, ok := layer.(*ParamWrapper); ok && w.wrapper != nil {
			w.wrapper(wrapper)
		}
		for _, f := range fieldsOf(v.Elem().Type()).children {
			w.walk(v.Elem().Field(f.index), join(path, childName(layer, f.name)))
		}
	}
}

// place visits a field or element that can hold any layer.
func (w *layerWalk) place(v reflect.Value, path string) {
	if v.IsNil() {
		return
	}
	if l, layer := v.Interface().(Layer); !layer || !w.wanted(l, path) {
		w.walk(v.Elem(), path)
		return
	}
	if !w.seen[v.Elem().Pointer()] && v.CanSet() {
		w.visit(v, path)
	}
}
