package nn

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// LoRA holds the options of low-rank adapters, as in peft.LoraConfig. The scale alpha/r does not affect memory.
type LoRA struct {
	// Rank is r, the inner size of the adapters. RankOfPath returns a layer's rank by path; nil if all have Rank.
	Rank       int64
	RankOfPath func(path string) int64
	// Dropout is the dropout probability of the adapters' inputs.
	Dropout float64
	// DoRA trains the magnitude of each row of the adapted weights.
	DoRA bool
	// Torchtune computes DoRA as torchtune does instead of peft.
	Torchtune bool
	// NoTowers skips layers of [NamedModule], which a text-only step does not call.
	NoTowers bool
	// Biased gives the adapters' second matrix a bias (lora_bias).
	Biased bool
	// AdaptsPath reports whether the linear layer with a path gets an adapter; nil means all. Named does so for layers
	// of any kind.
	AdaptsPath, Named func(path string) bool
}

// dropout returns the dropout layer before an adapter's first matrix.
func (o LoRA) dropout() Layer {
	if o.Dropout > 0 {
		return NewDropout(o.Dropout)
	}
	return NewIdentity()
}

func (o LoRA) rankAt(path string) int64 {
	if o.RankOfPath == nil {
		return o.Rank
	}
	return o.RankOfPath(path)
}

// Projection is a linear layer that an adapter can wrap.
type Projection interface {
	Layer
	// Widths returns the sizes of the layer's input and output.
	Widths() (in, out int64)
	// AdapterType returns the data type in which peft creates the layer's adapter.
	AdapterType() trace.DType
}

// Widths returns the layer's input and output widths, for [Projection].
func (l *Linear) Widths() (in, out int64) { return l.Weight.Dims[1], l.Weight.Dims[0] }

// AdapterType returns the dtype of adapters on the layer, for [Projection].
func (l *Linear) AdapterType() trace.DType { return l.Weight.DType }

// Conv1D is transformers' Conv1D: a linear layer with a transposed weight.
type Conv1D struct {
	Module
	Weight, Bias *Parameter
}

// NewConv1D returns a layer. Like transformers', its first argument is the output size.
func NewConv1D(out, in int64) *Conv1D {
	return &Conv1D{Weight: NewParameter(in, out), Bias: NewParameter(out)}
}

// Widths returns the layer's input and output widths, for [Projection].
func (c *Conv1D) Widths() (in, out int64) { return c.Weight.Dims[0], c.Weight.Dims[1] }

// AdapterType returns the dtype of adapters on the layer, for [Projection].
func (c *Conv1D) AdapterType() trace.DType { return c.Weight.DType }

// Forward maps [..., in] to [..., out].
func (c *Conv1D) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	shape := slices.Clone(x.Shape())
	shape[len(shape)-1] = c.Weight.Dims[1]
	f.Set(&x, c.Bias.AddMM(x.View(-1, x.Size(-1)), c.Weight.Tensor))
	return f.Set(&x, x.View(shape...))
}

// LoRALinear is peft's lora.Linear with one adapter: a frozen linear layer and two trained low-rank matrices.
type LoRALinear struct {
	Module
	BaseLayer   Projection
	LoraDropout Layer   `torch:"lora_dropout.default"`
	LoraA       *Linear `torch:"lora_A.default"`
	LoraB       *Linear `torch:"lora_B.default"`
	// Magnitude is nil without DoRA.
	Magnitude *doraMagnitude `torch:"lora_magnitude_vector.default"`
	torchtune bool
	off       bool
}

// newLoRALinear returns an adapter around a frozen layer.
func newLoRALinear(base Projection, o LoRA, rank int64) *LoRALinear {
	in, out := base.Widths()
	l := &LoRALinear{
		BaseLayer:   base,
		LoraDropout: o.dropout(),
		LoraA:       NewLinear(in, rank, false),
		LoraB:       NewLinear(rank, out, o.Biased),
	}
	if o.DoRA {
		l.Magnitude, l.torchtune = &doraMagnitude{Weight: NewParameter(out)}, o.Torchtune
	}
	return l
}

// Adapter is an adapter of any peft method.
type Adapter interface {
	// Trained returns the adapter's own parameters in PyTorch's order.
	Trained() []*Parameter
	// BaseType returns the data type of the wrapped layer or parameter, in which peft creates the adapter.
	BaseType() trace.DType
	// Disable turns the adapter off, as in peft's disable_adapter, or on again.
	Disable(off bool)
}

// BaseType returns the dtype of the frozen layer's weight, for [Adapter].
func (l *LoRALinear) BaseType() trace.DType { return l.BaseLayer.AdapterType() }

// Disable turns the adapter off or on, for [Adapter].
func (l *LoRALinear) Disable(off bool) { l.off = off }

// Frozen returns the wrapped layer.
func (l *LoRALinear) Frozen() Layer { return l.BaseLayer }

// MoveLater excludes adapters and module copies from the model's move to the GPU; [MoveAdapters] moves them later.
func MoveLater(adapters []Adapter, saved []*Layer) {
	for _, l := range adapters {
		for _, p := range l.Trained() {
			p.movesLater = true
		}
	}
	for _, l := range saved {
		for _, p := range NewTree(TrainedCopyOf(*l)).Parameters {
			p.movesLater = true
		}
	}
}

// SetAdapterType sets the data type of the adapters' parameters.
func SetAdapterType(adapters []Adapter, d trace.DType) {
	for _, l := range adapters {
		for _, p := range l.Trained() {
			p.DType = d
		}
	}
}

// MoveAdapters moves adapters to the GPU in peft's order: each adapter in the data type of its wrapped layer, then
// copies of modules, and finally all adapters to fp32 (autocast_adapter_dtype).
func MoveAdapters(tape *trace.Tape, model *Tree, adapters []Adapter) {
	for _, l := range adapters {
		d := l.BaseType()
		for _, p := range l.Trained() {
			tape.OnOtherRank(p.IsElsewhere, func() {
				p.Tensor = tape.Hold(tape.New("to_device", program.Weights, d, p.Dims...))
			})
		}
	}
	for _, p := range model.Parameters {
		if p.movesLater && p.Tensor == nil {
			tape.OnOtherRank(p.IsElsewhere, func() {
				p.Tensor = tape.Hold(tape.NewStrided("clone", program.Weights, p.DType, p.Dims, p.Strides))
			})
		}
	}
	for _, p := range model.Parameters {
		if !p.movesLater {
			continue
		}
		if old := p.Tensor; old.DType() != p.DType {
			tape.OnOtherRank(p.IsElsewhere, func() {
				p.Tensor = tape.Hold(tape.New("to_dtype", program.Weights, p.DType, p.Dims...))
			})
			tape.Release(old)
		}
		p.Leaf()
	}
	for _, l := range adapters {
		if m, ok := l.(MoveHook); ok {
			m.AfterMove(tape)
		}
	}
}

// MoveHook is an adapter with a hook that runs after its parameters have moved to the GPU.
type MoveHook interface{ AfterMove(t *trace.Tape) }

// Forward maps [..., in] to [..., out] in the data type of the frozen layer's result. The adapter casts its input to
// the type of its weights, even if autocast casts it again.
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
// embeds [Module], and replaces fields and list elements of type [Layer] by adapters around them: the linear layers
// that o.Adapts or o.Named select, except the excluded ones, such as a language model's output layer. It returns the
// adapters in the order of the layers.
func AdaptLinears(model any, o LoRA, excluded ...Layer) []Adapter {
	Freeze(model)
	var made []Adapter
	w := &layerWalk{skipParts: o.NoTowers, excluded: excluded, wanted: func(l Layer, path string) bool {
		if _, linear := l.(Projection); linear {
			return o.AdaptsPath == nil || o.AdaptsPath(path)
		}
		return o.Named != nil && o.Named(path) && newLayerAdapter(l, o, 1) != nil
	}}
	w.visit = func(v reflect.Value, path string) {
		var l Adapter
		if base, linear := v.Interface().(Projection); linear {
			l = newLoRALinear(base, o, o.rankAt(path))
		} else {
			l = newLayerAdapter(v.Interface().(Layer), o, o.rankAt(path))
		}
		made = append(made, l)
		v.Set(reflect.ValueOf(l))
	}
	w.model(model)
	return made
}

// MatchesSuffix reports whether a path equals a name or ends in a dot and the name, as peft matches target_modules.
func MatchesSuffix(path, name string) bool { return path == name || strings.HasSuffix(path, "."+name) }

// LinearPaths returns the paths of the layers that [AdaptLinears] can wrap, in order.
func LinearPaths(model any, excluded ...Layer) (paths []string) {
	WalkLinears(model, excluded, func(_ reflect.Value, path string) { paths = append(paths, path) })
	return paths
}

// Linears returns a model's unquantized linear layers by path.
func Linears(model any) map[string]*Linear {
	all := map[string]*Linear{}
	WalkLinears(model, nil, func(v reflect.Value, path string) {
		if l, ok := v.Interface().(*Linear); ok {
			all[path] = l
		}
	})
	return all
}

// WalkLinears calls visit with each field or list element of a model that holds a linear layer and can be replaced.
func WalkLinears(model any, excluded []Layer, visit func(v reflect.Value, path string)) {
	w := &layerWalk{visit: visit, excluded: excluded, wanted: func(l Layer, _ string) bool {
		_, projects := l.(Projection)
		return projects
	}}
	w.model(model)
}

// FieldsHolding returns pointers to the fields and list elements of type [Layer] that hold the layer l.
func FieldsHolding(model any, l Layer) []*Layer {
	return findLayerFields(model, func(other Layer, _ string) bool { return other == l })
}

// findLayerFields returns pointers to the fields and list elements of type [Layer] whose layer is wanted.
func findLayerFields(model any, wanted func(l Layer, path string) bool) (found []*Layer) {
	w := &layerWalk{wanted: wanted, visit: func(v reflect.Value, _ string) {
		found = append(found, v.Addr().Interface().(*Layer))
	}}
	w.model(model)
	return found
}

// layerWalk visits the fields and list elements of a model whose layer is wanted.
type layerWalk struct {
	seen   map[uintptr]bool
	wanted func(l Layer, path string) bool
	visit  func(v reflect.Value, path string)
	// excluded layers and their children are not visited. skipParts skips the children of [NamedModule], which are not
	// called.
	excluded  []Layer
	skipParts bool
	// wrapper is called for each adapter of a parameter; nil if not needed.
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
		if parts, ok := v.Interface().(*NamedModule); ok {
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
		for _, f := range torchFieldsOf(v.Elem().Type()).children {
			w.walk(v.Elem().Field(f.index), join(path, childName(layer, f.name)))
		}
	}
}

// place visits a field or list element of type [Layer].
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
